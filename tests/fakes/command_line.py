"""The command line, as tests run it: in a process of its own; see also the fixture `cli`."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

# How the line begins that tells of a faulty build (llama/extra_buffers.py).
_BUILD = "localspec: this build of llama.cpp crashes with weights rearranged"


def lines_of(err: str) -> list[str]:
    """The lines on standard error, but for what is said of this machine's llama.cpp."""
    return [line for line in err.splitlines() if _BUILD not in line]


class Done(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines on standard error, but for what is said of this machine's llama.cpp."""
        return lines_of(self.err)

    @property
    def record(self) -> dict[str, Any]:
        """The one object on standard output."""
        assert self.out.endswith("}\n")
        assert self.out.count("\n") == 1
        record: dict[str, Any] = json.loads(self.out)
        return record


Run: TypeAlias = Callable[..., Done]


def localspec(*arguments: str, stdin: str = "", **environment: str) -> Done:
    """`python -m localspec ARGUMENTS` to its end. environment: added to that of the tests."""
    done = subprocess.run(
        [sys.executable, "-m", "localspec", *arguments],
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def own_folders(folder: Path) -> dict[str, str]:
    """The environment in which there are no models and no settings but those in a folder."""
    return {"HF_HUB_CACHE": str(folder / "hub"), "LOCALSPEC_HOME": str(folder / "home")}
