"""Slot loan: the slot that a session has of its engine, until it is closed or forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import finalize

from localspec.engine.engine import Engine
from localspec.engine.slot import Slot
from localspec.errors import LocalspecError


class SlotLoan:
    """A slot that is given back once; session: whose end gives it back where nobody has closed it.

    Threads may ask and close the session at the same time.
    """

    def __init__(self, session: object, engine: Engine, slot: Slot) -> None:
        self._engine, self._slot = engine, slot
        # Runs when the session is garbage-collected without `close`, before its engine is freed.
        self._abandoned = finalize(
            session, lambda engine, slot: engine.slots.abandon(slot), engine, slot
        )

    def require_open(self) -> None:
        """Raise LocalspecError if it was given back; while the lock is held, it is not."""
        if not self._abandoned.alive:
            raise LocalspecError("this session was closed; open another")

    @contextmanager
    def given_back(self) -> Iterator[None]:
        """Give it back behind the block; from the beginning of the block on it is not open."""
        if self._slot.lock.is_forked:
            yield
            return
        with self._slot.lock:
            was_open = self._abandoned.detach()
        try:
            yield
        finally:
            if was_open:
                self._engine.slots.leave(self._slot)
