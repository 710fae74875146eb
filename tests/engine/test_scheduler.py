"""Scheduler: which passes share a decode, and that nobody waits for ever."""

import gc
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import perf_counter, sleep
from weakref import ref

import pytest
from fakes.company import PATIENCE, FakeContext, FakeSequence, Threads, Writer, run_together
from fakes.machine import FakeClock

from localspec.engine import scheduler as scheduler_module
from localspec.engine.pass_request import PassRequest
from localspec.engine.scheduler import Scheduler
from localspec.errors import LocalspecError
from localspec.speculation.aside import Aside
from localspec.speculation.passes import Pass, Scores
from localspec.utils.fair_lock import FairLock

REPEATED = range(8)
TEXTS = 4


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The scheduler's, which only decodes set forward."""
    clock = FakeClock()
    monkeypatch.setattr(scheduler_module, "running_clock", clock)
    return clock


def at_rest(scheduler: Scheduler) -> bool:
    """Whether nothing is left of any step."""
    return not (scheduler._waiting or scheduler._busy or scheduler._steps)


def write_together(
    scheduler: Scheduler, context: FakeContext, rows: list[int], steps: int = 20
) -> list[Writer]:
    """Texts whose passes have so many rows, each written by a thread."""
    writers = [Writer(scheduler, context) for _ in rows]

    def write(number: int) -> None:
        writers[number].write([100 * number + step for step in range(steps)], rows[number])

    run_together(scheduler.lock, len(rows), write)
    assert at_rest(scheduler)
    return writers


@pytest.mark.parametrize("_again", REPEATED)
def test_texts_share_decodes_and_each_gets_its_own_scores(
    scheduler: Scheduler, _again: int
) -> None:
    context = FakeContext(seconds=0.001)
    write_together(scheduler, context, [1] * TEXTS, steps=30)
    assert len(context.decodes) < 0.7 * TEXTS * 30
    assert context.rows == TEXTS * 30


def test_texts_are_told_how_many_shared_their_decode(scheduler: Scheduler) -> None:
    context = FakeContext(seconds=0.001, splits_unequal=True)
    writers = write_together(scheduler, context, [1, 1, 1, 2])
    told = [texts for writer in writers for texts in writer.texts]
    assert sorted(told) == sorted(len(each) for each in context.decodes for _ in each)
    assert set(writers[3].texts) == {1}


def test_a_text_beside_many_rows_of_others_is_told_none(scheduler: Scheduler) -> None:
    narrow, wide = write_together(scheduler, FakeContext(seconds=0.001), [1, 3])
    assert set(narrow.texts) <= {0, 1}
    assert set(wide.texts) <= {1, 2}


def test_each_text_pays_for_its_rows(scheduler: Scheduler, clock: FakeClock) -> None:
    context = FakeContext(seconds=8.0, clock=clock)
    texts = [PassRequest(Pass(FakeSequence(context), [7] * rows)) for rows in (1, 3)]  # type: ignore[arg-type]
    scheduler._waiting = {threading.Thread(): text for text in texts}
    scheduler._decode_some()
    assert [each.seconds for each in texts] == [2.0, 6.0]


def test_passes_of_small_models_do_not_keep_a_large_one_waiting(scheduler: Scheduler) -> None:
    """A step of a text may draft with many passes, in which those of another may not wait."""
    large, small = FakeContext(size=100), FakeContext(size=10)
    waits, drafts = Writer(scheduler, large), Writer(scheduler, small)
    threads, before = Threads(), list[int]()

    def write() -> None:
        with waits.scheduled.step():
            waits.compute(1)
            before.append(small.rows)

    with drafts.scheduled.step():
        threads.start(write)
        while not scheduler._waiting:
            scheduler.lock.wait(0.001)
        for _ in range(50):
            drafts.compute(2, rows=32)
    threads.join()
    assert before == [256]


def test_scores_are_read_before_the_next_decode(scheduler: Scheduler) -> None:
    """However long that takes one of the texts."""
    context, readings = FakeContext(), (0.0, 0.0, 0.004)
    writers = [Writer(scheduler, context) for _ in readings]

    def write(number: int) -> None:
        writers[number].write(range(100 * number, 100 * number + 20), 1, readings[number])

    run_together(scheduler.lock, len(writers), write)
    assert any(len(decode) > 1 for decode in context.decodes)


