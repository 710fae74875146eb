"""The compute thread: computes for all threads once it is started, and is never left computing."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from time import sleep

import numpy as np
import pytest
from fakes.interrupts import each_interrupt

from localspec.llama import compute_thread
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence

TEXT = [5, 6, 7, 8, 9]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compute_thread, "_threads", [])
    compute_thread.start()
    compute_thread.start()
    [thread] = compute_thread._threads
    yield
    thread.shutdown()


def test_without_it_the_calling_thread_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute_thread, "_threads", [])
    assert compute_thread.run(threading.get_ident) == threading.get_ident()


@pytest.mark.usefixtures("started")
def test_one_thread_computes_for_all() -> None:
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(compute_thread.run(threading.get_ident)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*found} == {compute_thread.run(threading.get_ident)}
    assert threading.get_ident() not in found


@pytest.mark.usefixtures("started")
def test_a_thread_that_outlives_the_main_one_computes_itself() -> None:
    """Thread pools end before the other threads of a program do."""
    [thread] = compute_thread._threads
    thread.shutdown()
    assert compute_thread.run(threading.get_ident) == threading.get_ident()


@pytest.mark.usefixtures("started")
def test_an_error_is_raised_where_the_computation_was_asked_for() -> None:
    def fails() -> None:
        raise ValueError("spoilt")

    with pytest.raises(ValueError, match="spoilt"):
        compute_thread.run(fails)


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("_again", range(20))
def test_an_interrupt_waits_for_the_end_of_the_computation(_again: int) -> None:
    begun, ended = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        sleep(0.05)
        ended.set()

    main = threading.get_ident()

    def interrupt() -> None:
        begun.wait(10)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(main), ctypes.py_object(KeyboardInterrupt)
        )

    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        compute_thread.run(long)
        other.join()
    assert ended.is_set()
    other.join()


def test_it_computes_the_same(
    make_context: Callable[..., KVSequence],
    target_model: Model,
    request: pytest.FixtureRequest,
) -> None:
    before = make_context(target_model, threads=2).extend(TEXT).copy()
    request.getfixturevalue("started")
    assert np.array_equal(make_context(target_model, threads=2).extend(TEXT), before)


@pytest.fixture
def own() -> Iterator[compute_thread.OwnThread]:
    thread = compute_thread.OwnThread()
    yield thread
    thread.close()


@pytest.mark.usefixtures("started")
def test_a_thread_of_its_own_computes_beside_the_others(own: compute_thread.OwnThread) -> None:
    begun, both = threading.Event(), threading.Event()

    def first() -> int:
        begun.set()
        assert both.wait(10)
        # It does not wait for itself.
        return compute_thread.run(threading.get_ident, own)

    task = own.task(first)
    task.submit()
    assert begun.wait(10)
    others = compute_thread.run(threading.get_ident)
    both.set()
    assert others != task.result() == compute_thread.run(threading.get_ident, own)
    assert not own.is_current


def test_a_task_runs_once_and_tells_what_went_wrong(own: compute_thread.OwnThread) -> None:
    runs: list[int] = []

    def fails() -> None:
        runs.append(1)
        raise ValueError("spoilt")

    task = own.task(fails)
    task.submit()
    task.submit()
    task.wait()
    with pytest.raises(ValueError, match="spoilt"):
        task.result()
    assert own.task(lambda: len(runs)).result() == 1


def test_a_thread_that_has_ended_is_done_without(own: compute_thread.OwnThread) -> None:
    own.close()
    assert compute_thread.run(threading.get_ident, own) == threading.get_ident()


def test_an_interrupt_of_what_comes_before_waiting_ends_nothing_early(
    own: compute_thread.OwnThread,
) -> None:
    """The thread is told to end, and waited for, before the interrupt is raised."""
    is_done, ended, told = threading.Event(), threading.Event(), 0

    def until_told() -> None:
        is_done.wait(10)
        ended.set()

    def tell() -> None:
        nonlocal told
        told += 1
        if told == 1:
            raise KeyboardInterrupt
        is_done.set()

    task = own.task(until_told)
    task.submit()
    with pytest.raises(KeyboardInterrupt):
        task.wait(tell)
    assert ended.is_set() and told == 2


def test_an_interrupt_anywhere_leaves_the_thread_working(own: compute_thread.OwnThread) -> None:
    """Also in Python's own code, whose locks would stay locked for the next computation."""
    files = ("llama/compute_thread.py", "concurrent/futures/thread.py", "threading.py")

    def compute() -> None:
        told: list[bool] = []
        task = own.task(threading.get_ident)
        task.submit()
        task.wait(lambda: told.append(True))
        assert compute_thread.run(threading.get_ident, own) == task.result() and told

    assert len([*each_interrupt(compute, files)]) > 10
