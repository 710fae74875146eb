"""The race, and filters that are found out late, choose the token of the plain way."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from fakes.plain_sampling import plain_choice, plain_distribution, row_of_levels
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.sampling import gumbel, race
from localspec.sampling.distribution import Distribution, relative_scores
from localspec.sampling.draws import Draws
from localspec.sampling.filters import Truncated, distribution
from localspec.sampling.keyed_hash import coarse_keys_of, coarse_words, hashed, keys_of, mixed
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams

Row = NDArray[np.float32]
once = partial(distribution, only_sampled=True)
MOST = 2**32 - 1


def row_of(size: int, spread: float, step: float, forbidden: float, seed: int) -> Row:
    rng = np.random.default_rng(seed)
    return row_of_levels(rng, size=size, spread=spread, step=step, forbidden=forbidden, peak=spread)


def raced(row: Row, ids: NDArray[np.intp], temperature: float, seed: int) -> int | None:
    return race.first(row, ids, row.max(), temperature, coarse_keys_of(seed, 7))


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_one_word_in_pythons_numbers_is_that_of_numpy(seed: int) -> None:
    ids = np.array([0, 1, 2, 77, 131_071, 262_143, 2**31])
    for position in (0, 5, 2**40):
        keys = coarse_keys_of(seed, position)
        wanted = hashed(mixed(ids), keys_of(seed, position))[0].tolist()
        assert coarse_words(ids.tolist(), keys) == wanted
        arrays = [np.array(key, np.uint32) for key in keys]
        assert hashed(mixed(ids), arrays).tolist() == wanted


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    size=st.integers(1, 60),
    spread=st.sampled_from([0.0, 0.1, 1.0, 4.0, 1000.0]),
    step=st.sampled_from([0.0, 0.5]),
    forbidden=st.sampled_from([0.0, 0.5, 1.0]),
    temperature=st.sampled_from([1e-45, 1e-6, 0.3, 1.0, 8.0, 1e300]),
    seed=st.integers(0, 2**32),
)
def test_whoever_is_certainly_first_has_the_largest_sum(
    *, size: int, spread: float, step: float, forbidden: float, temperature: float, seed: int
) -> None:
    row = row_of(size, spread, step, forbidden, seed)
    ids = np.random.default_rng(seed).permutation(200_000)[:size]
    found = raced(row, ids, temperature, seed)
    sums = relative_scores(row, row.max(), temperature) + Noise(seed).gumbel(7, ids)
    assert found in (None, int(sums.argmax()))


@pytest.mark.parametrize("size", [2, race._FEW, race._FEW + 1, 40])
def test_it_is_nearly_always_certain(size: int) -> None:
    row, ids = row_of(size, 1.0, 0.0, 0.0, size), np.arange(size)
    assert sum(raced(row, ids, 0.8, seed) is None for seed in range(2000)) < 20


@pytest.mark.parametrize("others", [1, 5, 20])
def test_it_is_certain_only_if_no_fine_word_can_change_it(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the fine words are: that of the first the largest, those of the others 0."""
    rng, certain = np.random.default_rng(others), 0
    special = [0, 1, 2, 4095, 4096, 2**20, 2**31, MOST - 2**20, MOST - 4096, MOST - 1, MOST]
    for _ in range(4000):
        words = rng.choice(special, others + 1).astype(np.uint32)
        if rng.random() < 0.5:
            words[:] = words[0] - np.minimum(words[0], rng.integers(0, 3, words.size))
        row = (rng.standard_normal(words.size) * rng.choice([0, 1e-4, 1.0, 9.0])).astype(np.float32)
        row[2:] -= rng.choice([0, 20])  # two alone may be near
        monkeypatch.setattr(race, "hashed", lambda *_, words=words: words)
        monkeypatch.setattr(
            race, "coarse_words", lambda ids, _, words=words: [int(words[each]) for each in ids]
        )
        found = raced(row, np.arange(words.size), 0.7, 0)
        if found is None:
            continue
        certain += 1
        fine = np.where(np.arange(words.size) == found, MOST, 0).astype(np.uint32)
        noise = gumbel.from_words(words, fine)
        assert (relative_scores(row, row.max(), 0.7) + noise).argmax() == found
    assert certain > 400


