"""Child: what may crash, hang or not even be importable is tried in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# How the failure of a child begins that crashed.
SIGNAL = "it was ended by signal"
_SECONDS = 60
# The child is to find just what this process finds, wherever either was started.
_START = (
    "import sys; module, *sys.path[:] = sys.argv[1:];"
    "import runpy; runpy.run_module(module, run_name='__main__')"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """facts: by stage, as far as the child came. failure: how it ended, unless it ended well."""

    facts: Mapping[str, Any]
    failure: str | None = None


class Child:
    """A module at work, whose `main` calls `tell`."""

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, module, *sys.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def answer(self) -> Answer:
        """What it told; waits for its end, a minute at most."""
        try:
            told, complaints = self._process.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            told, _ = self._process.communicate()
            return Answer(_facts(told), f"it did not end within {_SECONDS} seconds")
        return Answer(_facts(told), _failure(self._process.returncode, complaints))


def tell(stage: str, facts: Any) -> None:
    """In the child: what was found out in a stage."""
    sys.stdout.write(json.dumps({stage: facts}) + "\n")
    sys.stdout.flush()


def _facts(told: str) -> dict[str, Any]:
    return {
        stage: facts
        for line in told.splitlines()
        if line.startswith("{") and line.endswith("}")
        for stage, facts in json.loads(line).items()
    }


def _failure(code: int, complaints: str) -> str | None:
    if code == 0:
        return None
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    last = f": {lines[-1]}" if lines else ""
    return f"{SIGNAL} {-code}{last}" if code < 0 else f"it ended with {code}{last}"