def test_a_decode_waits_for_threads_that_wait_for_the_lock(scheduler: Scheduler) -> None:
    """Where reading the scores of all texts takes longer than a decode."""
    context = FakeContext(seconds=0.001)
    writers = [Writer(scheduler, context) for _ in range(TEXTS)]

    def write(number: int) -> None:
        writers[number].write(range(100 * number, 100 * number + 20), 1, 0.002)

    run_together(scheduler.lock, TEXTS, write)
    assert len(context.decodes) < 0.4 * TEXTS * 20


def test_a_decode_holds_what_fits(scheduler: Scheduler) -> None:
    context = FakeContext(most_rows=8, seconds=0.001)
    write_together(scheduler, context, [3, 3, 3, 5])
    assert max(len(decode) for decode in context.decodes) == 2


@pytest.mark.parametrize("splits", [True, False])
def test_passes_of_unequal_rows(scheduler: Scheduler, splits: bool) -> None:
    """Where the library would compute them apart anyway, they have decodes of their own."""
    context = FakeContext(splits_unequal=splits, seconds=0.001)
    write_together(scheduler, context, [1, 1, 4, 4])
    mixed = [decode for decode in context.decodes if len({rows for _, rows in decode}) > 1]
    assert bool(mixed) != splits
    assert any(len(decode) > 1 for decode in context.decodes)


@pytest.mark.parametrize("offloaded", [True, False])
def test_wide_passes_and_narrow_ones(scheduler: Scheduler, offloaded: bool) -> None:
    """On a CPU they have other digits together than alone."""
    context = FakeContext(is_offloaded=offloaded, seconds=0.001)
    write_together(scheduler, context, [1, 2, 64, 100])
    kinds = [{rows >= 64 for _, rows in decode} for decode in context.decodes]
    assert any(len(kind) == 2 for kind in kinds) == offloaded
    assert any(len(decode) > 1 for decode in context.decodes)


def test_contexts_have_decodes_of_their_own_and_small_models_come_first(
    scheduler: Scheduler,
) -> None:
    """Texts that draft with a small model then reach the target together."""
    large, small = FakeContext(size=100, seconds=0.002), FakeContext(size=10)
    pairs = [(Writer(scheduler, large), Writer(scheduler, small)) for _ in range(3)]

    def write(number: int) -> None:
        target, drafter = pairs[number]
        for step in range(20):
            with target.scheduled.step():
                for token in range(number):
                    requested = scheduler_module.Pass(drafter.sequence, [token])  # type: ignore[arg-type]
                    target.scheduled.compute(requested)
                target.compute(100 * number + step)

    run_together(scheduler.lock, 3, write)
    together = [decode for decode in large.decodes if len(decode) == 3]
    assert len(together) >= 10


# Faults.


@pytest.mark.parametrize("poison", [-1, -2])
@pytest.mark.parametrize("_again", REPEATED)
def test_a_fault_reaches_its_own_text_only(scheduler: Scheduler, poison: int, _again: int) -> None:
    context, threads = FakeContext(seconds=0.001), Threads()
    writers = [Writer(scheduler, context) for _ in range(TEXTS)]
    for number, writer in enumerate(writers):
        tokens = [100 * number + step for step in range(20)]
        if number == 2:
            tokens[10] = poison
        threads.start(writer.write, tokens)
    with pytest.raises((LocalspecError, ValueError), match=r"refused|a mistake"):
        threads.join()
    assert len(threads.errors) == 1
    assert [writer.steps for writer in writers] == [20, 20, 10, 20]
    assert at_rest(scheduler)


