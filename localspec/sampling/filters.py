"""Filters: turn logits into a distribution, with one function for target and drafters.

The order and the meaning of each filter are those of llama.cpp's default sampler chain. Exactness
needs the same code for both models. Of equal logits, the lower token id comes first.
"""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.sampling.block_maxima import BlockMaxima, Candidates, Ids, Row, likeliest
from localspec.sampling.distribution import (
    LARGEST_FLOAT32,
    LEAST_FLOAT32,
    Distribution,
    Thresholded,
    relative_scores,
)
from localspec.sampling.dry import dry_penalties
from localspec.sampling.entropy import entropy, information, typical
from localspec.sampling.params import GREEDY_UP_TO, SamplingParams
from localspec.sampling.stateful import by_adaptive_p, by_mirostat
from localspec.sampling.xtc import without_top_choices
from localspec.utils.option_names import option

# top-p tries this many of the likeliest tokens before it sorts the whole vocabulary.
_TOP_P_GUESS = 1024
# Tokens that min-p alone leaves are looked up if they are so many at most.
_FEW_LEFT = 4096
# Up to this many candidates are not sorted before somebody asks.
_FEW = 1024


class NoTokenError(LocalspecError):
    """Every token is forbidden."""


class BrokenLogitsError(LocalspecError):
    """The logits contain NaN or infinity."""


class TopK(NamedTuple):
    """top-k, top-p and min-p for one row. least: the least logit that min-p leaves."""

    k: int
    top_p: float
    least: np.float32

    def of(self, values: Row, ids: Ids) -> tuple[Row, Ids]:
        """What they leave of the k largest. values: likeliest first."""
        return _min_p(*_top_p(values, ids, self.top_p), self.least)


class Truncated(Distribution):
    """softmax(logits / temperature) over what top-k, top-p and min-p leave of a row.

    They are sorted when somebody asks for them: noise finds its winner among the candidates, and
    mostly it is plain that the filters leave that one. Until then `row` may be a view of a model's
    own buffer.

    row: the block maxima of the row. candidates: all that may be left.
    """

    row: BlockMaxima
    candidates: Candidates
    filters: TopK

    def __init__(
        self, row: BlockMaxima, candidates: Candidates, filters: TopK, temperature: float
    ) -> None:
        vars(self).update(
            row=row, candidates=candidates, filters=filters, temperature=temperature, known=None
        )

    def leaves(self, index: int) -> bool:
        """Whether the filters leave this candidate."""
        return self._surely_leaves(index) or self.index(int(self.candidates.ids[index])) is not None

    def _surely_leaves(self, index: int) -> bool:
        """Whether it is plain that the filters leave this candidate.

        top-p does if less than its share of the weight of top-k comes before the candidate. Behind
        it comes at least the bound's weight for each place.
        """
        logits, top = self.candidates.logits.tolist(), float(self.row.top)
        logit = logits[index]
        ahead = [math.exp(each - top) for each in logits if each >= logit]
        places = min(self.filters.k, len(logits)) - len(ahead)
        if places < 0:
            return False
        own = math.exp(logit - top)
        behind = own + places * math.exp(float(self.candidates.bound) - top)
        # The margin covers rounding errors.
        top_p = self.filters.top_p
        return (sum(ahead) - own) * (1 - top_p) < 0.999 * behind * top_p

    @cached_property
    def _left(self) -> tuple[Row, Ids]:
        values, ids, _ = self.candidates
        k, _, least = self.filters
        if ids.size >= k:
            return self.filters.of(*likeliest(values, ids, k))
        return self.filters.of(*self.row.largest(k, least))

    @cached_property
    def logits(self) -> Row:
        """(n,) float32, n >= 1, likeliest first."""
        return self._left[0]

    @cached_property
    def ids(self) -> Ids:
        """(n,) token ids."""
        return self._left[1]

    def kept(self) -> Distribution:
        """One that stays valid after the next decode."""
        return Distribution(self.logits, self.ids, self.temperature)

    def shortlist(self) -> Distribution:
        """See Distribution. The filters are not computed for it."""
        return self._shortlist_of(self.candidates.logits, self.candidates.ids)


