"""Saved states: the KV caches of a session on disk."""

from abc import ABC, abstractmethod

from localspec.engine.slot import Slot
from localspec.engine.state_store import StateStore


class SavedStates(ABC):
    """The part of a session that saves and loads its KV caches."""

    _slot: Slot

    @abstractmethod
    def _end_answer(self) -> None:
        """End the running answer."""

    def save_state(self, key: str, store: StateStore | None = None) -> str | None:
        """Save the KV caches on disk under this key; returns the reason if that fails, else None.

        A file grows with its tokens; a store deletes the oldest files beyond a total size.
        """
        self._end_answer()
        return self._slot.save(key, store or StateStore())

    def load_state(self, key: str, store: StateStore | None = None) -> str | None:
        """Load the KV caches that were saved under this key, so that nothing is evaluated again.

        Returns the reason if that fails, else None: no file, or one of another model, setting or
        version. The conversation is not affected; its tokens are then evaluated again.
        """
        self._end_answer()
        return self._slot.load(key, store or StateStore())

    def remove_state(self, key: str, store: StateStore | None = None) -> None:
        """Delete the KV caches that were saved under this key."""
        self._slot.remove(key, store or StateStore())
