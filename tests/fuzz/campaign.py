"""Runs one case per number, and counts how they ended; what goes wrong is kept with its number."""

import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

SLOW_SECONDS = 120.0


@dataclass
class Campaign:
    """The ends of many cases.

    ends: how many ended in which way. faults: what went wrong, by the number of the case. slowest:
    the number of the slowest case and its seconds.
    """

    ends: Counter[str] = field(default_factory=Counter)
    faults: dict[int, str] = field(default_factory=dict)
    slowest: tuple[int, float] = (-1, 0.0)

    def run(self, case: Callable[[int], str], numbers: Iterable[int]) -> "Campaign":
        """Run the cases of these numbers, up to Ctrl-C.

        case: gives the name of its end, or raises a fault.
        """
        with suppress(KeyboardInterrupt):
            self._run(case, numbers)
        return self

    def _run(self, case: Callable[[int], str], numbers: Iterable[int]) -> None:
        for number in numbers:
            start = time.perf_counter()
            try:
                self.ends[case(number)] += 1
            except Exception as error:
                self.ends["FAULT"] += 1
                self.faults[number] = f"{type(error).__name__}: {error}"[:600]
            seconds = time.perf_counter() - start
            if seconds > self.slowest[1]:
                self.slowest = number, seconds
            if seconds > SLOW_SECONDS:
                self.faults[number] = f"took {seconds:.0f} s"

    def report(self) -> str:
        """The counts, the slowest case, the most memory used so far, and the first faults."""
        counts = ", ".join(f"{count} {end}" for end, count in self.ends.most_common())
        lines = [f"{self.ends.total()} cases: {counts}"]
        lines += [f"slowest: number {self.slowest[0]}, {self.slowest[1]:.2f} s"]
        lines += [f"most memory: {peak_bytes() >> 20} MB"]
        lines += [f"number {number}: {fault}" for number, fault in list(self.faults.items())[:20]]
        return "\n".join(lines)


def peak_bytes() -> int:
    """The most memory that this process, or any of its children that have ended, ever used."""
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    unit = 1 if sys.platform == "darwin" else 1024
    return max(resource.getrusage(each).ru_maxrss for each in whose) * unit