@pytest.mark.parametrize("_again", REPEATED)
def test_an_interrupt_ends_one_text_only(scheduler: Scheduler, _again: int) -> None:
    """It ends the text of the thread that computes, whoever's pass it is; the others try again."""
    context, threads = FakeContext(seconds=0.001), Threads()
    writers = [Writer(scheduler, context) for _ in range(TEXTS)]
    decode, left = context.decode, [1]

    def interrupted(passes: object) -> object:
        if len(context.decodes) == 10 and left:
            left.pop()
            raise KeyboardInterrupt
        return decode(passes)  # type: ignore[arg-type]

    context.decode = interrupted  # type: ignore[assignment, method-assign]
    for number, writer in enumerate(writers):
        threads.start(writer.write, [100 * number + step for step in range(20)])
    with pytest.raises(KeyboardInterrupt):
        threads.join()
    assert len(threads.errors) == 1
    assert sorted(writer.steps for writer in writers)[1:] == [20] * 3
    assert at_rest(scheduler)


@pytest.mark.parametrize("_again", REPEATED)
def test_a_thread_that_fails_in_a_step_keeps_nobody_waiting(
    scheduler: Scheduler, _again: int
) -> None:
    context, threads = FakeContext(seconds=0.001), Threads()
    writers = [Writer(scheduler, context) for _ in range(3)]

    def fail() -> None:
        writers[0].write(range(5))
        with writers[0].scheduled.step():
            writers[0].compute(7)
            raise ZeroDivisionError

    threads.start(fail)
    for number in (1, 2):
        threads.start(writers[number].write, range(100 * number, 100 * number + 30))
    with pytest.raises(ZeroDivisionError):
        threads.join()
    assert [writer.steps for writer in writers] == [5, 30, 30]
    assert at_rest(scheduler)


def test_a_text_interrupted_while_it_waits(scheduler: Scheduler) -> None:
    """Ctrl-C reaches the main thread, which waits for a text that computes something long."""
    context, threads = FakeContext(), Threads()
    mine, other = Writer(scheduler, context), Writer(scheduler, context)
    waits = threading.Event()

    def long_step() -> None:
        with other.scheduled.step():
            while not scheduler._waiting:
                # The lock is free while others wait, so the step lets it go now and then.
                scheduler.lock.wait(0.005)
            os.kill(os.getpid(), signal.SIGINT)
            waits.set()
            sleep(0.05)
            other.compute(5)
        other.write(range(10))

    threads.start(long_step)
    while not other.scheduled.in_step:
        sleep(0.001)
    with pytest.raises(KeyboardInterrupt), mine.scheduled.step():
        mine.compute(3)
    assert waits.is_set()
    threads.join()
    assert other.steps == 10
    mine.write(range(3))
    assert at_rest(scheduler)


def test_a_text_removed_while_others_wait(scheduler: Scheduler) -> None:
    context, threads = FakeContext(seconds=0.001), Threads()
    stays, goes = Writer(scheduler, context), Writer(scheduler, context)

    def leave() -> None:
        goes.write(range(5))
        scheduler.remove(goes.scheduled)

    threads.start(stays.write, range(100, 140))
    threads.start(leave)
    threads.join()
    assert scheduler.rows._shares == [stays.scheduled.rows]
    began, stays.scheduled.rows.texts = perf_counter(), 2
    stays.write(range(20))
    assert perf_counter() - began < PATIENCE / 2
    assert stays.texts[-20:] == [1] * 20
    assert at_rest(scheduler)


# Taking turns.


@pytest.mark.parametrize("_again", REPEATED)
def test_exclusive_comes_between_steps(scheduler: Scheduler, _again: int) -> None:
    """While it holds the lock, no text is in a step; afterwards all go on."""
    context, threads = FakeContext(seconds=0.001), Threads()
    writers = [Writer(scheduler, context) for _ in range(3)]
    quiet = []

    def change() -> None:
        for _ in range(5):
            with scheduler.exclusive():
                before = len(context.decodes)
                sleep(0.002)
                quiet.append(
                    len(context.decodes) == before
                    and not any(each.scheduled.in_step for each in writers)
                )

    for number, writer in enumerate(writers):
        threads.start(writer.write, range(100 * number, 100 * number + 30))
    for _ in range(2):
        threads.start(change)
    threads.join()
    assert quiet == [True] * 10
    assert [writer.steps for writer in writers] == [30] * 3
    assert at_rest(scheduler)


