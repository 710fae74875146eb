"""Lucky tokens: those whose noise at a position is large, of the whole vocabulary.

To find them, the whole vocabulary is hashed. That depends on no logits, so it is done while the
target computes, and once for a drafter and its target.
"""

import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.sampling import gumbel
from localspec.sampling.keyed_hash import hashed, keys_of, mixed, tokens_below

# A token is lucky if its coarse word is below this: one in 512.
_BELOW = 1 << 23
# Tokens of so many positions are kept, more than two drafts have.
_MOST_POSITIONS = 256
# They are foreseen in a text that needed those of so many positions within so many tokens.
_NEEDED, _LATELY = 8, 16
# The noise of a token that is not lucky is at most this.
NOISE_WITHOUT_LUCK = gumbel.at_most(_BELOW)


class Lucky(NamedTuple):
    """The lucky tokens of a position, ascending, and their noise."""

    ids: NDArray[np.intp]
    noise: NDArray[np.float64]

    def below(self, n_vocab: int) -> "Lucky":
        """Those among the tokens 0 to n_vocab - 1."""
        count = int(self.ids.searchsorted(n_vocab))
        return Lucky(self.ids[:count], self.noise[:count])


class LuckyTokens:
    """The lucky tokens of a seed, by position; those of one text are kept.

    They are those of the largest vocabulary that was asked for: a drafter may have a few tokens
    fewer than its target.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._n_vocab = 0
        self._found: dict[int, Lucky | Future[dict[int, Lucky]]] = {}
        self._needed = deque[int](maxlen=_NEEDED)

    def at(self, position: int, n_vocab: int) -> Lucky:
        """The lucky tokens of a position, among the tokens 0 to n_vocab - 1."""
        if n_vocab > self._n_vocab:
            self._n_vocab = n_vocab
            self._found.clear()
        if position not in self._needed:
            self._needed.append(position)
        found = self._found.get(position)
        # What another thread has not begun yet is quicker done here.
        if isinstance(found, Future):
            found = None if found.cancel() else found.result()[position]
        if found is None:
            found = _find(self._seed, position, self._n_vocab)
        self._keep([position], found)
        return found if n_vocab == self._n_vocab else found.below(n_vocab)

    def foresee(self, positions: Sequence[int]) -> None:
        """Find those of positions to come in another thread, if the text needs them often."""
        if not self._needed or positions[0] - self._needed[0] > _LATELY:
            return
        if new := [position for position in positions if position not in self._found]:
            # While the interpreter ends, no work is taken; the text finds its tokens itself.
            with suppress(RuntimeError):
                worker = _worker_of(os.getpid())
                self._keep(new, worker.submit(_find_all, self._seed, new, self._n_vocab))

    def _keep(self, positions: Sequence[int], found: Lucky | Future[dict[int, Lucky]]) -> None:
        if len(self._found) > _MOST_POSITIONS:
            self._found.clear()
        self._found.update(dict.fromkeys(positions, found))


@cache
def _worker_of(_process: int) -> ThreadPoolExecutor:
    """One thread, for all texts of a process; a fork does not have that of its parent."""
    return ThreadPoolExecutor(1, "localspec-noise")


def _find_all(seed: int, positions: Sequence[int], n_vocab: int) -> dict[int, Lucky]:
    return {position: _find(seed, position, n_vocab) for position in positions}


def _find(seed: int, position: int, n_vocab: int) -> Lucky:
    keys = keys_of(seed, position)
    ids = tokens_below(_BELOW, n_vocab, keys[:, 0])
    return Lucky(ids, gumbel.from_words(*hashed(mixed(ids), keys)))
