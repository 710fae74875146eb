"""Background: work in a thread of its own, read from an event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar
from weakref import finalize

from localspec.engine.loop_mail import mail_of
from localspec.errors import LocalspecError
from localspec.utils.stop_flag import StopFlag

_Item = TypeVar("_Item")
_Value = TypeVar("_Value")

# The thread is at most so many items ahead of its reader.
_AHEAD = 16
# How often a thread that is so far ahead looks whether its event loop still exists.
_LOOK_EVERY = 0.1
_OTHER_LOOP = (
    "this text was begun in another event loop, and can be read in that one only; "
    "read it in one asyncio.run, or begin it again here"
)

# Yields items and returns a value. It is given a function that tells whether to stop.
Work = Callable[[Callable[[], bool]], Generator[_Item, None, _Value]]


@dataclass(slots=True)
class _Last(Generic[_Value]):
    """What follows the last item: the value, or an error; neither if the work was stopped."""

    value: tuple[_Value] | None = None
    error: BaseException | None = None


class Background(AsyncIterator[_Item], Generic[_Item, _Value]):
    """Work in a thread: `async for` reads its items, `await` returns its value.

    The thread starts when the first item is awaited. `aclose`, leaving the `async with`, and
    cancelling a task that waits for an item stop the work within one step, and wait for its end.
    Work whose reader was forgotten, or whose event loop was closed, stops within one step too.
    """

    def __init__(self, work: Work[_Item, _Value]) -> None:
        self._work = work
        self._channel: _Channel[_Item, _Value] | None = None
        self._last: _Last[_Value] | None = None

    def __repr__(self) -> str:
        state = "ended" if self._last else "begun" if self._channel else "not begun"
        return f"<{type(self).__name__}, {state}>"

    async def __anext__(self) -> _Item:
        item = await self._next()
        if item is None:
            raise StopAsyncIteration
        return item[0]

    def __await__(self) -> Generator[Any, None, _Value]:
        return self._value().__await__()

    async def aclose(self) -> None:
        """Stop the work within one step, and wait for its end."""
        if self._channel is None:
            self._last = self._last or _Last()
            return
        self._channel.close()
        if not self._channel.is_of_this_loop:
            await asyncio.to_thread(self._channel.thread.join)
            self._last = self._last or _Last()
        while self._last is None:
            self._take(self._channel, await self._channel.arrived.get())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.aclose()

    async def _value(self) -> _Value:
        while await self._next() is not None:
            pass
        if self._last is None or self._last.value is None:
            raise LocalspecError("this text was stopped before its end")
        return self._last.value[0]

    async def _next(self) -> tuple[_Item] | None:
        """The next item in a tuple; None after the last one. Raises the error of the work."""
        if self._last is not None:
            return None
        channel = self._begun()
        try:
            arrived = await channel.arrived.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if isinstance(arrived, _Last) and arrived.error is not None:
            self._take(channel, arrived)
            raise arrived.error
        return self._take(channel, arrived)

    def _begun(self) -> "_Channel[_Item, _Value]":
        if self._channel is None:
            self._channel = _Channel(asyncio.get_running_loop(), self._work)
            finalize(self, self._channel.stop.set).atexit = False
            self._channel.thread.start()
        elif not self._channel.is_of_this_loop:
            raise LocalspecError(_OTHER_LOOP)
        return self._channel

    def _take(
        self, channel: "_Channel[_Item, _Value]", arrived: "tuple[_Item] | _Last[_Value]"
    ) -> tuple[_Item] | None:
        channel.allowed.release()
        if not isinstance(arrived, _Last):
            return arrived
        self._last = arrived
        # Another task may wait for an item.
        channel.arrived.put_nowait(_Last(arrived.value))
        # It has nothing left to do.
        channel.thread.join()
        return None


class _Channel(Generic[_Item, _Value]):
    """Between a thread and an event loop. The thread does not keep the reader alive."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[_Item, _Value]) -> None:
        self.stop = StopFlag()
        self.allowed = threading.Semaphore(_AHEAD)
        self.arrived: asyncio.Queue[tuple[_Item] | _Last[_Value]] = asyncio.Queue()
        self.thread = threading.Thread(target=self._run, args=(work,), name="localspec-text")
        self._loop = loop
        self._mail = mail_of(loop)

    @property
    def is_of_this_loop(self) -> bool:
        """Whether it belongs to the running event loop."""
        return self._loop is asyncio.get_running_loop()

    def close(self) -> None:
        """Ask the thread to end, and wake it."""
        self.stop.set()
        self.allowed.release()

    def _run(self, work: Work[_Item, _Value]) -> None:
        last = _Last[_Value]()
        try:
            last.value = self._send_all(work(self._stopped))
        except BaseException as error:
            last.error = error
        with suppress(RuntimeError):  # the event loop was closed
            self._send(last, at_once=True)

    def _send_all(self, items: Generator[_Item, None, _Value]) -> tuple[_Value] | None:
        try:
            is_first = True
            while not self._stopped():
                self._send((next(items),), at_once=is_first)
                is_first = False
                while not self.allowed.acquire(timeout=_LOOK_EVERY):
                    if self._stopped():
                        return None
        except StopIteration as end:
            return (end.value,)
        finally:
            items.close()
        return None

    def _send(self, arrived: tuple[_Item] | _Last[_Value], *, at_once: bool) -> None:
        self._mail.send(self.arrived.put_nowait, arrived, at_once=at_once)

    def _stopped(self) -> bool:
        """Whether nobody waits for items any more, as when the interpreter ends."""
        return (
            self.stop.is_set() or self._loop.is_closed() or not threading.main_thread().is_alive()
        )