def distribution(
    logits: Row,
    params: SamplingParams,
    recent: Sequence[int] = (),
    *,
    xtc: bool = False,
    state: float | None = None,
    only_sampled: bool = False,
) -> Distribution:
    """The distribution of the next token.

    logits: (n_vocab,) float32, not modified. recent: the tokens before this one, at least the last
    `params.window` of them (read only when a penalty or DRY is on). xtc: whether XTC applies to
    this token. state: of mirostat or adaptive-p, if one is on. only_sampled: whether it is used for
    one sample, and no more; then it may be a `Truncated`.
    Raises NoTokenError if every token is forbidden, and BrokenLogitsError for NaN and infinity.
    """
    row = _adjusted(logits, params, recent)
    greedy = params.is_greedy
    if greedy and (params.typical_p == 1 or params.mirostat) and not xtc:
        token = row.argmax(0, keepdims=True)
        logit = row.take(token)
        require_possible(logit[0])
        return Distribution(logit, token)
    if state is not None and params.mirostat:
        return by_mirostat(_possible(row), params, state)
    at_once = greedy or xtc or params.dynatemp_range > 0 or state is not None
    left = _truncated(row, params, only_sampled=only_sampled and not at_once)
    if xtc:
        chosen = without_top_choices(left.logits, left.ids, params.xtc_threshold)
        left = Distribution(*chosen, params.temperature)
    if greedy:
        return _likeliest_of(left)
    if params.dynatemp_range > 0:
        left = _tempered(left, params)
    return left if state is None else by_adaptive_p(left, params, state)


def _likeliest_of(left: Distribution) -> Distribution:
    values, ids = left.logits, left.ids
    best = int(np.lexsort((ids, -values))[0]) if ids is not None else int(values.argmax())
    return Distribution(values[best : best + 1], np.array([best if ids is None else ids[best]]))


def _tempered(left: Distribution, params: SamplingParams) -> Distribution:
    """What is left, at the temperature that suits its entropy."""
    possible = int(np.count_nonzero(left.logits > -np.inf))
    if possible == 1:
        return left
    lowest = max(0.0, params.temperature - params.dynatemp_range)
    highest = params.temperature + params.dynatemp_range
    scores = relative_scores(left.logits, left.logits.max(), 1.0)
    share = min(1.0, entropy(*information(scores)) / math.log(possible))
    temperature = lowest + (highest - lowest) * share**params.dynatemp_exponent
    if temperature <= GREEDY_UP_TO:
        return _likeliest_of(left)
    return Distribution(left.logits, left.ids, temperature, left.known)


def logprobs(logits: Row, tokens: Sequence[int] | Ids) -> list[float]:
    """The log-softmax (natural logarithm) of raw logits at these tokens. logits: (n_vocab,)."""
    top = logits.max()
    total = float(top) + float(np.log(np.exp(logits - top).sum(dtype=np.float64)))
    return [float(logits[token]) - total for token in tokens]


def largest(row: Row, k: int) -> Ids:
    """The ids of the k largest entries, largest first; of equal entries, the lower id first."""
    return BlockMaxima(row).largest(k)[1]


def _possible(row: Row) -> BlockMaxima:
    """The block maxima of a row that leaves a token."""
    maxima = BlockMaxima(row)
    require_possible(maxima.top)
    return maxima


def require_possible(top: np.float32) -> None:
    """Raise NoTokenError or BrokenLogitsError where a row with this maximum leaves no token."""
    if math.isfinite(top):
        return
    if np.isnan(top) or top == np.inf:
        raise BrokenLogitsError(
            f"the model's logits contain {top}; its file or this build is broken, "
            "or a bias or penalty is far too large"
        )
    raise NoTokenError(
        "every token is forbidden here: between them the grammar, the logit bias, "
        f"{option('min_tokens')} and {option('ignore_eos')} leave none; relax one"
    )


