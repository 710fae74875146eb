"""EAGLE-3: a head of one layer drafts from hidden rows of its target.

Li et al. 2025, https://arxiv.org/abs/2503.01840. The text is x_0 x_1 ... . The target's hidden rows
of three layers at position p, side by side, go through the head's encoder, which makes one state
g_p of them. The head's decoder reads the pair (x_{p+1}, g_p) at position p and predicts x_{p+2}: it
is one token ahead of the target.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.head_cache import HeadCache
from localspec.drafters.paired_head import PairedHead
from localspec.speculation.passes import Pass, Passes

# The rows that leave the head's only layer; those of its encoder have the same number.
_OWN = 1


class Eagle3(PairedHead):
    """A paired head with an encoder."""

    skipped = 1

    def __init__(self, cache: HeadCache, *, name: str, n_vocab: int, layers: Sequence[int]) -> None:
        super().__init__(cache, name=name, n_vocab=n_vocab, layers=layers, own=_OWN)
        # Hidden rows by position until they are encoded.
        self._rows: dict[int, NDArray[np.float32]] = {}

    def _take(self, start: int, layers: Sequence[NDArray[np.float32]]) -> None:
        self._rows.update(enumerate(np.hstack(layers), start=start))

    def _prepare(self) -> Passes[None]:
        """Encode the hidden rows that wait."""
        while self._rows:
            places = list(self._rows)[: self._cache.chunk]
            rows = np.stack([self._rows[place] for place in places])
            scores = yield Pass(
                self._cache, (), wanted=0, hidden=(_OWN,), embeddings=rows, encode=True
            )
            for place, state in zip(places, scores.hidden[_OWN], strict=True):
                # A copy: a state that is kept must not keep all states of its pass.
                self._states[place] = state.copy()
                del self._rows[place]

    def _forget_states(self) -> None:
        super()._forget_states()
        self._rows = {place: row for place, row in self._rows.items() if place < len(self._read)}

    def _knows(self, place: int) -> bool:
        return super()._knows(place) or place in self._rows
