"""The clock that leaves out the time in which the process was stopped."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fakes.machine import FakeClock

from localspec.utils import running_clock as module
from localspec.utils.running_clock import RunningClock

posix = pytest.mark.skipif(os.name == "nt", reason="there is no SIGCONT")


@pytest.fixture
def now() -> FakeClock:
    return FakeClock()


@pytest.fixture
def continued() -> Iterator[list[int]]:
    """The numbers of the signals that another handler of SIGCONT got."""
    numbers: list[int] = []
    before = signal.signal(signal.SIGCONT, lambda number, _frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGCONT, before)


def test_what_passed_since_it_was_last_read_is_left_out(now: FakeClock) -> None:
    clock = RunningClock(now)
    now.now = 2.0
    assert clock() == 2.0
    now.now = 3602.0
    clock.leave_out()
    assert clock() == 2.0
    now.now = 3605.0
    assert clock() == 5.0
    now.now = 3606.0
    clock.leave_out()
    now.now = 3607.0
    assert clock() == 6.0


@posix
def test_it_follows_stops_beside_another_handler(now: FakeClock, continued: list[int]) -> None:
    clock = RunningClock(now)
    for _ in range(3):
        clock.follow_stops()
    now.now = 60.0
    signal.raise_signal(signal.SIGCONT)
    assert clock() == 0.0 and continued == [signal.SIGCONT]


@posix
@pytest.mark.usefixtures("continued")
def test_another_thread_lets_the_main_thread_hear_of_a_stop(
    now: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RunningClock(now)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.leave_out()

    monkeypatch.setattr(module.time, "sleep", wait)

    def read() -> list[Any]:
        found: list[float] = []
        thread = threading.Thread(target=lambda: found.append(clock()))
        thread.start()
        thread.join()
        return found

    now.now = 60.0
    assert read() == [60.0] and not waits
    clock.follow_stops()
    now.now = 120.0
    assert read() == [60.0] and len(waits) == 1
    now.now = 120.5
    assert read() == [60.5] and len(waits) == 1
    now.now = 180.0
    assert clock() == 120.0 and len(waits) == 1