@pytest.mark.parametrize("_again", REPEATED)
def test_exclusive_inside_a_step(scheduler: Scheduler, _again: int) -> None:
    """A drafter may open a session: its thread does not keep the others from ending their steps."""
    context, threads = FakeContext(seconds=0.001), Threads()
    opens, other = Writer(scheduler, context), Writer(scheduler, context)

    def open_in_step() -> None:
        for step in range(10):
            with opens.scheduled.step():
                with scheduler.exclusive():
                    assert not other.scheduled.in_step
                opens.compute(step)

    threads.start(open_in_step)
    threads.start(other.write, range(100, 130))
    threads.join()
    assert at_rest(scheduler)


def test_exclusive_inside_steps_of_two_texts(scheduler: Scheduler) -> None:
    """Neither waits for the step of the other, in which that one waits for this one."""
    context, threads = FakeContext(seconds=0.001), Threads()
    writers = [Writer(scheduler, context) for _ in range(3)]
    begun, inside = set[Writer](), [0]

    def write(writer: Writer) -> None:
        with writer.scheduled.step():
            begun.add(writer)
            while len(begun) < 3:
                scheduler.wait(0.01)
            if writer is not writers[2]:
                with scheduler.exclusive():
                    inside[0] += 1
                    assert inside[0] == 1 and not writers[2].scheduled.in_step
                    sleep(0.002)
                    inside[0] -= 1
            writer.compute(1)

    for each in writers:
        threads.start(write, each)
    threads.join()
    assert at_rest(scheduler)


def test_exclusive_waits_for_steps_that_have_begun_only(scheduler: Scheduler) -> None:
    """A step inside one of them begins, another waits."""
    context, threads, order = FakeContext(), Threads(), list[str]()
    outer, inner, later = (Writer(scheduler, context) for _ in range(3))

    def change() -> None:
        with scheduler.exclusive():
            order.append("change")

    def write_later() -> None:
        with later.scheduled.step():
            order.append("later")

    with outer.scheduled.step():
        threads.start(change)
        while not scheduler._wait_for_quiet:
            scheduler.lock.wait(0.001)
        threads.start(write_later)
        scheduler.lock.wait(0.05)
        inner.write([1, 2])
        order.append("inner")
    threads.join()
    assert order == ["inner", "change", "later"]


def test_a_step_that_waits_lets_the_others_compute(scheduler: Scheduler) -> None:
    context, threads = FakeContext(), Threads()
    opens, other = Writer(scheduler, context), Writer(scheduler, context)
    with opens.scheduled.step():
        threads.start(other.write, [1])
        while not scheduler._waiting:
            scheduler.lock.wait(0.001)
        with scheduler.exclusive():
            assert other.steps == 1 or not other.scheduled.in_step
    threads.join()


def test_an_interrupt_before_a_step_leaves_the_lock_free(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_step: object) -> None:
        raise KeyboardInterrupt

    text = scheduler.new_text()
    monkeypatch.setattr(scheduler, "enter", interrupted)
    with pytest.raises(KeyboardInterrupt), text.step():
        pass
    assert not scheduler.lock.is_held


def test_exclusive_outside_steps_waits_for_all_steps(scheduler: Scheduler) -> None:
    """Also for that of a thread which has asked for the same within it, and has it first."""
    context, threads = FakeContext(seconds=0.001), Threads()
    nested, other = (Writer(scheduler, context) for _ in range(2))
    begun, asked, had = set[Writer](), list[str](), list[str]()

    def write(writer: Writer) -> None:
        with writer.scheduled.step():
            begun.add(writer)
            while not asked:
                scheduler.wait(0.01)
            if writer is nested:
                asked.append("in a step")
                with scheduler.exclusive():
                    had.append("in a step")
            while len(asked) < 2:
                scheduler.wait(0.01)
            scheduler.wait(0.05)
            writer.compute(1)

    def outside() -> None:
        with scheduler.lock:
            while len(begun) < 2:
                scheduler.wait(0.01)
            asked.append("outside")
        with scheduler.exclusive():
            assert not nested.scheduled.in_step and not other.scheduled.in_step
            had.append("outside")

    threads.start(outside)
    for each in (nested, other):
        threads.start(write, each)
    threads.join()
    assert had == ["in a step", "outside"]
    assert at_rest(scheduler)


