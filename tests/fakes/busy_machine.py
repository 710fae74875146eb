"""A machine on which other programs are busy, and time goes by as it is told."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle

from localspec.llama.wait_policy import WaitPolicy
from localspec.llama.wait_switch import wait_switch
from localspec.utils.busy_cores import BusyCores

Seconds = dict[bool, Iterator[float]]


class FakeSwitch:
    """Remembers how waits are. stuck: it cannot make them short."""

    def __init__(self, *, stuck: bool = False) -> None:
        self.is_short, self.changes, self._stuck = False, 0, stuck

    def make(self, *, short: bool, threads: int) -> bool:
        changed = short != self.is_short and not self._stuck
        self.is_short ^= changed
        self.changes += changed
        return changed


class Machine(BusyCores):
    """Cores and a clock; passes of a kind take what `seconds` says of long and of short waits.

    busy: how many cores other programs use. threads: of the passes of a kind; two without.
    """

    def __init__(
        self,
        busy: float,
        *,
        cores: int = 2,
        switch: FakeSwitch | None = None,
        threads: dict[str, int] | None = None,
        **seconds: tuple[list[float], list[float]],
    ) -> None:
        self.now, self.busy = 0.0, busy
        self.switch = switch or FakeSwitch()
        # How the waits of each pass were.
        self.ways = list[bool]()
        self.seconds: dict[str, Seconds] = {
            kind: {False: cycle(long), True: cycle(short)}
            for kind, (long, short) in seconds.items()
        }
        self._threads = threads or {}
        self.policy = WaitPolicy(self.switch, self, cores, lambda: self.now)
        self.now = 1.0  # later than the first look

    def mean(self, least_seconds: float = 0) -> float:
        return self.busy

    def run(self, kinds: str, passes: int) -> float:
        """Run passes; return the seconds."""
        began = self.now
        for _, kind in zip(range(passes), cycle(kinds), strict=False):
            with self.policy.during(kind, self._threads.get(kind, 2)):
                self.ways.append(self.switch.is_short)
                self.now += next(self.seconds[kind][self.switch.is_short])
        return self.now - began


@contextmanager
def busy_policy() -> Iterator[WaitPolicy]:
    """The real switch, on a machine where a pass with long waits seems to take twice as long."""
    machine = Machine(2.0)
    switch = wait_switch() or FakeSwitch()

    def clock() -> float:
        machine.now += 0.01 if switch.is_short else 0.02
        return machine.now

    policy = WaitPolicy(switch, machine, 2, clock)
    machine.now = 1.0
    try:
        yield policy
    finally:
        switch.make(short=False, threads=2)
