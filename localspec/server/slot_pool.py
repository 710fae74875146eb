"""SlotPool: which request writes on which slot, and which requests wait."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter

from localspec.engine.engine import Engine
from localspec.engine.slot import Slot
from localspec.errors import LocalspecError, ModelLoadError
from localspec.llama.cached_text import LEAST_SAVED
from localspec.server.errors import queue_full


class PooledSlot:
    """A slot of the pool.

    number: from 0. busy: whether a request has it. used: when last, in seconds; slots that were
    never used come before all others.
    """

    def __init__(self, number: int, slot: Slot) -> None:
        self.number = number
        self.slot = slot
        self.busy = False
        self.used = float("-inf")


class SlotPool:
    """The slots of a server's engine, for requests in the order in which they come.

    A request gets the free slot whose cache begins with most of its prompt, unless that would lose
    much of another text; then, the slot that was used least recently. Where memory allows it, the
    engine shares a beginning that another slot holds.

    queue_limit: how many requests may wait. Only the event loop's thread uses a pool.
    """

    def __init__(self, engine: Engine, slots: int, queue_limit: int) -> None:
        self._slots = engine.slots
        self._queue_limit = queue_limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        # Slots that are free, and meant for a request that has been woken and has not run yet.
        self._promised = 0
        self.note: str | None = None
        self.slots = [PooledSlot(0, engine.slots.open())]
        for number in range(1, slots):
            try:
                self.slots.append(PooledSlot(number, engine.slots.open()))
            except ModelLoadError as error:
                reason = str(error).partition("; ")[0]  # behind it is what no server can do
                more = "start the server with a smaller --ctx for more"
                self.note = f"{number} slots, not {slots}: {reason}; {more}"
                break
            except LocalspecError as error:
                self.note = f"{number} slots, not {slots}: {error}"
                break

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """On how many slots a text is written."""
        return sum(each.busy for each in self.slots)

    @asynccontextmanager
    async def slot_for(
        self, prompt: Sequence[int], *, is_choice: bool = False
    ) -> AsyncIterator[PooledSlot]:
        """A slot for this prompt, as soon as one is free and it is this request's turn.

        is_choice: whether it is a further choice of a request that has been taken; these always may
        wait. Raises ApiError (429) where too many wait already.
        """
        if self._waiting or self.busy + self._promised >= len(self.slots):
            await self._turn(is_choice=is_choice)
        chosen = self._best_for(prompt)
        chosen.busy = True
        try:
            yield chosen
        finally:
            chosen.busy, chosen.used = False, perf_counter()
            self._wake()

    def _best_for(self, prompt: Sequence[int]) -> PooledSlot:
        """The free slot for this prompt."""

        def reused(each: PooledSlot) -> int:
            return each.slot.reusable(prompt)

        def held(each: PooledSlot) -> int:
            return len(each.slot.target.tokens)

        free = [each for each in self.slots if not each.busy]
        oldest = min(free, key=lambda each: each.used)
        nearest = max(free, key=lambda each: (reused(each), -held(each), -each.used))
        kept = reused(nearest)
        is_same_text = kept > 0 and 2 * kept >= held(nearest)
        if kept < LEAST_SAVED:
            return nearest if is_same_text else oldest
        if kept == held(nearest) or not nearest.slot.takes_beginnings:
            return nearest
        # The text's last tokens would be lost, and any slot may have the others.
        return nearest if is_same_text and held(oldest) else oldest

    async def _turn(self, *, is_choice: bool) -> None:
        """Wait until it is this request's turn."""
        if not is_choice and len(self._waiting) >= self._queue_limit:
            raise queue_full(f"{len(self._waiting)} requests are waiting")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was woken, and does not take its slot
                self._promised -= 1
                self._wake()
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise
        self._promised -= 1

    def _wake(self) -> None:
        """Tell the first that waits that a slot is free."""
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                self._promised += 1
                first.set_result(None)
                return

    def close(self) -> None:
        """Give all slots back to the engine."""
        for each in self.slots:
            self._slots.leave(each.slot)