def test_a_text_written_inside_a_step_of_another(scheduler: Scheduler) -> None:
    """A drafter may generate with a session of its own, beside other texts."""
    context, threads = FakeContext(seconds=0.001), Threads()
    outer, inner, other = (Writer(scheduler, context) for _ in range(3))

    def nested() -> None:
        for step in range(10):
            with outer.scheduled.step():
                inner.write([200 + step])
                outer.compute(step)

    threads.start(nested)
    threads.start(other.write, range(100, 130))
    threads.join()
    assert (inner.steps, other.steps) == (10, 30)
    assert at_rest(scheduler)


def test_two_threads_of_one_text_take_turns(scheduler: Scheduler) -> None:
    context, threads = FakeContext(seconds=0.001), Threads()
    writer, inside = Writer(scheduler, context), [0]
    Writer(scheduler, context)  # a text alone would hold the lock throughout

    def write(first: int) -> None:
        for token in range(first, first + 20):
            with writer.scheduled.step():
                inside[0] += 1
                assert inside[0] == 1
                writer.compute(token)
                inside[0] -= 1

    for first in (0, 100, 200):
        threads.start(write, first)
    threads.join()
    assert at_rest(scheduler)


def test_a_slow_reader_does_not_stop_the_others(scheduler: Scheduler) -> None:
    context, threads = FakeContext(seconds=0.0005), Threads()
    slow, quick = Writer(scheduler, context), Writer(scheduler, context)
    counts: list[int] = []

    def read_slowly() -> None:
        for token in range(4):
            slow.write([token])
            sleep(0.3)
            counts.append(quick.steps)

    def write_until_read() -> None:
        while len(counts) < 4:
            quick.write([100])

    threads.start(write_until_read)
    threads.start(read_slowly)
    threads.join()
    assert counts[-1] > 100


