"""Kept prompts: what a model has read of prompts, on disk, from one process to the next."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from localspec.engine.kept_store import SavingTime, kept_store
from localspec.engine.slot import Slot
from localspec.engine.slot_cache import STATE
from localspec.generation_config import GenerationConfig
from localspec.loading.fingerprints import gpus, machine_signature
from localspec.speculation.passes import WIDE
from localspec.utils.media import has_media
from localspec.utils.option_names import option
from localspec.utils.paths import real_path
from localspec.utils.tokens import common_prefix

# The fewest tokens that are kept: all of them were read in wide passes.
LEAST_KEPT = 2 * WIDE
# Of a model; those that were used least recently go first.
_MOST_PROMPTS = 64
# Where less than one token of so many is new, what is kept already will do.
_NEW_ENOUGH = 8


class _Length(NamedTuple):
    """Of a kept text, in tokens: what is not read again, what a prompt shares with it, the whole.

    The longest is the most useful.
    """

    usable: int
    shared: int
    kept: int


class KeptPrompts:
    """The prompts that were read with a model. slot: where a prompt is read.

    Several processes may keep prompts at the same time.
    """

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        place = slot.loaded.runtime.placement
        # Each machine and place has digits of its own.
        read_by = [str(real_path(slot.target.model.path)), str(place), gpus(place)]
        whose = json.dumps([*read_by, machine_signature()])
        self._keys = [f"prompt {number} of {whose}" for number in range(_MOST_PROMPTS)]
        # The key whose text has most of this prompt's beginning, and what of that is of use for it.
        self._nearest: tuple[str, _Length] | None = None

    def load(self, prompt: Sequence[int], settings: GenerationConfig) -> str | None:
        """Fill the slot's caches with the kept prompt that has most of this one's beginning.

        So much of the prompt is left to be read that all of it is read in wide passes, and has the
        digits of a prompt that is read in one piece. Returns the reason if what was kept cannot be
        used, else None.
        """
        slot, store, origin = self._slot, kept_store(), self._slot.origin
        if has_media(prompt) or self._other_digits:
            return None
        slot.reproducible_width(settings)  # finding it empties the cache
        key, length = max(
            ((key, self._usable(store.texts(key, origin), prompt)) for key in self._keys),
            key=lambda each: (each[1], store.used(each[0])),
        )
        if length.shared < LEAST_KEPT:
            return None
        if length.usable:
            if failure := slot.load(key, store):
                return failure
            store.note_use(key)
        self._nearest = key, length
        place = _most_used(length.shared, prompt)
        with slot.lock:
            slot.target.truncate(length.usable)
            slot.target.foreseen_place = place if place - length.usable >= WIDE else 0
        return None

    def _usable(self, texts: Mapping[str, Sequence[int]], prompt: Sequence[int]) -> _Length:
        kept = texts.get(STATE, ())
        shared = common_prefix(kept, prompt)
        most = _most_used(shared, prompt)
        if not self._slot.target.shares_cells:
            # It cannot be cut anywhere else than at its marks.
            most = max((len(each) for each in texts.values() if len(each) <= most), default=0)
        return _Length(most, shared, len(kept))

    @property
    def _other_digits(self) -> str | None:
        """Why a text that goes on from a copy would have other digits; None if it would not."""
        target = self._slot.target
        if target.chunk < 2 * WIDE:
            # Some passes are narrow, and which ones depends on where reading begins.
            return f"{option('ubatch')} is {target.chunk}; it must be at least {2 * WIDE} for that"
        if target.model.sliding_window:
            # Attention adds in the order of its cells.
            return "a copy of this model's sliding window has its cells in another order"
        return None

    def save(self, prompt: Sequence[int], time: SavingTime) -> str | None:
        """Keep what the slot has read of a prompt; returns the reason if that fails, else None.

        time: ends the saving.
        """
        slot, target = self._slot, self._slot.target
        slot.stop()
        # The last token was evaluated in the narrow pass of the first step.
        read = target.shared(prompt[:-1])
        known = 0
        if self._nearest:
            length = self._nearest[1]
            known = length.usable if target.foreseen_place else length.shared
        if read < LEAST_KEPT or _NEW_ENOUGH * (read - known) < read:
            return None
        if self._other_digits:
            return self._other_digits
        store = kept_store(gives_up=time.over)
        with slot.lock:
            # The answer was written in narrow passes.
            if target.truncate(read) < LEAST_KEPT:
                return "its cache cannot be cut to the prompt"
        return slot.save(self._key, store)

    @property
    def _key(self) -> str:
        """The key to keep the prompt under."""
        if self._nearest:
            key, length = self._nearest
            if _NEW_ENOUGH * (length.kept - length.shared) < length.shared:
                return key  # nearly all of that text is in this one
        store, first = kept_store(), os.getpid()
        numbers = {key: (number - first) % _MOST_PROMPTS for number, key in enumerate(self._keys)}
        # Of those that are free, processes that end together take different ones.
        return min(self._keys, key=lambda key: (store.used(key), numbers[key]))


def _most_used(shared: int, prompt: Sequence[int]) -> int:
    """How much of what a prompt shares with another is of use: the rest fills a wide pass."""
    return max(0, min(shared, len(prompt) - 1 - WIDE))
