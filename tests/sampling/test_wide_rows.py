"""What is quick where min-p leaves one token, or thousands, equals the plain way bit for bit."""

from typing import Any

import numpy as np
import pytest
from fakes.plain_sampling import plain_choice, plain_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.sampling import lucky_tokens
from localspec.sampling.block_maxima import BlockMaxima
from localspec.sampling.distribution import Distribution, Thresholded
from localspec.sampling.draws import Draws
from localspec.sampling.filters import distribution
from localspec.sampling.lucky_tokens import LuckyTokens
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams

Row = NDArray[np.float32]

# Vocabularies below and above that from which blocks have more entries, and indivisible ones.
SIZES = st.sampled_from([17_000, 20_011, 32_000, 50_257, 76_801, 128_256, 151_669])


def wide_row(size: int, spread: float, step: float, peak: float, seed: int) -> Row:
    """A random row; step: of the levels that its logits have, so that many are equal."""
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(size) * spread
    if step:
        row = np.round(row / step) * step
    row[rng.random(size) < 0.1] = -np.inf
    row[rng.integers(size)] += peak
    return row.astype(np.float32)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    size=SIZES,
    spread=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    step=st.sampled_from([0.0, 0.5]),
    peak=st.sampled_from([0.0, 3.0, 12.0]),
    min_p=st.sampled_from([1e-6, 0.001, 0.05, 0.3, 1.0]),
    temperature=st.sampled_from([1e-6, 0.5, 1.0, 8.0]),
    seed=st.integers(0, 2**32),
)
def test_min_p_alone_gives_the_same_tokens_and_the_same_winner(
    *,
    size: int,
    spread: float,
    step: float,
    peak: float,
    min_p: float,
    temperature: float,
    seed: int,
) -> None:
    row, noise = wide_row(size, spread, step, peak, seed), Noise(seed)
    params = SamplingParams(top_k=0, top_p=1, min_p=min_p, temperature=temperature)
    found, wanted = distribution(row, params), plain_distribution(row, params)
    for position in (seed, seed + 1):
        assert noise.sample(found, position) == plain_choice(noise, wanted, position)
    assert found.ids is not None
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.logits, wanted.logits)


def test_a_token_that_min_p_removes_never_wins_whatever_luck_the_others_lack() -> None:
    rng, noise = np.random.default_rng(0), Noise(5)
    row = np.full(50_257, -0.5, np.float32)
    row[rng.choice(row.size, 800, replace=False)] = 0
    unlucky = 0
    for position in range(30):
        found = thresholded(row, 0.9)
        ids, _ = LuckyTokens(5).at(position, row.size)
        unlucky += not (row[ids] == 0).any()
        plain = Distribution(row[row == 0], np.flatnonzero(row == 0), 0.8)
        assert noise.sample(found, position) == plain_choice(noise, plain, position)
    assert unlucky


def thresholded(row: Row, min_p: float) -> Thresholded:
    maxima = BlockMaxima(row)
    return Thresholded(maxima, maxima.top + np.log(np.float32(min_p)), 0.8)


@pytest.mark.parametrize(("left", "later"), [(1, False), (4096, False), (4097, True)])
def test_only_thousands_of_tokens_are_looked_up_later(left: int, later: bool) -> None:
    row = np.full(50_257, -9, np.float32)
    row[np.random.default_rng(1).choice(row.size, left, replace=False)] = 0
    found = distribution(row, SamplingParams(top_k=0, top_p=1, min_p=0.5))
    assert isinstance(found, Thresholded) is later and len(found) == left


def test_tokens_that_are_not_looked_up_yet_are_a_distribution_like_others() -> None:
    row = wide_row(50_257, 1.0, 0.0, 0.0, 7)
    found = thresholded(row, 0.01)
    ids = np.flatnonzero(row >= row.max() + np.log(np.float32(0.01)))
    plain = Distribution(row[ids], ids, 0.8)
    assert len(found) == ids.size
    assert found.token(3) == ids[3]
    assert found.index(int(ids[5])) == 5
    assert found.index(int(np.argmin(row))) is None
    assert np.array_equal(found.probabilities(), plain.probabilities())
    assert np.array_equal(found.dense(60_000), plain.dense(60_000))
    assert found.maxima().top == row.max()
    assert Draws(1).sample(thresholded(row, 0.01), 0) == Draws(1).sample(plain, 0)


def test_a_kept_one_does_not_remember_the_row_that_changed() -> None:
    row = wide_row(50_257, 1.0, 0.0, 0.0, 8)
    wanted = thresholded(row.copy(), 0.01)
    kept = thresholded(row, 0.01).kept()
    row[:] = 0
    assert np.array_equal(kept.ids, wanted.ids)
    assert np.array_equal(kept.logits, wanted.logits)
    assert Noise(4).sample(kept, 9) == Noise(4).sample(wanted, 9)


