"""Program log: what a measured program wrote, and the variables that it is started with."""

import os
from typing import IO

from localspec.utils.format import printable

# Variables that would give programs other options than those they are started with.
_OPTIONS = ("LLAMA_", "LOCALSPEC_API_KEY")
_LOG_TAIL, _LONGEST_LINE = 4096, 300


def variables_of_programs() -> dict[str, str]:
    """The variables of this process, without those that are options of measured programs."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_OPTIONS)}


def last_line(log: IO[bytes]) -> str:
    """The last line of what a program wrote, printable and cut."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LOG_TAIL))
    lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines()]
    return printable(next(filter(None, reversed(lines)), "")[:_LONGEST_LINE])
