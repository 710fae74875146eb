"""Distribution: the next token's distribution, as the logits of the tokens that filters kept."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from localspec.sampling.block_maxima import BlockMaxima

# The most tokens of a shortlist, and the scores below the largest that it leaves out: the noise of
# such a token wins against that of the likeliest less than twice in a hundred times.
SHORTLIST = 16
_HARDLY_EVER = 4.0
# More tokens than this beside likely ones in their blocks are many.
_MANY = 1024
LEAST_FLOAT32 = np.finfo(np.float32).min
LARGEST_FLOAT32 = float(-LEAST_FLOAT32)


@dataclass(frozen=True)
class Distribution:
    """softmax(logits / temperature) over `ids`, zero elsewhere.

    logits: (n,) float32, n >= 1.
    ids: (n,) token ids, or None when entry i is token i (the whole vocabulary).
    temperature: above 0.
    known: the block maxima of the logits, if they are known already.
    adaptive: whether the logits are those of adaptive-p, and not a model's.

    Where `ids` is None, `logits` may be a view of a model's own buffer: use it before the next
    decode.
    """

    logits: NDArray[np.float32]
    ids: NDArray[np.intp] | None = None
    temperature: float = 1.0
    known: BlockMaxima | None = field(default=None, compare=False, repr=False)
    adaptive: bool = False

    def __len__(self) -> int:
        return self.logits.size

    def token(self, index: int) -> int:
        """The id of entry `index`."""
        return index if self.ids is None else int(self.ids[index])

    def kept(self) -> "Distribution":
        """A copy, unless the logits already are one: it stays valid after the next decode."""
        if self.ids is not None:
            return self
        return Distribution(self.logits.copy(), None, self.temperature)

    def shortlist(self) -> "Distribution":
        """Its likeliest tokens, up to SHORTLIST, without those that noise hardly ever draws.

        It stays valid after the next decode. Tokens that top-k or top-p remove may be among them.
        """
        if self.ids is None:
            return self._shortlist_of_row(self.maxima(), LEAST_FLOAT32)
        least = logit_at(-_HARDLY_EVER, self.logits.max(), self.temperature)
        (kept,) = (self.logits >= least).nonzero()
        return self._shortlist_of(self.logits.take(kept), self.ids.take(kept))

    def _shortlist_of_row(self, row: BlockMaxima, least: np.float32) -> "Distribution":
        """least: the least logit of a token."""
        likely = max(least, logit_at(-_HARDLY_EVER, row.top, self.temperature))
        # The largest of many are found sooner than all of them.
        if row.count_beside(likely) > _MANY:
            logits, ids = row.largest(SHORTLIST)
            count = int(np.count_nonzero(logits >= likely))
            return self._with(logits[:count], ids[:count])
        return self._shortlist_of(*row.found(likely))

    def _shortlist_of(self, logits: NDArray[np.float32], ids: NDArray[np.intp]) -> "Distribution":
        """Of tokens that noise draws, which are no view of a model's own buffer."""
        if ids.size > SHORTLIST:
            kept = (-logits).argpartition(SHORTLIST - 1)[:SHORTLIST]
            logits, ids = logits.take(kept), ids.take(kept)
        return self._with(logits, ids)

    def _with(self, logits: NDArray[np.float32], ids: NDArray[np.intp]) -> "Distribution":
        """Some of its tokens."""
        return Distribution(logits, ids, self.temperature, adaptive=self.adaptive)

    def state_after(self, token: int) -> float | None:
        """The sampler's state after this token; None where it has none, or stays as it is."""
        return None

    def maxima(self) -> BlockMaxima:
        """The block maxima of the logits."""
        return self.known or BlockMaxima(self.logits)

    def index(self, token: int) -> int | None:
        """The index of a token's entry; None if the token was filtered out."""
        if self.ids is None:
            return token if token < len(self) else None
        found = np.flatnonzero(self.ids == token)
        return int(found[0]) if found.size else None

    def scores(self) -> NDArray[np.float64]:
        """(n,) scores: logits / temperature, minus the largest; see `relative_scores`."""
        return relative_scores(self.logits, np.maximum.reduce(self.logits), self.temperature)

    def probabilities(self) -> NDArray[np.float64]:
        """(n,) probabilities, in the order of `ids`."""
        weights = np.exp(self.scores())
        return np.asarray(weights / weights.sum())

    def over(self, ids: NDArray[np.intp] | None, n: int) -> NDArray[np.float64]:
        """(n,) the probabilities of the given ids; None: of the tokens 0 to n - 1."""
        if ids is None:
            return self.dense(n)
        most = max(int(ids.max()), len(self) - 1 if self.ids is None else int(self.ids.max()))
        return np.asarray(self.dense(most + 1)[ids])

    def dense(self, n_vocab: int) -> NDArray[np.float64]:
        """(n_vocab,) probabilities, zero for every token that was filtered out."""
        full = np.zeros(n_vocab)
        full[slice(len(self)) if self.ids is None else self.ids] = self.probabilities()
        return full


class Thresholded(Distribution):
    """softmax(logits / temperature) over the tokens of a row whose logit is at least `bound`.

    They are looked up when somebody asks for them: they may be thousands, and noise finds its
    winner without. Until then `row` may be a view of a model's own buffer.

    row: the block maxima of the row. bound: at most the largest logit.
    """

    row: BlockMaxima
    bound: np.float32

    def __init__(self, row: BlockMaxima, bound: np.float32, temperature: float) -> None:
        vars(self).update(row=row, bound=bound, temperature=temperature, known=None)

    @cached_property
    def ids(self) -> NDArray[np.intp]:
        """(n,) token ids, ascending."""
        return self.row.at_least(self.bound)

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """(n,) float32, n >= 1."""
        return self.row.entries.take(self.ids)

    def kept(self) -> Distribution:
        """One that stays valid after the next decode."""
        return Distribution(self.logits, self.ids, self.temperature)

    def shortlist(self) -> Distribution:
        """See Distribution."""
        return self._shortlist_of_row(self.row, self.bound)


def logit_at(score: float, top: np.float32, temperature: float) -> np.float32:
    """The logit of a score, within what a float32 can hold. top: the largest logit."""
    return np.float32(max(float(top) + score * temperature, float(LEAST_FLOAT32)))


def relative_scores(
    logits: NDArray[np.float32], top: np.float32, temperature: float
) -> NDArray[np.float64]:
    """(n,) scores: (logits - top) / temperature. top: the largest logit.

    Noise is added to these scores. Subtracting `top` first keeps them small, so that rounding does
    not lose the noise when logits are huge or the temperature is tiny.
    """
    scores = logits.astype(np.float64)
    scores -= float(top)
    scores /= temperature
    return scores
