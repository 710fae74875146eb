"""Peer program: one of llama.cpp's own programs, asked what it is and which drafts it knows."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from localspec.bench.program_log import variables_of_programs
from localspec.errors import InvalidValueError
from localspec.llama import library
from localspec.utils.format import printable

# Loading the code for a GPU may take long.
_SECONDS = 60.0
_LONGEST_VERSION = 100
_PORT = re.compile(r"^ *--port ", re.MULTILINE)
_TYPES = re.compile(r"^ *--spec-type +([a-z0-9,-]+)", re.MULTILINE)
_VERSION = re.compile(r"^version: *(.*)", re.MULTILINE)
_COMMIT = re.compile(r"\b([0-9a-f]{7,40})\)$")


@dataclass(frozen=True, slots=True)
class PeerProgram:
    """A llama-server, or the tool llama-speculative-simple.

    types: those of its `--spec-type`, as far as its help names them. version: as it says it; "" if
    it does not.
    """

    binary: Path
    is_server: bool
    types: tuple[str, ...]
    version: str

    @property
    def same_sources(self) -> bool | None:
        """Whether it was compiled from the sources of our library; None if that is not known."""
        version, commit = library.sources()
        theirs = _COMMIT.search(self.version)
        if theirs and re.fullmatch(r"[0-9a-f]{7,40}", commit):
            return theirs[1].startswith(commit) or commit.startswith(theirs[1])
        if self.version and version and self.version.split()[0] != version:
            return False
        return None


def peer_program(binary: Path, named: str) -> PeerProgram:
    """Ask a program what it is. named: what the user called it.

    Raises InvalidValueError for a file that cannot be run, and for any other program.
    """
    if binary.is_file() and os.access(binary, os.X_OK):
        told = _told(binary, "--help")
        types, is_server = _TYPES.search(told), bool(_PORT.search(told))
        if types or is_server:
            version = _VERSION.search(_told(binary, "--version"))
            said = printable(version[1].strip()[:_LONGEST_VERSION]) if version else ""
            names = tuple(types[1].split(",")) if types else ()
            return PeerProgram(binary, is_server, names, said)
        reason = printable(told.strip().rpartition("\n")[2][:200])
        said = f" (it says: {reason})" if reason else ""
    else:
        said = "" if binary.exists() else " (there is no such file)"
    raise InvalidValueError(
        f"--peer {named}: it must be a llama-server or llama-speculative-simple that can be "
        f"run{said}"
    )


def _told(binary: Path, option: str) -> str:
    try:
        done = subprocess.run(
            [str(binary), option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
            env=variables_of_programs(),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return getattr(error, "strerror", None) or f"no answer to {option} in {_SECONDS:.0f} s"
    return done.stdout
