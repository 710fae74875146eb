"""FairLock: first come, first served; reentrant; an interrupted thread leaves the queue."""

import threading
from time import monotonic, sleep

import pytest

from localspec.utils.fair_lock import FairLock


def waiting(lock: FairLock, count: int) -> None:
    """Wait until so many threads wait for the lock."""
    until = monotonic() + 30
    while len(lock._waiting) != count:
        assert monotonic() < until
        sleep(0.001)


def test_threads_get_it_in_the_order_of_asking() -> None:
    lock, order = FairLock(), list[int]()

    def ask(number: int) -> None:
        with lock:
            order.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    with lock:
        for count, thread in enumerate(threads, start=1):
            thread.start()
            waiting(lock, count)
    # The lock belongs to the first of them already, and this thread is the last to ask.
    with lock:
        order.append(8)
    for thread in threads:
        thread.join()
    assert order == [*range(9)]


def test_its_owner_may_enter_again() -> None:
    lock, entered = FairLock(), threading.Event()

    def ask() -> None:
        with lock:
            entered.set()

    with lock:
        with lock:
            thread = threading.Thread(target=ask)
            thread.start()
            waiting(lock, 1)
        assert not entered.wait(0.05)
    thread.join()
    assert entered.is_set()


def test_an_interrupted_thread_leaves_the_queue() -> None:
    class Interrupted(Exception):
        """What a signal's handler raises in the thread that waits."""

    class Turn:
        """The turn of the thread that asked before: to wait for it is interrupted."""

        def __enter__(self) -> None:
            raise Interrupted

        def __exit__(self, *_exc: object) -> None:
            """It was never entered."""

    lock, release = FairLock(), threading.Event()
    held = threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    lock._last_turn = Turn()  # type: ignore[assignment]
    with pytest.raises(Interrupted):
        lock.__enter__()
    assert not lock._waiting
    release.set()
    thread.join()
    with lock:
        pass