def _adjusted(logits: Row, params: SamplingParams, recent: Sequence[int]) -> Row:
    """The logits with bias, penalties and DRY; a copy only when something changes."""
    penalises = params.penalises and len(recent) > 0
    repeated = dry_penalties(params, recent) if params.has_dry else {}
    if not params.logit_bias and not penalises and not repeated:
        return logits
    row = logits.copy()
    with np.errstate(all="ignore"):  # overflow gives infinity, as in llama.cpp
        for token, bias in params.logit_bias.items():
            if token < row.size:
                row[token] += np.float32(bias)
        if penalises:
            _penalise(row, params, recent)
        for token, penalty in repeated.items():
            if token < row.size:
                row[token] -= np.float32(penalty)
    return row


def _penalise(row: Row, params: SamplingParams, recent: Sequence[int]) -> None:
    window = recent if params.penalty_window < 0 else recent[-params.penalty_window :]
    ids, counts = np.unique(np.asarray(window), return_counts=True)
    kept = ids < row.size
    ids, counts = ids[kept], counts[kept].astype(np.float32)
    values = row[ids]
    repeat = np.float32(params.repeat_penalty)
    values = np.where(values <= 0, values * repeat, values / repeat)
    row[ids] = values - (
        counts * np.float32(params.frequency_penalty) + np.float32(params.presence_penalty)
    )


def _truncated(row: Row, params: SamplingParams, *, only_sampled: bool) -> Distribution:
    """The tokens that survive top-k, typical-p, top-p and min-p, at the sampler's temperature."""
    maxima = _possible(row)
    typical_p, top_p, log_min_p = _rounded(params.typical_p, params.top_p, params.min_p)
    least = maxima.top + log_min_p
    whole = params.top_k == 0 or params.top_k >= row.size
    sigmas = float(np.float32(min(params.top_n_sigma, LARGEST_FLOAT32)))
    within = _least_of_sigma(maxima, sigmas) if sigmas else None
    if typical_p == 1 and whole and top_p == 1:
        least = least if within is None else max(least, within)
        return _min_p_of_all(maxima, least, params.temperature)
    if typical_p != 1 or within is not None:
        most = row.size if whole else params.top_k
        values, ids = (
            maxima.largest(most) if within is None else likeliest(*maxima.found(within), most)
        )
        if typical_p != 1:
            values, ids = typical(values, ids, typical_p)
        if top_p != 1:
            values, ids = _top_p(*_likeliest_first(values, ids), top_p)
        least = values.max() + log_min_p
    elif whole:
        values, ids = _top_p_of_all(maxima, top_p, least)
    else:
        filters = TopK(params.top_k, top_p, least)
        return _top_k(maxima, filters, params.temperature, late=only_sampled)
    return Distribution(*_min_p(values, ids, least), params.temperature)


def _least_of_sigma(maxima: BlockMaxima, sigmas: float) -> np.float32:
    """The least logit that top-n-sigma keeps. Forbidden tokens have no part in the deviation."""
    possible = maxima.entries
    if np.minimum.reduce(possible) == -np.inf:
        possible = possible[possible > -np.inf]
    deviations = possible - possible.mean(dtype=np.float64)
    deviation = math.sqrt(np.square(deviations, out=deviations).mean())
    return np.float32(max(float(maxima.top) - sigmas * deviation, float(LEAST_FLOAT32)))


@lru_cache(64)
def _rounded(typical_p: float, top_p: float, min_p: float) -> tuple[float, float, np.float32]:
    """typical-p, top-p and the logarithm of min-p.

    They are rounded to float32 first, as in llama.cpp: what rounds to 1 (or 0 for min-p) is off.
    """
    with np.errstate(divide="ignore"):
        log_min_p = np.log(np.float32(min_p))
    return float(np.float32(typical_p)), float(np.float32(top_p)), log_min_p


