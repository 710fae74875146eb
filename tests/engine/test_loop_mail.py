"""Loop mail: what threads send within some milliseconds wakes the event loop once."""

import asyncio
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest

from localspec.engine.loop_mail import LoopMail, _mails, mail_of


class Wakes:
    """Counts how often an event loop is woken. with_: the functions that it is woken with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.with_: list[Callable[..., object]] = []
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counted(callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
            self.with_.append(callback)
            return wake(callback, *arguments)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)


def test_what_is_sent_together_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> tuple[list[int], list[int], int]:
        mail, wakes = mail_of(asyncio.get_running_loop()), Wakes(monkeypatch)
        arrived, ended = list[int](), asyncio.Event()
        for item in range(8):
            mail.send(arrived.append, item)
        before = list(arrived)
        mail.send(lambda _none: ended.set(), None)
        await ended.wait()
        return before, arrived, len(wakes.with_)

    before, arrived, wakes = asyncio.run(run())
    assert (before, arrived, wakes) == ([], [*range(8)], 1)


def test_what_is_sent_later_wakes_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> int:
        mail, wakes = mail_of(asyncio.get_running_loop()), Wakes(monkeypatch)
        for _ in range(3):
            ended = asyncio.Event()
            mail.send(lambda _none, ended=ended: ended.set(), None)
            await ended.wait()
        return len(wakes.with_)

    assert asyncio.run(run()) == 3


def test_what_is_urgent_takes_along_what_was_sent_before() -> None:
    async def run() -> list[int]:
        mail, arrived = mail_of(asyncio.get_running_loop()), list[int]()
        mail.send(arrived.append, 0)
        mail.send(arrived.append, 1, at_once=True)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return list(arrived)

    assert asyncio.run(run()) == [0, 1]


def test_threads_send_in_their_own_order() -> None:
    async def run() -> list[tuple[int, int]]:
        mail = mail_of(asyncio.get_running_loop())
        arrived, ended = list[tuple[int, int]](), asyncio.Event()

        def take(item: tuple[int, int]) -> None:
            arrived.append(item)
            if len(arrived) == 4000:
                ended.set()

        def send(thread: int) -> None:
            for number in range(1000):
                mail.send(take, (thread, number), at_once=number % 7 == 0)

        threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
        for each in threads:
            each.start()
        async with asyncio.timeout(30):
            await ended.wait()
        return arrived

    arrived = asyncio.run(run())
    for thread in range(4):
        assert [number for sender, number in arrived if sender == thread] == [*range(1000)]


def test_each_loop_has_its_own() -> None:
    async def own() -> LoopMail:
        mail = mail_of(asyncio.get_running_loop())
        assert mail_of(asyncio.get_running_loop()) is mail
        return mail

    assert asyncio.run(own()) is not asyncio.run(own())


def test_a_loop_that_was_closed_is_forgotten_with_what_it_has_not_taken() -> None:
    async def leave(item: object) -> None:
        queue = asyncio.Queue[object]()
        with suppress(TimeoutError):  # a queue knows its loop once somebody has waited
            await asyncio.wait_for(queue.get(), 0.001)
        mail_of(asyncio.get_running_loop()).send(queue.put_nowait, item)

    class Item:
        """What can be asked for."""

    gc.collect()
    before = len(_mails)
    kept = ref(item := Item())
    asyncio.run(leave(item))
    del item
    gc.collect()
    assert kept() is None
    assert len(_mails) == before


def test_a_closed_loop_is_an_error_each_time() -> None:
    loop = asyncio.new_event_loop()
    mail = mail_of(loop)
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            mail.send(print, None)


def test_what_an_interrupt_has_left_is_delivered() -> None:
    def interrupt(_item: object) -> None:
        raise KeyboardInterrupt

    loop = asyncio.new_event_loop()
    try:
        mail, arrived = mail_of(loop), list[int]()
        mail.send(interrupt, None)
        mail.send(arrived.append, 1, at_once=True)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.sleep(1))
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
    assert arrived == [1]


def test_an_interrupt_that_cuts_off_the_delivery_delays_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a notebook runs the same loop again."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def send(mail: LoopMail, items: list[int]) -> list[int]:
        arrived = list[int]()
        for item in items:
            mail.send(arrived.append, item)
            await asyncio.sleep(0.02)
        return arrived

    loop = asyncio.new_event_loop()
    try:
        mail = mail_of(loop)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(mail, "_await_others", interrupt)
            loop.run_until_complete(send(mail, [0]))
        arrived = loop.run_until_complete(send(mail, [1, 2, 3, 4]))
    finally:
        loop.close()
    assert arrived == [1, 2, 3, 4]
