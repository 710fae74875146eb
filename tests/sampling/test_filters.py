"""The filters against llama.cpp's own samplers, which are the oracle for order and meaning.

A cut by cumulative probability may fall on either side of its threshold where both lie within
rounding. Such a case is left out only when a float64 calculation finds them that close, and the
share of the cases left out is bounded.
"""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.errors import LocalspecError
from localspec.sampling.filters import distribution, largest, logprob
from localspec.sampling.params import SamplingParams

Row = NDArray[np.float32]
Dense = NDArray[np.float64]

TOLERANCE = 1e-6
# Cumulative probabilities closer to a threshold than this leave the cut to rounding.
TOO_CLOSE = 1e-6
OFF: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def params(**chosen: Any) -> SamplingParams:
    """Everything off but what is chosen."""
    return SamplingParams(**(OFF | chosen))


def random_row(n_vocab: int, scale: float, seed: int) -> Row:
    rng = np.random.default_rng([n_vocab, seed])
    return (rng.standard_normal(n_vocab) * scale).astype(np.float32)


# The oracle


@contextmanager
def chain(*samplers: Any) -> Iterator[Any]:
    of_chain = llama_cpp.llama_sampler_chain_default_params()
    made = llama_cpp.llama_sampler_chain_init(of_chain)
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(made, sampler)
    yield made
    llama_cpp.llama_sampler_free(made)


def applied(data: NDArray[Any], *samplers: Any, accepted: Sequence[int] = ()) -> NDArray[Any]:
    """The candidates that these llama.cpp samplers leave of `data`, in its order."""
    data = data.copy()
    pointer = data.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
    array = llama_cpp.llama_token_data_array(pointer, data.size, -1, False)
    with chain(*samplers) as made:
        for token in accepted:
            llama_cpp.llama_sampler_accept(made, token)
        llama_cpp.llama_sampler_apply(made, ctypes.byref(array))
    return data[: array.size]


def candidates(logits: Row) -> NDArray[Any]:
    data = np.zeros(logits.size, DATA)
    data["id"], data["logit"] = np.arange(logits.size), logits
    return data


def llama_adjusted(logits: Row, chosen: SamplingParams, recent: Sequence[int]) -> Row:
    biases = (llama_cpp.llama_logit_bias * len(chosen.logit_bias))(*chosen.logit_bias.items())
    # The low-level sampler knows no "all of them"; llama.cpp's own programs pass the context size.
    window = len(recent) if chosen.penalty_window < 0 else chosen.penalty_window
    left = applied(
        candidates(logits),
        llama_cpp.llama_sampler_init_logit_bias(logits.size, len(biases), biases),
        llama_cpp.llama_sampler_init_penalties(
            logits.size,
            window,
            chosen.repeat_penalty,
            chosen.frequency_penalty,
            chosen.presence_penalty,
        ),
        accepted=recent,
    )
    return left["logit"].copy()


