"""Ctrl-C at any place of what surrounds a step: the step ends, and the lock is free."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from threading import Event

import pytest
from fakes.company import FakeContext, Threads, Writer
from fakes.interrupts import each_interrupt

from localspec.engine.scheduler import ScheduledText, Scheduler
from localspec.llama.sequence import sequence_of
from localspec.speculation.passes import Pass, Scores
from localspec.utils.fair_lock import FairLock

FILES = ("engine/scheduler.py", "engine/step_lock.py", "utils/fair_lock.py")


@pytest.fixture(autouse=True)
def _looks_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notification that the interrupt has cut off is not waited for long."""
    monkeypatch.setattr("localspec.utils.fair_lock._LOOK_AGAIN", 0.02)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def what_is_left(scheduler: Scheduler) -> dict[str, object]:
    """What is left of steps and of waiting; empty if nothing is."""
    left = {
        "steps": scheduler._steps,
        "waiting": scheduler._waiting,
        "busy": scheduler._busy,
        "idle": scheduler._idle,
        "arriving": scheduler.arriving,
        "awaited": scheduler._awaited,
        "wait for quiet": scheduler._wait_for_quiet,
        "texts": [text for text in scheduler._texts if text.in_step],
        "lock": scheduler.lock.is_held,
    }
    return {name: value for name, value in left.items() if value}


def require_rest_after_each(scheduler: Scheduler, work: Callable[[], object]) -> set[str]:
    """Interrupt `work` at each place, after which nothing may be left; returns the functions."""
    functions = set()
    for function, line in each_interrupt(work, FILES):
        assert what_is_left(scheduler) == {}, (function, line)
        functions.add(function)
    return functions


def test_a_step_alone(scheduler: Scheduler) -> None:
    text = scheduler.new_text()

    def work() -> None:
        step, nested = text.step(), text.step()
        with step, step, nested, nested:
            pass

    seen = require_rest_after_each(scheduler, work)
    assert {"_TextStep.__enter__", "_TextStep.__exit__", "StepLock.enter", "StepLock.exit"} <= seen


def test_a_pass_beside_others(scheduler: Scheduler) -> None:
    """The other text still gets its own scores, and ends."""
    context = FakeContext()
    mine, other = Writer(scheduler, context), Writer(scheduler, context)

    def work() -> None:
        threads = Threads()
        with ExitStack() as ends:
            ends.callback(threads.join)
            threads.start(other.write, range(5))
            mine.write(range(10, 15))

    seen = require_rest_after_each(scheduler, work)
    assert {"Scheduler.compute", "Scheduler._decode_some", "FairLock.wait"} <= seen


@pytest.mark.parametrize("what", ["exclusive", "between_steps"])
def test_waiting_for_steps(scheduler: Scheduler, what: str) -> None:
    text = scheduler.new_text()

    def hold_a_step(begun: Event, over: Event) -> None:
        step = text.step()
        with step, step:
            begun.set()
            while not (scheduler._wait_for_quiet or scheduler._awaited or over.is_set()):
                scheduler.lock.wait(0.001)

    def work() -> None:
        threads, begun, over = Threads(), Event(), Event()
        with ExitStack() as ends:
            ends.callback(threads.join)
            ends.callback(over.set)
            threads.start(hold_a_step, begun, over)
            assert begun.wait(30)
            with scheduler.exclusive() if what == "exclusive" else text.between_steps():
                assert not text.in_step

    seen = require_rest_after_each(scheduler, work)
    assert {"StepLock.wait", "FairLock._take_again"} <= seen


def test_a_lock_that_is_asked_for() -> None:
    lock = FairLock()

    def work() -> None:
        with lock, lock:
            lock.wait(0)
        assert not lock.is_held

    for place in each_interrupt(work, FILES):
        assert not (lock.is_held or lock._sleeping), place


def test_passes_that_are_computed_again_are_those_of_the_text(scheduler: Scheduler) -> None:
    """A pass without a draft has made its text longer when the interrupt comes behind it."""

    class Growing(FakeContext):
        """Its passes become text, as those of a prompt do."""

        def decode(self, passes: Sequence[Pass]) -> list[Scores]:
            scores = super().decode(passes)
            for each in passes:
                sequence_of(each).tokens += each.tokens
            return scores

    context = Growing()
    mine, other = Writer(scheduler, context), Writer(scheduler, context)

    def work() -> None:
        threads = Threads()
        other.sequence.tokens.clear()
        with ExitStack() as ends:
            ends.callback(threads.join)
            threads.start(other.write, range(5))
            mine.write(range(10, 15))

    shared = 0
    for place in each_interrupt(work, FILES):
        assert other.sequence.tokens == [*range(5)], place
        shared += any(len(each) > 1 for each in context.decodes)
        context.decodes.clear()
    assert shared


def test_a_step_that_is_entered_once_is_caught(scheduler: Scheduler) -> None:
    """Planted: an interrupt at the first instruction of its only exit leaves the step."""
    text: ScheduledText = scheduler.new_text()

    def work() -> None:
        with text.step():
            pass

    with pytest.raises(AssertionError):
        require_rest_after_each(scheduler, work)


def test_a_text_that_was_interrupted_while_it_was_made_is_no_company(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_share = scheduler.rows.new_share

    def interrupted(is_written: Callable[[], bool]) -> None:
        new_share(is_written)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(scheduler.rows, "new_share", interrupted)
        scheduler.new_text()
    text = scheduler.new_text()
    assert not scheduler.rows.beside(text.rows)
