"""Calls that call back, as the library does to log: Ctrl-C in the main thread is never lost."""

import _thread
import ctypes
import sys
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest
from fakes.company import PATIENCE
from fakes.generate_runs import posix
from fakes.interrupts import each_interrupt, one_interrupt

import localspec
from localspec.llama import compute_thread, library
from localspec.llama.compute_thread import shielded
from localspec.llama.model import Model
from localspec.utils.progress import watched

# Logged at the beginning of a call that takes microseconds, where snapshots are restored.
UNSHIELDED = "state_read_meta"


def test_an_interrupt_in_a_callback_is_raised() -> None:
    """ctypes prints and forgets it where the callback is called by the main thread."""
    called = ctypes.CFUNCTYPE(None)(_thread.interrupt_main)
    with pytest.raises(KeyboardInterrupt):
        shielded(called)


@posix
def test_an_interrupt_ends_the_call_and_frees_its_result() -> None:
    ends, freed = list[bool](), list[int]()

    def call() -> int:
        interrupt(lambda: ends)
        return 7

    with one_interrupt() as interrupt, pytest.raises(KeyboardInterrupt):
        shielded(call, stop=lambda: ends.append(True), free=freed.append)
    assert freed == [7]


def test_an_interrupt_that_ends_no_wait_for_a_lock() -> None:
    """As on Windows; and as right before a wait."""
    stopped = threading.Event()

    def call() -> bool:
        _thread.interrupt_main()
        return stopped.wait(PATIENCE)

    ends = list[bool]()
    with pytest.raises(KeyboardInterrupt):
        shielded(call, stop=stopped.set, free=ends.append)
    assert ends == [True]


def test_an_interrupt_anywhere_leaves_nothing_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "main_thread", threading.current_thread)
    made, freed, kept = list[int](), list[int](), list[int]()

    def call() -> int:
        made.append(len(made))
        return made[-1]

    def work() -> None:
        found = shielded(call, free=freed.append)
        kept[:] = [*kept, found]

    places = 0
    for place in each_interrupt(work, ("llama/compute_thread.py",)):
        assert sorted(freed + kept) == made, place
        places += 1
    assert places > 10 and kept and freed


def test_no_thread_is_waited_for_while_the_interpreter_is_torn_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shielded(threading.get_ident) != threading.get_ident()
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    assert shielded(threading.get_ident) == threading.get_ident()


def test_it_leaves_no_dummy_thread() -> None:
    before = threading.enumerate()
    assert shielded(lambda: shielded(lambda: 7)) == 7
    assert threading.enumerate() == before


def test_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from Python 3.12 on at the exit; a process may have as many as it is allowed."""
    start, tries = _thread.start_new_thread, list[int]()

    def refused(*arguments: Any) -> None:
        tries.append(1)
        if len(tries) > 3:
            start(*arguments)
        else:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refused)
    assert shielded(threading.get_ident) == threading.get_ident()
    assert len(tries) == 1


def test_a_model_may_be_closed_while_it_is_freed(
    target_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a signal's handler, which runs while the main thread waits."""
    free, closed = llama_cpp.llama_model_free, list[bool]()

    def closed_again(handle: object) -> None:
        closing = threading.Thread(target=model.close, daemon=True)
        closing.start()
        closing.join(PATIENCE)
        closed.append(not closing.is_alive())
        free(handle)

    model = Model(target_path)
    monkeypatch.setattr(llama_cpp, "llama_model_free", closed_again)
    model.close()
    assert closed == [True]


class MainThreadLines(deque[str]):
    """What is logged in the main thread."""

    def append(self, line: str) -> None:
        """Keep what the main thread logs."""
        if threading.current_thread() is threading.main_thread():
            super().append(line)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Iterator[MainThreadLines]:
    lines = MainThreadLines()
    monkeypatch.setattr(library, "_lines", lines)
    monkeypatch.setattr(lines, "clear", lambda: None, raising=False)
    yield lines


def test_nothing_is_logged_in_the_main_thread(logged: MainThreadLines) -> None:
    """From loading to closing, with a second text, for which the caches grow."""
    with localspec.load(context=256, threads=1) as engine:
        first = engine.stream("a", max_tokens=4, ignore_eos=True)
        next(first)
        with localspec.Session(engine) as session, localspec.Session(engine):
            session.send("b", max_tokens=2).result()
        first.close()
        engine.switch(draft="none")
        engine.switch(draft="auto")
    assert [line for line in logged if UNSHIELDED not in line] == []


def test_a_watcher_sees_the_loading_that_it_asked_for(target_path: Path) -> None:
    seen = list[str]()
    with (
        watched(lambda action, _share: seen.append(action)),
        localspec.load(target_path, draft="none", context=256),
    ):
        pass
    assert f"loading {target_path.name}" in seen


@posix
def test_no_thread_is_started_where_addresses_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by `ulimit -v`: a thread takes many."""
    monkeypatch.setattr(compute_thread, "address_space", lambda: 2**30)
    assert shielded(threading.get_ident) == threading.get_ident()
