"""Kept states: what slots hold, in files, from one run of the server to the next."""

import logging
from collections.abc import Sequence
from pathlib import Path

from localspec.engine.kept_store import kept_store
from localspec.server.slot_pool import PooledSlot
from localspec.utils.format import format_bytes
from localspec.utils.paths import real_path
from localspec.utils.progress import report_progress

log = logging.getLogger("localspec.server")


class KeptStates:
    """The texts of a model's slots on disk; the one that was used last has number 0.

    model: the GGUF. folder: of the files, by default that of `kept_store`.
    """

    def __init__(self, model: Path, folder: Path | None = None) -> None:
        self._model = real_path(model)
        self._store = kept_store(folder)

    def restore(self, slots: Sequence[PooledSlot]) -> None:
        """Fill slots with what was kept. What cannot be used is left out, with a line in the log.

        The other slots are taken by new texts first.
        """
        for number, pooled in enumerate(slots):
            key = self._key(number)
            if not self._store.has(key):
                continue
            report_progress("restoring what was kept", number / len(slots))
            failure = pooled.slot.load(key, self._store)
            if failure:
                log.warning("a text of the last run has to be read again: %s", failure)
            else:
                pooled.used = -float(number)
                tokens = len(pooled.slot.target.tokens)
                log.info("slot %d: %d tokens of the last run", pooled.number, tokens)

    def save(self, slots: Sequence[PooledSlot]) -> None:
        """Write what slots hold; what cannot be written is left out, with a line in the log."""
        held = [each for each in slots if each.slot.target.tokens]
        held.sort(key=lambda each: each.used, reverse=True)
        tokens = 0
        # The last written is the last that the store gives up.
        for number, pooled in reversed([*enumerate(held)]):
            pooled.slot.stop()
            failure = pooled.slot.save(self._key(number), self._store)
            if failure:
                log.warning("slot %d: %s", pooled.number, failure)
            else:
                tokens += len(pooled.slot.target.tokens)
        if tokens:
            size = format_bytes(self._store.total_bytes)
            log.info("kept %d tokens for the next start (%s on disk)", tokens, size)

    def _key(self, number: int) -> str:
        return f"{self._model} {number}"
