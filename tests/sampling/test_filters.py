"""The filters against llama.cpp's own samplers, which are the oracle for order and meaning.

A cut by cumulative probability may go either way where the sum meets the threshold within
rounding. So every case is also worked out in float64, which says how near each cut is. Ours must
agree with that unless a gap is below 1e-6; with llama.cpp, which adds up in float32, unless a gap
is below its own error there. The tests bound the share of the cases left out.
"""

import ctypes
import math
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
from localspec.sampling.filters import distribution, largest, logprobs
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
    # XTC moves the beginning.
    moved = ctypes.addressof(array.data.contents) - data.ctypes.data
    return data[moved // data.itemsize :][: array.size]


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
    kept = applied(
        candidates(adjusted), llama_cpp.llama_sampler_init_top_n_sigma(chosen.top_n_sigma)
    )
    if chosen.top_n_sigma:
        # There they stay as tokens without a probability, which typical-p cannot count.
        kept = kept[kept["logit"] > -np.inf]
    left = applied(
        kept,
        llama_cpp.llama_sampler_init_top_k(chosen.top_k),
        llama_cpp.llama_sampler_init_typical(chosen.typical_p, 1),
        llama_cpp.llama_sampler_init_top_p(chosen.top_p, 1),
        llama_cpp.llama_sampler_init_min_p(chosen.min_p, 1),
        # With probability 1 it applies to every token.
        llama_cpp.llama_sampler_init_xtc(chosen.xtc_probability, chosen.xtc_threshold, 0, 0),
    )
    tempered = applied(left, llama_cpp.llama_sampler_init_temp(chosen.temperature))
    logits = left["logit"].astype(np.float64)
    if chosen.dynatemp_range and chosen.temperature:
        # It counts tokens that are forbidden.
        left = left[left["logit"] > -np.inf]
        logits = left["logit"].astype(np.float64)
        wanted = dynamic_temperature(logits, chosen)
        tempered = applied(
            left,
            llama_cpp.llama_sampler_init_temp_ext(
                chosen.temperature, chosen.dynatemp_range, chosen.dynatemp_exponent
            ),
        )
        if left.size > 1:
            # It has sorted them. The largest difference tells best what it has divided by.
            spread, divided = np.ptp(logits), np.ptp(tempered["logit"].astype(np.float64))
            if spread > 0.1 and np.isfinite(divided):
                assert spread / divided == pytest.approx(wanted, rel=2e-3, abs=1e-3)
        logits = logits / wanted
    elif chosen.temperature == 0:
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
    llama.cpp's float32 sums are in those quantities. ties: whether a cut separates equal logits.
    unsure: whether those sums decide what top-n-sigma keeps."""

    ids: NDArray[np.intp]
    logits: Dense
    gap: float = np.inf
    rounding: float = 0.0
    ties: bool = False
    unsure: bool = False

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

    def top_n_sigma(self, sigmas: np.float32) -> None:
        if not sigmas:
            return
        possible = self.logits[self.logits > -np.inf]
        deviation = np.sqrt(np.square(possible - possible.mean()).mean())
        least = possible[0] - sigmas * deviation
        # As llama.cpp adds them up.
        row = possible[np.argsort(self.ids[: possible.size])].astype(np.float32)
        mean = np.cumsum(row)[-1] / np.float32(row.size)
        theirs = np.sqrt(np.cumsum(np.square(row - mean))[-1] / row.size)
        distances = np.abs(possible - least) - np.spacing(np.float32(abs(least)))
        self.near(np.maximum(distances, 0))
        self.unsure |= bool(distances.min() <= 4 * sigmas * abs(theirs - deviation))
        self.keep(np.arange(self.ids.size), int((self.logits >= least).sum()))

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
        last = self.ids.size - 1
        self.near(ordered[logits != logits[last]] - ordered[last])

    def top_p(self, p: np.float32) -> None:
        if p < 1:
            self.keep_mass(np.arange(self.ids.size), p, "left")

    def min_p(self, p: np.float32) -> None:
        if p > 0:
            least = self.logits[0] + np.log(np.float64(p))
            distances = np.abs(self.logits[self.logits < self.logits[0]] - least)
            self.near(np.maximum(distances - np.spacing(np.float32(abs(least))), 0))
            self.keep(np.arange(self.ids.size), int((self.logits >= least).sum()))

    def xtc(self, threshold: np.float32) -> None:
        p = probabilities(self.logits)
        for each in llama_probabilities(self):
            self.rounding = max(self.rounding, np.abs(p - each)[p > threshold / 2].max(initial=0))
        self.near(p - threshold)
        first = max(int((p >= threshold).sum()) - 1, 0)
        if first > 0:
            self.ties |= bool(self.logits[first - 1] == self.logits[first])
            self.ids, self.logits = self.ids[first:], self.logits[first:]

    def dense(self, n_vocab: int, chosen: SamplingParams) -> Dense:
        temperature = chosen.temperature
        if temperature and chosen.dynatemp_range:
            temperature = dynamic_temperature(self.logits, chosen)
        if temperature == 0:
            self.keep(np.arange(self.ids.size), 1)
        full = np.zeros(n_vocab)
        full[self.ids] = probabilities(self.logits / (temperature or 1))
        return full


def dynamic_temperature(logits: Dense, chosen: SamplingParams) -> float:
    """The temperature of the tokens that are left, of which some may be forbidden."""
    p = probabilities(logits[logits > -np.inf])
    if p.size == 1:
        return chosen.temperature
    entropy = -sum(each * math.log(each) for each in p.tolist() if each > 0)
    lowest = max(0.0, chosen.temperature - chosen.dynatemp_range)
    highest = chosen.temperature + chosen.dynatemp_range
    share = min(1.0, entropy / math.log(p.size))
    return float(lowest + (highest - lowest) * share**chosen.dynatemp_exponent)


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
    found.top_n_sigma(np.float32(chosen.top_n_sigma))
    found.top_k(chosen.top_k)
    found.typical(np.float32(chosen.typical_p))
    found.top_p(np.float32(chosen.top_p))
    found.min_p(np.float32(chosen.min_p))
    if chosen.has_xtc:
        found.xtc(np.float32(chosen.xtc_threshold))
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
        ours = distribution(logits, chosen, recent, xtc=chosen.has_xtc).dense(logits.size)
        assert np.array_equal(logits, before, equal_nan=True)
        adjusted = llama_adjusted(logits, chosen, recent)
        found = exact(adjusted, chosen)
        wanted = found.dense(logits.size, chosen)
        case = (logits.size, chosen, recent, found)
        self.cases += 1
        if found.gap > TOO_CLOSE:
            self.with_exact += 1
            assert distance(ours, wanted, found.ties) <= TOLERANCE, case
        if found.gap > TOO_CLOSE + 4 * found.rounding and not found.unsure:
            self.with_llama += 1
            theirs = llama_filtered(adjusted, chosen)
            assert distance(ours, theirs, found.ties) <= TOLERANCE, case

    def finish(self, *, with_exact: float = 0.98, with_llama: float = 0.95) -> None:
        assert self.with_exact >= with_exact * self.cases, self
        assert self.with_llama >= with_llama * self.cases, self


def distance(a: Dense, b: Dense, ties: bool) -> float:
    """The largest difference; where a cut was free to choose among equals, whichever it took."""
    if ties:
        a, b = np.sort(a), np.sort(b)
    return float(np.abs(a - b).max())


# The tests


MANY = [
    {"top_k": 1},
    {"top_k": 40},
    {"top_k": 200},
    {"top_k": 10**6},
    {"top_p": 1e-9},
    {"top_p": 0.5},
    {"top_p": 0.95},
    {"min_p": 0.05},
    {"min_p": 1e-4},
    {"min_p": 1.0},
    {"top_k": 64, "typical_p": 0.9},
    {"top_k": 64, "typical_p": 0.2, "temperature": 0.0},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    {"top_k": 100, "typical_p": 0.7, "top_p": 0.8, "min_p": 0.02},
    {"top_p": 0.7, "min_p": 0.1, "temperature": 5.0},
    {"top_k": 500, "min_p": 0.01, "temperature": 0.01},
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 5, "top_p": 0.4},
    {"xtc_probability": 1.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.5},
    {"xtc_probability": 1.0, "xtc_threshold": 0.01, "temperature": 0.7},
    {"xtc_probability": 1.0, "xtc_threshold": 0.0, "top_k": 40},
    {"xtc_probability": 1.0, "xtc_threshold": 0.6, "top_k": 40},
    {"xtc_probability": 1.0, "top_k": 40, "typical_p": 0.9, "top_p": 0.95, "min_p": 0.02},
    {"xtc_probability": 1.0, "temperature": 0.0},
    {"top_n_sigma": 1.0},
    {"top_n_sigma": 0.1, "temperature": 1.5},
    {"top_n_sigma": 2.5, "top_k": 20, "typical_p": 0.8},
    {"top_n_sigma": 2.0, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "temperature": 0.8},
    {"top_n_sigma": 3.0, "top_p": 0.9},
    {"top_n_sigma": 1e9, "top_p": 0.5},
    {"top_n_sigma": 0.5, "temperature": 0.0, "typical_p": 0.5},
    {"dynatemp_range": 0.5},
    {"dynatemp_range": 2.0, "temperature": 0.7},
    {"dynatemp_range": 0.3, "dynatemp_exponent": 2.5, "top_k": 40, "top_p": 0.95},
    {"dynatemp_range": 0.3, "dynatemp_exponent": 0.0, "min_p": 0.02},
    {"dynatemp_range": 0.8, "temperature": 0.8, "top_n_sigma": 1.0, "xtc_probability": 1.0},
    {"dynatemp_range": 0.5, "temperature": 0.0},
]
SCALES = (0.5, 1.0, 2.0, 4.0, 8.0, 12.0)


@pytest.mark.parametrize("n_vocab", [5, 257, 4096, 32000])
def test_same_as_llama_cpp(n_vocab: int) -> None:
    tally = Tally()
    for scale in SCALES:
        for seed in range(2 if n_vocab == 32000 else 8):
            row = random_row(n_vocab, scale, seed)
            for chosen in MANY:
                tally.check(row, params(**chosen))
    tally.finish(with_llama=0.92 if n_vocab == 32000 else 0.98)


@pytest.mark.parametrize(
    ("n_vocab", "with_llama"), [(5, 0.99), (257, 0.97), (4096, 0.7), (32000, 0.3)]
)
def test_typical_p_over_the_whole_vocabulary(n_vocab: int, with_llama: float) -> None:
    tally = Tally()
    for scale in SCALES:
        for seed, typical_p in enumerate((1e-6, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999)):
            tally.check(random_row(n_vocab, scale, seed), params(typical_p=typical_p))
    tally.finish(with_exact=0.9, with_llama=with_llama)


def random_params(rng: np.random.Generator, n_vocab: int) -> SamplingParams:
    """Each setting is on half the time."""

    def maybe(off: float, on: float) -> float:
        return float(on if rng.random() < 0.5 else off)

    tokens = rng.choice(n_vocab, 3, replace=False)
    biases = rng.choice([-np.inf, -3.0, 0.5, 20.0], 3)
    return SamplingParams(
        temperature=float(rng.choice([0, 0.01, 0.3, 0.8, 1, 5])),
        top_k=int(maybe(0, rng.integers(1, n_vocab + 2))),
        top_p=maybe(1, rng.uniform(0.01, 0.999)),
        min_p=maybe(0, rng.uniform(0.0001, 1)),
        typical_p=maybe(1, rng.uniform(0.05, 0.999)) if rng.random() < 0.5 else 1.0,
        repeat_penalty=maybe(1, rng.uniform(0.7, 1.8)),
        frequency_penalty=maybe(0, rng.normal()),
        presence_penalty=maybe(0, rng.normal()),
        penalty_window=int(rng.choice([-1, 0, 1, 7, 64])),
        logit_bias=dict(zip(tokens.tolist(), biases.tolist(), strict=True)),
        xtc_probability=maybe(0, 1),
        xtc_threshold=float(rng.choice([0.001, 0.02, 0.1, 0.3, 0.5, 0.51])),
        top_n_sigma=maybe(0, rng.uniform(0.05, 4)),
        dynatemp_range=maybe(0, rng.uniform(0.05, 2)),
        dynatemp_exponent=float(rng.choice([0.5, 1, 3])),
    )


@pytest.mark.parametrize(("n_vocab", "cases"), [(5, 1500), (257, 1500), (4096, 400), (32000, 60)])
def test_random_combinations_same_as_llama_cpp(n_vocab: int, cases: int) -> None:
    rng = np.random.default_rng(n_vocab)
    tally = Tally()
    for seed in range(cases):
        row = random_row(n_vocab, float(rng.choice(SCALES)), seed)
        recent = rng.integers(0, min(n_vocab, 40), int(rng.integers(0, 120))).tolist()
        tally.check(row, random_params(rng, n_vocab), recent)
    # Most of the rest: typical-p after a forbidden token, where llama.cpp computes 0 * log(0).
    tally.finish(with_llama=0.75 if n_vocab == 32000 else 0.87)


LOGITS = st.one_of(st.integers(-3, 3).map(float), st.floats(-30, 30, width=32))
RATIOS = st.one_of(st.just(1.0), st.floats(0.01, 1.0))


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    logits=st.lists(LOGITS, min_size=2, max_size=40),
    top_k=st.integers(0, 45),
    top_p=RATIOS,
    typical_p=RATIOS,
    min_p=st.one_of(st.just(0.0), st.floats(0.001, 1.0)),
    temperature=st.sampled_from([0.0, 0.01, 0.5, 1.0, 5.0]),
    dynatemp_range=st.sampled_from([0.0, 0.3, 2.0]),
    top_n_sigma=st.sampled_from([0.0, 0.5, 1.0, 2.5]),
    repeat_penalty=st.sampled_from([1.0, 0.8, 1.1, 2.0]),
    xtc_probability=st.sampled_from([0.0, 1.0]),
    xtc_threshold=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.7]),
    recent=st.lists(st.integers(0, 10), max_size=12),
    window=st.integers(-1, 6),
)
def test_small_rows_with_ties_same_as_llama_cpp(
    logits: list[float], recent: list[int], window: int, **chosen: Any
) -> None:
    row = np.array(logits, np.float32)
    Tally().check(row, params(penalty_window=window, **chosen), recent)


@pytest.mark.parametrize("value", [-7.5, 0.0, 3.25])
def test_all_equal_rows_same_as_llama_cpp(value: float) -> None:
    tally = Tally()
    for chosen in (
        *({"top_k": 1}, {"top_k": 3}, {"top_k": 40}, {"min_p": 1.0}, {"min_p": 0.3}),
        *({"top_p": 1e-9}, {"top_p": 0.47}, {"top_p": 0.97}, {"typical_p": 0.31}),
        *({"top_k": 40, "top_p": 0.913, "min_p": 0.05}, {"typical_p": 0.31, "top_p": 0.47}),
        *({"temperature": 0.0}, {"temperature": 5.0}, {"temperature": 0.0, "typical_p": 0.31}),
        *({"xtc_probability": 1.0, "xtc_threshold": 0.0}, {"xtc_probability": 1.0, "top_k": 3}),
    ):
        for n_vocab in (5, 257, 4096):
            tally.check(np.full(n_vocab, value, np.float32), params(**chosen))
    tally.finish(with_exact=1, with_llama=0.9)


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_top_choice_has_the_threshold_or_more(count: int) -> None:
    """As float32; with equal logits no probability is rounded otherwise."""
    row, chance = np.zeros(count, np.float32), np.float32(1 / count)
    for threshold, left in ((chance, 1), (np.nextafter(chance, np.float32(1)), count)):
        chosen = params(xtc_probability=1.0, xtc_threshold=float(threshold))
        assert chosen.has_xtc == (threshold <= 0.5)
        ours = distribution(row, chosen, xtc=True).dense(count)
        assert np.count_nonzero(ours) == left
        assert np.array_equal(np.sort(ours), np.sort(llama_filtered(row, chosen)))


@pytest.mark.parametrize(("row", "exponent"), [([5, 5, -1], 1000.0), ([0, -2000], 1.0)])
def test_a_dynamic_temperature_of_0_is_greedy(row: list[float], exponent: float) -> None:
    chosen = params(temperature=0.7, dynatemp_range=2.0, dynatemp_exponent=exponent)
    logits = np.array(row, np.float32)
    left = applied(candidates(logits), llama_cpp.llama_sampler_init_temp_ext(0.7, 2.0, exponent))
    ours = distribution(logits, chosen).dense(logits.size)
    assert np.array_equal(ours, [1, *[0] * (logits.size - 1)])
    assert left["id"][left["logit"] > -np.inf].tolist() == [0]


@pytest.mark.parametrize("min_p", [0.0, 1.0])
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize(("name", "further"), [("top_p", 0), ("typical_p", 1)])
def test_what_reaches_a_probability_exactly(
    name: str, further: int, cut: bool, min_p: float
) -> None:
    """top-p has reached it then, and typical-p has not; sums of equal powers of 2 are exact."""
    for count, wanted in ((4, 2), (2048, 64), (2048, 1024), (2048, 1536), (4096, 3072)):
        row = np.array([*[0] * count, -60], np.float32)
        chosen = params(top_k=count if cut else 0, min_p=min_p, **{name: wanted / count})
        ours = np.count_nonzero(distribution(row, chosen).dense(row.size))
        assert ours == np.count_nonzero(llama_filtered(row, chosen)) == wanted + further


@pytest.mark.parametrize("window", [-1, 0, 1, 5, 64, 10**6])
@pytest.mark.parametrize("length", [0, 3, 64, 65, 300])
def test_penalty_windows_same_as_llama_cpp(window: int, length: int) -> None:
    tally = Tally()
    for seed in range(8):
        row = random_row(257, 3, seed)
        recent = np.random.default_rng(seed).integers(0, 60, length).tolist()
        tally.check(row, params(penalty_window=window, repeat_penalty=1.3), recent)
        tally.check(row, params(penalty_window=window, frequency_penalty=0.4), recent)
        tally.check(row, params(penalty_window=window, presence_penalty=-0.7), recent)
    tally.finish(with_exact=1, with_llama=1)


def test_repeat_penalty_makes_a_token_less_likely_whatever_its_sign() -> None:
    row = np.array([-2.0, 0.0, 2.0, 1.0], np.float32)
    dense = distribution(row, params(repeat_penalty=2.0), [0, 1, 2]).dense(4)
    assert np.allclose(np.log(dense / dense[1]), [-4, 0, 1, 1])


def test_penalties_read_only_the_end_of_the_text_and_ignore_foreign_ids() -> None:
    row, chosen = random_row(257, 3, 0), params(repeat_penalty=1.5, penalty_window=4)
    wanted = distribution(row, chosen, [5, 6, 7, 8]).dense(257)
    assert np.array_equal(distribution(row, chosen, [1, 2, 5, 6, 7, 8]).dense(257), wanted)
    for foreign in (257, 999):
        longer = params(repeat_penalty=1.5, penalty_window=5)
        assert np.array_equal(distribution(row, longer, [foreign, 5, 6, 7, 8]).dense(257), wanted)
        biased = params(repeat_penalty=1.5, penalty_window=4, logit_bias={foreign: 5.0})
        assert np.array_equal(distribution(row, biased, [5, 6, 7, 8]).dense(257), wanted)
        dry = params(dry_multiplier=1, dry_allowed_length=1)
        assert np.array_equal(distribution(row, dry, [5, foreign, 5]).logits, row)


@pytest.mark.parametrize(
    "chosen", [{}, {"top_k": 9}, {"top_p": 0.9}, {"min_p": 0.01}, {"top_k": 3}]
)
def test_forbidden_tokens_same_as_llama_cpp(chosen: dict[str, Any]) -> None:
    tally = Tally()
    for seed in range(20):
        forbidden = dict.fromkeys(range(0, 12, 2 if seed % 2 else 3), -np.inf)
        row = random_row(12, 2, seed)
        tally.check(row, params(logit_bias=forbidden, **chosen))
        dense = distribution(row, params(logit_bias=forbidden, **chosen)).dense(12)
        assert not dense[list(forbidden)].any()
    tally.finish(with_llama=0.95)


def test_one_token_left() -> None:
    row = random_row(300, 2, 0)
    only = params(logit_bias=dict.fromkeys(set(range(300)) - {17}, -np.inf))
    for chosen in MANY:
        both = params(logit_bias=only.logit_bias, **chosen)
        assert distribution(row, both).dense(300)[17] == 1


@pytest.mark.parametrize("chosen", [*MANY, {}, {"typical_p": 0.5}])
def test_everything_forbidden_nan_and_infinity_are_refused(chosen: dict[str, Any]) -> None:
    for n_vocab in (5, 257, 4096):
        with pytest.raises(LocalspecError, match="every token is forbidden"):
            distribution(np.full(n_vocab, -np.inf, np.float32), params(**chosen))
        for broken in (np.nan, np.inf):
            for place in (0, n_vocab // 2, n_vocab - 1):
                row = random_row(n_vocab, 3, 0)
                row[place] = broken
                with pytest.raises(LocalspecError, match=f"contain {broken}"):
                    distribution(row, params(**chosen))
    biases = dict.fromkeys(range(5), -np.inf)
    with pytest.raises(LocalspecError, match=r"the logit bias, .* leave none; relax one"):
        distribution(random_row(5, 1, 0), params(logit_bias=biases, **chosen))


@pytest.mark.parametrize("n_vocab", [1, 2, 5, 63, 64, 65, 127, 128, 1000, 4096, 5000])
def test_largest_is_a_stable_sort(n_vocab: int) -> None:
    rng = np.random.default_rng(n_vocab)
    ramp = np.arange(n_vocab, dtype=np.float32)
    rows = [
        random_row(n_vocab, 4, 0),
        rng.integers(0, 4, n_vocab).astype(np.float32),
        np.zeros(n_vocab, np.float32),
        ramp,
        -ramp,
        np.where(rng.random(n_vocab) < 0.9, -np.inf, ramp).astype(np.float32),
        np.full(n_vocab, -np.inf, np.float32),
    ]
    for row in rows:
        full = np.argsort(-row, kind="stable")
        for k in {1, 2, 7, 40, 64, n_vocab - 1, n_vocab, n_vocab + 1} - {0}:
            assert np.array_equal(largest(row, k), full[:k])


def test_ties_go_to_the_lower_id_in_every_filter() -> None:
    row = np.zeros(3000, np.float32)
    for chosen in ({"top_k": 3}, {"top_p": 2.5 / 3000}, {"typical_p": 2.5 / 3000}):
        assert np.flatnonzero(distribution(row, params(**chosen)).dense(3000)).tolist() == [0, 1, 2]
    for chosen in ({}, {"top_k": 9}, {"typical_p": 0.5}, {"min_p": 0.5}):
        assert distribution(row, params(temperature=0.0, **chosen)).token(0) == 0
    # top-p that reaches further than the first guess.
    kept = np.flatnonzero(distribution(row, params(top_p=2000.5 / 3000)).dense(3000))
    assert np.array_equal(kept, np.arange(2001))


def test_top_p_orders_logits_whose_probabilities_round_to_the_same() -> None:
    flat = (np.arange(3000) * 1e-9).astype(np.float32)
    rng = np.random.default_rng(0)
    for _ in range(5):
        shuffled = rng.permutation(flat)
        shuffled[0] = 1.0
        kept = distribution(shuffled, params(top_p=0.5)).dense(3000) > 0
        assert shuffled[kept].min() >= shuffled[~kept].max()


@pytest.mark.parametrize("chosen", [*MANY, {}, {"repeat_penalty": 1.4, "logit_bias": {3: 1.0}}])
def test_a_pure_function_of_its_arguments(chosen: dict[str, Any]) -> None:
    row = random_row(4096, 3, 5)
    row.flags.writeable = False
    recent = [3, 4, 5]
    first = distribution(row, params(**chosen), recent)
    distribution(random_row(4096, 1, 6), params(top_k=3), [9])
    again = distribution(row.copy(), params(**chosen), tuple(recent))
    assert np.array_equal(first.dense(4096), again.dense(4096))
    assert first.temperature == again.temperature
    assert recent == [3, 4, 5]


def test_tokens_beyond_a_vocabulary_have_no_entry_and_no_probability() -> None:
    """A drafter's may be larger, or its likely tokens others."""
    row = random_row(9, 1, 0)
    for law in (distribution(row, params()), distribution(row, params(top_k=3))):
        assert law.index(9) is None
        known = [token for token in range(9) if law.index(token) is not None]
        assert [law.token(law.index(token) or 0) for token in known] == known
        for ids in ([0], [8, 2], [11, known[-1], 9]):
            assert law.over(np.array(ids), 12).tolist() == law.dense(12)[ids].tolist()


def test_no_copy_when_nothing_is_filtered() -> None:
    row = random_row(257, 3, 0)
    plain = distribution(row, params())
    assert plain.ids is None
    assert plain.logits is row


@pytest.mark.parametrize("n_vocab", [5, 257, 32000])
@pytest.mark.parametrize("scale", [0.5, 4, 12, 1000])
def test_logprob_is_the_float64_log_softmax(n_vocab: int, scale: float) -> None:
    row = random_row(n_vocab, scale, 0)
    row[1] = -np.inf
    logits = row.astype(np.float64)
    wanted = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    for token in (0, 1, 2, int(row.argmax()), int(row[2:].argmin()) + 2):
        assert logprobs(row, [token]) == pytest.approx([wanted[token]], rel=1e-6, abs=1e-6)


# Values at the edge of what float32 holds


@pytest.mark.parametrize(
    "chosen",
    [
        {"min_p": 1e-50},
        {"top_p": 1 - 1e-12},
        {"typical_p": 1 - 1e-12},
        {"top_n_sigma": 1e-50},
        {"min_p": 1e-50, "top_p": 1 - 1e-12, "typical_p": 1 - 1e-12},
    ],
)
def test_what_is_off_in_float32_is_off(chosen: dict[str, Any]) -> None:
    # Half of the tokens are so unlikely that a rounded sum reaches 1 without them.
    row = np.repeat(np.array([0, -60], np.float32), 2000)
    ours = distribution(row, params(**chosen)).dense(4000)
    assert (ours > 0).all()
    assert distance(ours, llama_filtered(row, params(**chosen)), False) <= TOLERANCE


@pytest.mark.parametrize("temperature", [1e-307, 1e-50, 1e-46])
@pytest.mark.parametrize("chosen", [{}, {"top_k": 20}, {"typical_p": 0.5}])
def test_temperatures_that_are_zero_in_float32_are_greedy(
    temperature: float, chosen: dict[str, Any]
) -> None:
    row = random_row(257, 8, 0)
    ours = distribution(row, params(temperature=temperature, **chosen))
    greedy = distribution(row, params(temperature=0.0, **chosen))
    assert np.array_equal(ours.dense(257), greedy.dense(257))


@pytest.mark.parametrize("temperature", [1.5e-45, 1e-6, 1.0, 100.0])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_extreme_temperatures_and_logits(temperature: float, scale: float) -> None:
    row = random_row(4096, 1, 0) * np.float32(scale)
    for chosen in ({}, {"top_k": 50}, {"top_p": 0.9}, {"min_p": 0.1}, {"typical_p": 0.5}):
        dense = distribution(row, params(temperature=temperature, **chosen)).dense(4096)
        assert np.isfinite(dense).all()
        assert dense.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "chosen",
    [
        {"top_n_sigma": 1e300},
        {"temperature": 100.0, "dynatemp_range": 1e300},
        *({"temperature": 100.0, "mirostat": version} for version in (1, 2)),
        {"temperature": 100.0, "adaptive_target": 0.5},
    ],
)
def test_numbers_beyond_float32_keep_what_is_possible(chosen: dict[str, Any]) -> None:
    for possible in ([10, 20, 30], [2], [0] * 5):
        row, chosen_params = np.array([*possible, -np.inf], np.float32), params(**chosen)
        dense = distribution(row, chosen_params, state=chosen_params.first_state).dense(row.size)
        assert dense[:-1].all() and dense.sum() == pytest.approx(1)