def _min_p(values: Row, ids: Ids, least: np.float32) -> tuple[Row, Ids]:
    """least: the least logit of a token that min-p keeps."""
    if least == -np.inf or values.size == 1:
        return values, ids
    (kept,) = (values >= least).nonzero()
    return values.take(kept), ids.take(kept)


def _min_p_of_all(maxima: BlockMaxima, least: np.float32, temperature: float) -> Distribution:
    """min-p alone. Where it leaves many tokens, none of them is looked up yet."""
    if least == -np.inf:
        return Distribution(maxima.entries, None, temperature, maxima)
    if maxima.has_more(_FEW_LEFT, least):
        return Thresholded(maxima, least, temperature)
    return Distribution(*maxima.found(least), temperature)


def _top_k(row: BlockMaxima, filters: TopK, temperature: float, *, late: bool) -> Distribution:
    """late: which of a few candidates the filters leave need not be found out yet."""
    if late and filters.k <= _FEW:
        # Without min-p, forbidden tokens would be candidates where few others are possible.
        candidates = row.candidates(filters.k, max(filters.least, LEAST_FLOAT32))
        if candidates.ids.size == 1:
            return Distribution(candidates.logits, candidates.ids, temperature)
        if candidates.ids.size <= _FEW:
            return Truncated(row, candidates, filters, temperature)
    return Distribution(*filters.of(*row.largest(filters.k, filters.least)), temperature)


def _likeliest_first(values: Row, ids: Ids) -> tuple[Row, Ids]:
    order = np.lexsort((ids, -values))
    return values[order], ids[order]


def _top_p(values: Row, ids: Ids, top_p: float) -> tuple[Row, Ids]:
    """values: likeliest first, unless top-p is off."""
    if top_p == 1 or values.size == 1:
        return values, ids
    mass = values.astype(np.float64)
    mass -= mass[0]
    np.add.accumulate(np.exp(mass, out=mass), out=mass)
    mass /= mass[-1]
    return _shortest_prefix(values, ids, mass, top_p)


def _top_p_of_all(maxima: BlockMaxima, top_p: float, least: np.float32) -> tuple[Row, Ids]:
    """top-p over the whole vocabulary; sorts only the likeliest tokens if those suffice.

    Tokens with logits below `least`, which min-p will remove, may be missing.
    """
    row, top = maxima.entries, maxima.top
    values, ids = maxima.largest(min(_TOP_P_GUESS, row.size), least)
    if ids.size == 1:
        return values, ids
    with np.errstate(over="ignore"):  # the difference of two float32 may be -infinity
        weights = row - top
    np.exp(weights, out=weights)
    total = weights.sum(dtype=np.float64)
    mass = np.cumsum(weights[ids], dtype=np.float64) / total
    if mass[-1] >= top_p:
        return _shortest_prefix(values, ids, mass, top_p)
    if values[-1] < least:
        return maxima.found(least)
    descending = np.sort(row)[::-1]
    with np.errstate(over="ignore"):
        weights = np.exp(descending - top)
    mass = np.cumsum(weights, dtype=np.float64) / total
    count = min(int(np.searchsorted(mass, top_p, side="left")) + 1, row.size)
    above = np.flatnonzero(row > descending[count - 1])
    level = np.flatnonzero(row == descending[count - 1])[: count - above.size]
    ids = np.concatenate([above, level])
    return row[ids], ids


def _shortest_prefix(
    values: Row, ids: Ids, mass: NDArray[np.float64], wanted: float
) -> tuple[Row, Ids]:
    """The shortest prefix whose cumulated probability reaches `wanted`."""
    count = int(mass.searchsorted(wanted)) + 1
    return values[:count], ids[:count]
