"""Probe: a module that runs in a child process and reports facts, as far as it comes.

What may crash, hang or not even be importable is looked at by a probe.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.utils.child_process import ChildProcess

# Two GPUs may take two minutes each before they are given up.
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """facts: by stage, as far as the probe came.

    failure: how the probe ended, None if it ended well. crashed: whether a signal ended it.
    timed_out: whether it was ended because it took too long.
    """

    facts: Mapping[str, Any]
    failure: str | None = None
    crashed: bool = False
    timed_out: bool = False


class Probe:
    """A running probe; use it in a `with`. The module calls `report_facts`."""

    def __init__(self, module: str) -> None:
        self._child = ChildProcess(module)

    def result(self) -> ProbeResult:
        """Wait for the end of the probe, for five minutes at most, and return what it reported."""
        ended = self._child.wait(seconds=_SECONDS)
        facts = _facts(ended.output)
        if ended.timed_out:
            failure = f"it did not end within {_SECONDS} seconds"
            return ProbeResult(facts, failure, timed_out=True)
        if ended.exit_code == 0:
            return ProbeResult(facts)
        last_error = f": {ended.last_error}" if ended.last_error else ""
        if ended.exit_code < 0:
            failure = f"it was ended by signal {-ended.exit_code}{last_error}"
            return ProbeResult(facts, failure, crashed=True)
        failure = f"it ended with {ended.exit_code}{last_error}"
        return ProbeResult(facts, failure, crashed=ended.crashed)

    def __enter__(self) -> "Probe":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._child.close()


def report_facts(stage: str, facts: Any) -> None:
    """In the probe: report what was found in a stage. facts: anything that JSON can express."""
    sys.stdout.write(json.dumps({stage: facts}) + "\n")
    sys.stdout.flush()


def _facts(output: str) -> dict[str, Any]:
    return {
        stage: facts
        for line in output.splitlines()
        if line.startswith("{") and line.endswith("}")
        for stage, facts in json.loads(line).items()
    }
