"""Slot loan: a slot that a session or a text has of its engine, until it gives the slot back."""

from collections.abc import Callable

from localspec.engine.slot import Slot
from localspec.errors import LocalspecError


class SlotLoan:
    """A loan of a slot, which is over when the slot was given back, or its user is gone.

    Ctrl-C may come anywhere, also before anybody could note that the user is gone: so that is asked
    when a slot is looked for. is_text: whether the user is a single text. leave: called when the
    slot was given back. goes_on: whether the user is still there.

    Threads may ask and close a session at the same time.
    """

    def __init__(
        self,
        slot: Slot,
        leave: Callable[[], object],
        goes_on: Callable[[], bool] = lambda: True,
        *,
        is_text: bool = False,
    ) -> None:
        self.slot = slot
        self.is_text = is_text
        self.goes_on = goes_on
        self.is_given_back = False
        self._leave = leave
        self._is_open = True

    @property
    def is_over(self) -> bool:
        """Whether the slot is free for others."""
        return self.is_given_back or not self.goes_on()

    def require_open(self) -> None:
        """Raise LocalspecError if it was given back; while the lock is held, it is not."""
        if not self._is_open:
            raise LocalspecError("this session was closed; open another")

    def give_back(self, before: Callable[[], object] = lambda: None) -> None:
        """Give the slot back. before: called first; from there on the loan is not open."""
        if self.slot.lock.is_forked:
            before()
            return
        try:
            with self.slot.lock:
                self._is_open = False
            before()
        finally:
            self.is_given_back = True
            self._leave()