def test_rows_as_wide_as_float32() -> None:
    most = np.finfo(np.float32).max
    row = np.array([most, -most, 0, most, -np.inf], np.float32)
    both: dict[str, Any] = {"top_k": 3, "top_p": 0.9}
    for chosen in ({}, {"top_k": 3}, {"top_p": 0.9}, both, {"min_p": 0.1}, {"typical_p": 0.9}):
        dense = distribution(row, params(**chosen)).dense(5)
        assert dense.tolist() == [0.5, 0, 0, 0.5, 0]


def test_a_masked_logit_may_be_penalised() -> None:
    row = random_row(257, 3, 0)
    row[[3, 4]] = np.finfo(np.float32).min, -np.inf
    dense = distribution(row, params(repeat_penalty=1.5, presence_penalty=1.0), [3, 4, 5]).dense(
        257
    )
    assert dense[3] == dense[4] == 0
    assert dense.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "chosen",
    [
        {"logit_bias": {1: -1e300}},
        {"frequency_penalty": 1e300},
        {"presence_penalty": 1e300},
        {"repeat_penalty": 1e300},
    ],
)
def test_what_float32_cannot_hold_is_infinite(chosen: dict[str, Any]) -> None:
    row = np.array([1, -1, 2], np.float32)
    dense = distribution(row, params(**chosen), [1]).dense(3)
    assert dense[1] == 0
    assert dense.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "chosen",
    [
        {"logit_bias": {1: 1e300}},
        {"frequency_penalty": -1e300},
        {"presence_penalty": -1e300},
        {"repeat_penalty": 1e-50},
        {"frequency_penalty": 1e300, "presence_penalty": -1e300},
    ],
)
def test_infinite_bonuses_are_refused(chosen: dict[str, Any]) -> None:
    for temperature in (0.0, 1.0):
        with pytest.raises(LocalspecError, match="bias or penalty is far too large"):
            row = np.array([1, 0.5, 2], np.float32)
            distribution(row, params(temperature=temperature, **chosen), [1])
