"""A machine on which other programs are busy, and time goes by as it is told."""

from collections.abc import Iterator
from itertools import cycle

from localspec.llama.wait_policy import WaitPolicy, gnu_switch
from localspec.utils.busy_cores import BusyCores

Seconds = dict[bool, Iterator[float]]


class Machine(BusyCores):
    """Two cores and a clock; passes of a kind take what `seconds` says of either way."""

    def __init__(self, busy: float, **seconds: tuple[list[float], list[float]]) -> None:
        self.now, self.busy = 0.0, busy
        self.switched = list[bool]()
        self.ways = list[tuple[str, bool]]()
        self._seconds: dict[str, Seconds] = {
            kind: {False: cycle(long), True: cycle(short)}
            for kind, (long, short) in seconds.items()
        }
        self.policy = WaitPolicy(self.switched.append, self, 2, lambda: self.now)

    def mean(self, least_seconds: float = 0) -> float:
        return self.busy

    def run(self, kinds: str, passes: int, threads: int = 2) -> float:
        """Run passes; return the seconds."""
        began = self.now
        for _, kind in zip(range(passes), cycle(kinds), strict=False):
            with self.policy.during(kind, threads):
                self.ways.append((kind, self.policy.short))
                self.now += next(self._seconds[kind][self.policy.short])
        return self.now - began


def busy_policy() -> WaitPolicy:
    """The real switch, on a machine where a pass with long waits seems to take twice as long."""
    machine = Machine(2.0)

    def clock() -> float:
        machine.now += 0.01 if policy.short else 0.02
        return machine.now

    policy = WaitPolicy(gnu_switch() or (lambda _short: None), machine, 2, clock)
    return policy