def test_the_lead_is_that_of_the_sums() -> None:
    noise, ids = Noise(5), np.array([70, 3, 900, 12, 5, 41])
    for position in range(1500):
        law = Distribution(row_of(6, 2.0, 0.0, 0.0, position), ids, 0.7)
        sums = law.scores() + noise.gumbel(position, ids)
        token, lead = noise.leader(law.logits.tolist(), ids.tolist(), 0.7, position)
        assert token == ids[sums.argmax()]
        assert lead == pytest.approx(sums.max() - np.sort(sums)[-2], abs=1e-3)
    for logits, first in (([0, -2000], 0), ([0, 2000], 1), ([3], 0)):
        assert noise.leader(logits, ids[: len(logits)].tolist(), 1.0, 0) == (ids[first], np.inf)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(
    size=st.one_of(st.integers(1, 80), st.sampled_from([1000, 1300, 6000, 20_011])),
    spread=st.sampled_from([0.0, 0.5, 2.0, 4.0, 30.0]),
    step=st.sampled_from([0.0, 0.5, 3.0]),
    forbidden=st.sampled_from([0.0, 0.5, 0.999]),
    top_k=st.one_of(st.integers(1, 60), st.sampled_from([1024, 1025])),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.001, 0.05, 0.3, 1.0]),
    temperature=st.sampled_from([1e-6, 0.5, 1.0, 8.0, 50.0]),
    seed=st.integers(0, 2**32),
)
def test_filters_that_are_found_out_late(
    *,
    size: int,
    spread: float,
    step: float,
    forbidden: float,
    top_k: int,
    top_p: float,
    min_p: float,
    temperature: float,
    seed: int,
) -> None:
    row, noise = row_of(size, spread, step, forbidden, seed), Noise(seed)
    params = SamplingParams(top_k=top_k, top_p=top_p, min_p=min_p, temperature=temperature)
    found, wanted = once(row, params), plain_distribution(row, params)
    assert not isinstance(distribution(row, params), Truncated)
    for position in range(4):
        assert noise.sample(found, position) == plain_choice(noise, wanted, position)
    if isinstance(found, Truncated):
        for index, token in enumerate(found.candidates.ids):
            kept = bool((wanted.ids == token).any())
            assert found.leaves(index) == kept
            assert kept or not found._surely_leaves(index)
    assert np.array_equal(found.logits, wanted.logits)
    if found.ids is not None:
        assert np.array_equal(found.ids, wanted.ids)


def late(row: Row, **chosen: Any) -> Truncated:
    found = once(row, SamplingParams(**chosen))
    assert isinstance(found, Truncated)
    return found


@pytest.mark.parametrize("spread", [1.0, 2.0, 4.0])
def test_what_is_likely_is_mostly_plainly_left(spread: float) -> None:
    """Else the filters would sort for nearly every token."""
    noise, asked = Noise(3), 0
    row = row_of(131_072, spread, 0.0, 0.0, 5)
    for position in range(200):
        found = late(row)
        noise.sample(found, position)
        asked += "_left" in vars(found)
    assert asked < 40


def test_tokens_that_are_found_out_late_are_a_distribution_like_others() -> None:
    row = row_of(50_257, 2.0, 0.0, 0.0, 7)
    plain = plain_distribution(row, SamplingParams())
    assert len(late(row)) == len(plain)
    assert np.array_equal(late(row).probabilities(), plain.probabilities())
    assert Draws(1).sample(late(row), 0) == Draws(1).sample(plain, 0)
    assert late(row).maxima().top == row.max()


def test_a_kept_one_does_not_remember_the_row_that_changed() -> None:
    # min-p leaves fewer candidates than top-k would, so the rest of top-k is in the row alone.
    row = row_of(50_257, 4.0, 0.0, 0.0, 8)
    wanted, kept = late(row.copy()), late(row).kept()
    assert wanted.candidates.ids.size < 40
    row[:] = 0
    assert type(kept) is Distribution
    assert np.array_equal(kept.ids, wanted.ids)
    assert np.array_equal(kept.logits, wanted.logits)