SAMPLERS = [
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"top_k": 1, "top_p": 1.0, "min_p": 0.05},
    {"top_k": 2, "top_p": 0.5, "min_p": 1.0},
    {"top_k": 0, "top_p": 0.95, "min_p": 0.05},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.05},
    {"top_k": 40, "top_p": 1.0, "min_p": 0.5, "typical_p": 0.5},
]


@pytest.mark.parametrize("chosen", SAMPLERS, ids=str)
@pytest.mark.parametrize("size", [2, 33, 1000, 20_011])
def test_one_sure_token_wherever_it_is_and_its_equals(chosen: dict[str, Any], size: int) -> None:
    params = SamplingParams(**chosen)
    for place in {0, size // 2, size - 1}:
        row = wide_row(size, 0.5, 0.0, 0.0, size)
        row[place] = 30
        for equal in (None, 1, 0, size - 1):
            if equal is not None:
                row[equal] = 30
            found, wanted = distribution(row, params), plain_distribution(row, params)
            assert np.array_equal(found.ids, wanted.ids)
            assert np.array_equal(found.logits, wanted.logits)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    size=st.sampled_from([900, 1030, 6000, 20_011]),
    spread=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    step=st.sampled_from([0.0, 0.5]),
    min_p=st.sampled_from([0.001, 0.05, 0.3]),
    top_p=st.sampled_from([0.3, 0.5, 0.6, 0.7, 0.9, 0.999]),
    seed=st.integers(0, 2**32),
)
def test_top_p_of_all_sorts_no_tokens_that_min_p_removes_but_keeps_the_order(
    *, size: int, spread: float, step: float, min_p: float, top_p: float, seed: int
) -> None:
    row = wide_row(size, spread, step, 0.0, seed)
    params = SamplingParams(top_k=0, top_p=top_p, min_p=min_p)
    found, wanted = distribution(row, params), plain_distribution(row, params)
    assert np.array_equal(found.ids, wanted.ids)
    assert np.array_equal(found.logits, wanted.logits)


@pytest.mark.parametrize("size", [2, 40, 1000, 50_257, 262_144])
def test_only_the_largest_where_no_other_reaches_the_bound(size: int) -> None:
    row = wide_row(size, 1.0, 0.0, 0.0, 1)
    row[size // 2] = 20
    maxima = BlockMaxima(row)
    values, ids = maxima.largest(1, np.float32(10))
    assert (values.tolist(), ids.tolist()) == ([20], [size // 2])
    row[0] = 10
    maxima = BlockMaxima(row)
    values, ids = maxima.largest(2, np.float32(10))
    assert (values.tolist(), ids.tolist()) == ([20, 10], [size // 2, 0])


# When lucky tokens are looked for ahead of time


def positions_foreseen(lucky: LuckyTokens, positions: range) -> set[int]:
    known = set(lucky._found)
    lucky.foresee(positions)
    return set(lucky._found) - known


def test_a_text_that_needs_lucky_tokens_now_and_then_foresees_none() -> None:
    lucky = LuckyTokens(1)
    for position in range(0, 80, 8):
        lucky.at(position, 2000)
    assert positions_foreseen(lucky, range(80, 84)) == set()
    for position in range(80, 90):
        lucky.at(position, 2000)
    assert positions_foreseen(lucky, range(90, 94)) == {90, 91, 92, 93}
    assert positions_foreseen(lucky, range(90 + lucky_tokens._LATELY, 120)) == set()


def test_of_a_smaller_vocabulary_they_are_those_that_it_has() -> None:
    lucky = LuckyTokens(1)
    for position, n_vocab in ((2, 40_000), (3, 20_000)):
        lucky.at(position, n_vocab)
    ids, noise = lucky.at(3, 40_000)
    every = Noise(1).gumbel(3, np.arange(40_000))
    assert np.array_equal(ids, np.flatnonzero(every > lucky_tokens.NOISE_WITHOUT_LUCK))
    for n_vocab in (int(ids[5]), int(ids[5]) + 1):
        fewer = lucky.at(3, n_vocab)
        assert fewer.ids.tolist() == [token for token in ids if token < n_vocab]
        assert np.array_equal(fewer.noise, noise[: fewer.ids.size])
        assert np.array_equal(fewer.noise, Noise(1).gumbel(3, fewer.ids))


def test_a_drafter_and_its_target_need_a_position_once() -> None:
    lucky = LuckyTokens(1)
    for position in (0, 40, 80, 90):
        lucky.at(position, 2000)
        lucky.at(position, 2000)
    assert list(lucky._needed) == [0, 40, 80, 90]
