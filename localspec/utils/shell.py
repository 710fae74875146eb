"""Shell: command lines to type, quoted as the shells of this system need it."""

import shlex
import subprocess
import sys
from collections.abc import Sequence


def command_line(words: Sequence[str]) -> str:
    """Return a command with its arguments as one line."""
    return subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