def llama_filtered(adjusted: Row, chosen: SamplingParams) -> Dense:
    left = applied(
        candidates(adjusted),
        llama_cpp.llama_sampler_init_top_k(chosen.top_k),
        llama_cpp.llama_sampler_init_typical(chosen.typical_p, 1),
        llama_cpp.llama_sampler_init_top_p(chosen.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(chosen.min_p, 1),
    )
    tempered = applied(left, llama_cpp.llama_sampler_init_temp(chosen.temperature))
    logits = left["logit"].astype(np.float64)
    if chosen.temperature == 0:
        logits = tempered["logit"].astype(np.float64)
    else:
        # The division itself is checked to the bit, then done again without float32's rounding,
        # which alone moves probabilities by 1e-4 at temperature 0.01.
        assert np.array_equal(tempered["logit"], left["logit"] / np.float32(chosen.temperature))
        logits = logits / chosen.temperature
    weights = np.exp(logits - logits.max())
    dense = np.zeros(adjusted.size)
    dense[left["id"]] = weights / weights.sum()
    return dense


# The same chain in float64, which also says how near each cut is to going the other way


@dataclass
class Exact:
    """ids: in order of their logits. gap: the least distance of a probability mass, a typical-p
    score or a min-p logit from where a cut would go the other way. rounding: about how far off
    llama.cpp's float32 sums are in those quantities. ties: whether a cut separates equal logits."""

    ids: NDArray[np.intp]
    logits: Dense
    gap: float = np.inf
    rounding: float = 0.0
    ties: bool = False

    def keep(self, order: NDArray[np.intp], count: int) -> None:
        if count < order.size:
            self.ties |= bool(self.logits[order[count - 1]] == self.logits[order[count]])
        kept = np.sort(order[:count])
        self.ids, self.logits = self.ids[kept], self.logits[kept]

    def near(self, distances: Dense) -> None:
        self.gap = min(self.gap, np.abs(distances).min(initial=np.inf))

    def keep_mass(self, order: NDArray[np.intp], wanted: np.float32, side: Any) -> None:
        mass = np.cumsum(probabilities(self.logits)[order])
        count = min(int(np.searchsorted(mass, wanted, side=side)) + 1, mass.size)
        cut = slice(max(count - 2, 0), count)
        for each in llama_probabilities(self):
            self.rounding = max(self.rounding, np.abs(mass - np.cumsum(each[order]))[cut].max())
        self.near(mass[cut.start : min(count, mass.size - 1)] - wanted)
        self.keep(order, count)

    def top_k(self, k: int) -> None:
        if k > 0:
            self.keep(np.arange(self.ids.size), k)

    def typical(self, p: np.float32) -> None:
        if p == 1:
            return
        scores = typical_scores(probabilities(self.logits))
        for each in llama_probabilities(self):
            # Where a probability underflows, llama.cpp's entropy is NaN and its cut arbitrary.
            off = np.abs(scores - typical_scores(each)) if each.all() else np.array([np.inf])
            self.rounding = max(self.rounding, off.max())
        order = np.argsort(scores, kind="stable")
        ordered, logits = scores[order], self.logits[order]
        self.keep_mass(order, p, "right")
        count = self.ids.size
        if count < order.size and logits[count - 1] != logits[count]:
            self.near(ordered[count : count + 1] - ordered[count - 1])

    def top_p(self, p: np.float32) -> None:
        if p < 1:
            self.keep_mass(np.arange(self.ids.size), p, "left")

    def min_p(self, p: np.float32) -> None:
        if p > 0:
            least = self.logits[0] + np.log(np.float64(p))
            self.near(self.logits[self.logits < self.logits[0]] - least)
            self.keep(np.arange(self.ids.size), int((self.logits >= least).sum()))

    def dense(self, n_vocab: int, temperature: float) -> Dense:
        if temperature == 0:
            self.keep(np.arange(self.ids.size), 1)
        full = np.zeros(n_vocab)
        full[self.ids] = probabilities(self.logits / (temperature or 1))
        return full


def probabilities(logits: Dense) -> Dense:
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def llama_probabilities(kept: Exact) -> Iterator[Row]:
    """As llama.cpp adds them up: one after the other, sorted already or still by id."""
    weights = np.exp((kept.logits - kept.logits[0]).astype(np.float32))
    for order in (np.arange(weights.size), np.argsort(kept.ids)):
        yield weights / np.cumsum(weights[order])[-1]


def typical_scores(each: NDArray[Any]) -> NDArray[Any]:
    surprise = -np.log(each, where=each > 0, out=np.full_like(each, -np.inf))
    information = each * np.where(each > 0, surprise, 0)
    return np.asarray(np.abs(surprise - np.cumsum(information)[-1]))


def exact(adjusted: Row, chosen: SamplingParams) -> Exact:
    order = np.argsort(-adjusted, kind="stable")
    found = Exact(order, adjusted[order].astype(np.float64))
    found.top_k(chosen.top_k)
    found.typical(np.float32(chosen.typical_p))
    found.top_p(np.float32(chosen.top_p))
    found.min_p(np.float32(chosen.min_p))
    return found


# Comparing


@dataclass
class Tally:
    """Counts the cases: those compared with the float64 chain, and those also with llama.cpp."""

    cases: int = 0
    with_exact: int = 0
    with_llama: int = 0

    def check(self, logits: Row, chosen: SamplingParams, recent: Sequence[int] = ()) -> None:
        before = logits.copy()
        ours = distribution(logits, chosen, recent).dense(logits.size)
        assert np.array_equal(logits, before, equal_nan=True)
        adjusted = llama_adjusted(logits, chosen, recent)
        found = exact(adjusted, chosen)
        wanted = found.dense(logits.size, chosen.temperature)
        case = (logits.size, chosen, recent, found)
        self.cases += 1
        if found.gap > TOO_CLOSE:
            self.with_exact += 1
            assert distance(ours, wanted, found.ties) <= TOLERANCE, case
        theirs = llama_filtered(adjusted, chosen)
        if found.gap > TOO_CLOSE + 4 * found.rounding:
            self.with_llama += 1
            assert distance(ours, theirs, found.ties) <= TOLERANCE, case
        elif np.isfinite(found.rounding) and not found.ties:
            assert np.abs(ours - theirs).sum() < 5e-3, case

    def finish(self, *, with_exact: float = 0.98, with_llama: float = 0.98) -> None:
        assert self.with_exact >= with_exact * self.cases, self
        assert self.with_llama >= with_llama * self.cases, self


def distance(a: Dense, b: Dense, ties: bool) -> float:
    """The largest difference; where a cut was free to choose among equals, whichever it took."""
    if ties:
        a, b = np.sort(a), np.sort(b)
    return float(np.abs(a - b).max())
