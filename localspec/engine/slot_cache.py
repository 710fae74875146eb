"""Slot cache: the text of a slot in one of its KV caches, to save it and to copy it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LOST
from localspec.gguf import long_rope
from localspec.gguf.files import files_of
from localspec.llama import library
from localspec.llama.sequence import KVSequence
from localspec.llama.state import NO_STATE, State
from localspec.loading.fingerprints import fingerprint
from localspec.loading.loader import LoadedModels
from localspec.utils.media import knows_media
from localspec.utils.paths import stat_signature

STATE, _MARK = "state", "mark"
# Of a text's marks no more is saved, beside one.
_MOST_MARK_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class SlotCache:
    """A text in a KV cache that can be saved.

    key: in a StateStore. kv_type: of its elements. drafter: whose it is; None: the target's.
    """

    key: str
    sequence: KVSequence
    kv_type: str
    drafter: str | None = None

    @property
    def place(self) -> tuple[str | None, Path]:
        """Whose it is, and of which model."""
        return self.drafter, self.sequence.model.path

    @property
    def of_drafter(self) -> bool:
        """Whether it is not the target's."""
        return self.drafter is not None

    @property
    def is_lost(self) -> bool:
        """Whether it is a drafter's on a machine that is gone."""
        return self.of_drafter and self.sequence.model.is_lost

    def states(self) -> Mapping[str, State]:
        """What is saved: the text's state, and its latest marks.

        Nothing of a drafter's that read beside images, as numbers alone would not tell which.
        """
        text = self.sequence
        if self.of_drafter and knows_media(text.tokens):
            return {STATE: NO_STATE}
        return {STATE: text.state()} | {
            f"{_MARK} {length}": State(tuple(text.tokens[:length]), data)
            for length, data in text.memory.marks.latest(_MOST_MARK_BYTES)
        }

    def origin(self, loaded: LoadedModels) -> dict[str, object]:
        """The properties that must be equal for a saved KV cache to be usable.

        loaded: the models of its slot.
        """
        context = self.sequence.context
        rotated = long_rope.properties(loaded.header, context.n_cells)
        # Of a head, both, and the target's adapters: what it keeps is made of the target's rows.
        ropes = [each.params.rope.options for each in (loaded.target.context, context)]
        if any(ropes):
            rotated["rope scaling"] = ropes
        if adapters := loaded.target.model.adapters:
            rotated["adapters"] = adapters
        path = self.sequence.model.path
        written = [stat_signature(file)[1:] for file in files_of(path)]
        return rotated | {
            "model file": [fingerprint(path), *written],
            "llama.cpp": library.version(),
            "kv type": self.kv_type,
            "flash attention": loaded.runtime.flash,
            "reproducible": loaded.runtime.reproducible,
        }

    def restore(self, states: Mapping[str, State]) -> bool:
        """Take what was saved; False if there is nothing, or if it does not fit."""
        if STATE not in states or not self.sequence.restore(states[STATE]):
            return False
        for name, mark in states.items():
            if name != STATE:
                self.sequence.memory.add_mark(len(mark.tokens), mark.data)
        return True


@contextmanager
def unless_lost(cache: SlotCache) -> Iterator[None]:
    """Copy a cache; that of a drafter is left out if its machine or device turns out to be gone."""
    try:
        yield
    except LOST:
        if not cache.of_drafter:
            raise