@pytest.mark.parametrize(
    ("away", "waited"), [(0.0, 0.025), (0.021, 0.067), (0.05, 0.1), (0.3, 0.0)]
)
def test_a_decode_waits_for_a_reader_who_comes_back_soon(
    scheduler: Scheduler,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    away: float,
    waited: float,
) -> None:
    """Somewhat longer than the reader is usually away, but a tenth of a decode at most."""
    context, waits = FakeContext(seconds=1.0, clock=clock), list[float]()
    read, other = Writer(scheduler, context), Writer(scheduler, context)
    for token in range(40):
        clock.now += away
        read.write([token])

    def wait(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    monkeypatch.setattr(scheduler.lock, "wait", wait)
    other.write([1])
    assert sum(waits) == pytest.approx(waited, abs=0.001)


def test_a_prompt_is_read_in_small_parts_beside_a_text_whose_reader_has_just_left(
    scheduler: Scheduler, clock: FakeClock
) -> None:
    reader, other = (Writer(scheduler, FakeContext(seconds=1.0, clock=clock)) for _ in range(2))
    other.write([1])
    assert reader.scheduled.chunk(2048) == 128
    clock.now += 10
    assert reader.scheduled.chunk(2048) == 2048


def test_who_waits_for_a_step_of_another_thread(scheduler: Scheduler, clock: FakeClock) -> None:
    """Whoever wants to close its text; and a text without room, however long the step takes."""
    threads, text, order = Threads(), scheduler.new_text(), list[str]()

    def long_step() -> None:
        text.begin()
        with text.step():
            clock.now += 60
            scheduler.wait(0.05)
            order.append("step")

    with scheduler.lock:
        threads.start(long_step)
        while not text.in_step:
            scheduler.wait(0.001)
        assert text.goes_on(10)
        with text.between_steps():
            order.append("between")
            assert text.goes_on(10)
            clock.now += 11
            assert not text.goes_on(10)
    threads.join()
    assert order == ["step", "between"]


def test_a_long_prompt_lets_a_text_go_on(scheduler: Scheduler) -> None:
    """Between two of its steps, few rows of a prompt are computed."""
    context, threads = FakeContext(seconds=0.002), Threads()
    reader, writer = Writer(scheduler, context), Writer(scheduler, context)
    waited: list[int] = []
    written, done = threading.Event(), threading.Event()

    def read() -> None:
        assert written.wait(PATIENCE)
        rows = 4000
        while rows > 0:
            with reader.scheduled.step():
                chunk = min(rows, 512, reader.scheduled.chunk())
                reader.compute(100, chunk)
            rows -= chunk
        done.set()

    def write() -> None:
        while not done.is_set():
            with writer.scheduled.step():
                before = context.rows
                writer.compute(1)
                waited.append(context.rows - before - 1)
            if len(waited) == 10:
                written.set()

    threads.start(write)
    threads.start(read)
    threads.join()
    assert max(waited) <= 256
    assert len(waited) > 20


@pytest.mark.parametrize(("seconds", "most"), [(0.2, 128), (0.05, 256), (0.001, 512)])
def test_a_text_that_begins_waits_for_a_quick_prompt_pass(
    scheduler: Scheduler, clock: FakeClock, seconds: float, most: int
) -> None:
    """Also where no other text is written, a prompt is read in passes of a tenth of a second."""
    context = FakeContext(seconds=seconds, clock=clock)
    reader = Writer(scheduler, context)
    assert reader.scheduled.chunk() > 512, "nobody else can begin"
    other = Writer(scheduler, context)
    assert reader.scheduled.chunk() == 128, "nothing is known yet"
    assert other.steps == 0
    for number in range(3):
        with reader.scheduled.step():
            reader.compute(number, min(512, reader.scheduled.chunk()))
    assert min(512, reader.scheduled.chunk()) == most
    assert reader.scheduled.chunk(2048) == 2048, "it was chosen, and nobody else writes"


def test_other_texts_know_who_reads_a_prompt(scheduler: Scheduler) -> None:
    """While it waits for its decode, and not longer."""
    context, known = FakeContext(), list[list[bool]]()
    reader, other = Writer(scheduler, context), Writer(scheduler, context)
    decode = context.decode

    def noted(passes: object) -> object:
        known.append([each.reading for each in other.scheduled.rows.others])
        return decode(passes)  # type: ignore[arg-type]

    context.decode = noted  # type: ignore[assignment, method-assign]
    for number in range(3):
        with reader.scheduled.step():
            reader.compute(number, min(128, reader.scheduled.chunk()))
    assert known == [[True]] * 3
    with reader.scheduled.step():
        reader.compute(5)
        assert not other.scheduled.rows.others[0].reading


def test_the_waiting_is_not_the_text_s_own_time(scheduler: Scheduler) -> None:
    """Each text's clock shows its part of the decodes; together these are the decodes' time."""
    context = FakeContext(seconds=0.03)
    writers = [Writer(scheduler, context) for _ in range(3)]
    spent = [0.0] * 3
    began = perf_counter()

    def write(number: int) -> None:
        clock = writers[number].scheduled.clock
        before = clock()
        writers[number].write(range(100 * number, 100 * number + 10))
        spent[number] = clock() - before

    run_together(scheduler.lock, 3, write)
    decodes = len(context.decodes) * 0.03
    assert decodes * 0.9 < sum(spent) < perf_counter() - began + decodes


class Refuses(FakeContext):
    """Computes nothing."""

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        raise LocalspecError("refused")


def test_an_error_keeps_nothing_alive(scheduler: Scheduler) -> None:
    """What its reader has left open is given back at once, without the garbage collector."""
    writer, _other = Writer(scheduler, Refuses()), scheduler.new_text()

    def write() -> None:
        left_open = Threads()
        seen.append(ref(left_open))
        writer.write([1])

    seen: list[ref[Threads]] = []
    gc.disable()
    try:
        with suppress(LocalspecError):
            write()
        assert [each() for each in seen] == [None]
    finally:
        gc.enable()


# Mistakes planted in the code.


def test_a_decode_beside_unread_scores_is_caught(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_again = FairLock._take_again

    def late(self: FairLock, held: list[object]) -> None:
        sleep(0.002)
        take_again(self, held)

    # Who waits comes late to its scores, which does no harm as long as that is waited for.
    monkeypatch.setattr(FairLock, "_take_again", late)
    test_scores_are_read_before_the_next_decode(scheduler)
    monkeypatch.setattr(Scheduler, "_busy", property(lambda self: set()))
    monkeypatch.setattr("fakes.company.PATIENCE", 1.0)
    with pytest.raises(AssertionError):
        test_scores_are_read_before_the_next_decode(scheduler)


def hands_to_the_wrong_text(decode: Callable[..., list[object]]) -> Callable[..., list[object]]:
    return lambda self, passes: decode(self, passes)[::-1]


def test_scores_of_another_text_are_caught(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeContext, "decode", hands_to_the_wrong_text(FakeContext.decode))
    with pytest.raises(AssertionError):
        write_together(scheduler, FakeContext(seconds=0.001), [1] * TEXTS)


class Aware(FakeContext):
    """A context whose decodes last until what texts left for them is done. left: at most so many.

    threads: those that did it.
    """

    def __init__(self, left: int) -> None:
        super().__init__()
        self.done = threading.Semaphore(0)
        self.threads = set[threading.Thread | int]()
        self._left = left

    def work(self) -> None:
        self.threads.add(threading.get_ident())
        self.done.release()

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        for _ in [each for each in passes if each.aside][: self._left]:
            assert self.done.acquire(timeout=PATIENCE)
        return super().decode(passes)


def leave(writer: Writer, context: Aware, work: Callable[[], object]) -> Aside:
    """Compute a pass that leaves some work until then."""
    aside = Aside(work)
    step = writer.scheduled.step()
    with step, step:
        writer.scheduled.compute(Pass(writer.sequence, [7], aside=aside))  # type: ignore[arg-type]
        aside.end()
    return aside


def test_what_texts_leave_is_done_while_their_decode_computes(scheduler: Scheduler) -> None:
    context, own = Aware(TEXTS), list[int]()
    writers = [Writer(scheduler, context) for _ in range(TEXTS)]  # type: ignore[arg-type]

    def write(number: int) -> None:
        own.append(threading.get_ident())
        for _ in range(5):
            leave(writers[number], context, context.work)

    run_together(scheduler.lock, TEXTS, write)
    assert at_rest(scheduler)
    assert len(context.threads) == 1 and not context.threads & {*own}


def test_what_was_left_too_late_is_done_by_its_own_text(scheduler: Scheduler) -> None:
    """The decode ends when one of them is done; the first one holds the others up until then."""
    context = Aware(1)
    writers = [Writer(scheduler, context) for _ in range(2)]  # type: ignore[arg-type]
    counts = [0, 0]

    def write(number: int) -> None:
        def work() -> None:
            counts[number] += 1
            context.work()

        for _ in range(20):
            leave(writers[number], context, work)

    run_together(scheduler.lock, 2, write)
    assert at_rest(scheduler) and counts == [20, 20]


def test_an_error_in_what_a_text_leaves_is_its_own(scheduler: Scheduler) -> None:
    context, errors = Aware(TEXTS), list[int]()
    writers = [Writer(scheduler, context) for _ in range(TEXTS)]  # type: ignore[arg-type]

    def write(number: int) -> None:
        def work() -> None:
            context.work()
            if number == 1:
                raise ValueError("a mistake")

        for _ in range(5):
            try:
                leave(writers[number], context, work)
            except ValueError:
                errors.append(number)

    run_together(scheduler.lock, TEXTS, write)
    assert at_rest(scheduler) and errors == [1] * 5


def test_where_no_thread_can_be_started_texts_do_it_themselves(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(scheduler_module, "OwnThread", refuse)
    context, done = Aware(0), list[int]()
    writers = [Writer(scheduler, context) for _ in range(2)]  # type: ignore[arg-type]

    def write(number: int) -> None:
        for _ in range(5):
            leave(writers[number], context, lambda: done.append(number))

    run_together(scheduler.lock, 2, write)
    assert sorted(done) == [0] * 5 + [1] * 5


def test_the_thread_ends_with_its_engine(scheduler: Scheduler) -> None:
    context = Aware(2)
    writers = [Writer(scheduler, context) for _ in range(2)]  # type: ignore[arg-type]
    run_together(scheduler.lock, 2, lambda number: leave(writers[number], context, context.work))
    assert (thread := scheduler._aside) and thread._work.ident in context.threads
    scheduler.end_thread()
    assert thread._work.ident is None
    scheduler.end_thread()
