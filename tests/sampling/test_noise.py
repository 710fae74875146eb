"""The noise: its statistics, with fixed seeds and stated limits, and the draw it is used for."""

import math
from itertools import pairwise

import numpy as np
import pytest
from fakes.plain_sampling import row_of_levels
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.sampling import gumbel
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise

N_VOCAB = 131072
TOKENS = np.arange(N_VOCAB)
# |z| beyond this has probability 1e-6 (two sides).
UNLIKELY = 4.892


def gumbels(
    seed: int = 11, positions: int = 8, ids: NDArray[np.intp] = TOKENS
) -> NDArray[np.float64]:
    """(positions, ids) of noise."""
    return np.array([Noise(seed).gumbel(position, ids) for position in range(positions)])


def uniforms(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """The uniform numbers in (0, 1) that this noise came from; small where the noise is large."""
    return np.asarray(-np.expm1(-np.exp(-noise)))


def chi2_z(statistic: float, degrees: int) -> float:
    """A chi-square statistic as a standard normal (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * degrees)
    return ((statistic / degrees) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


def correlation_z(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1]) * math.sqrt(a.size)


# The noise


def test_mean_and_variance_of_a_standard_gumbel() -> None:
    noise = gumbels()
    variance = math.pi**2 / 6
    assert abs(noise.mean() - np.euler_gamma) < UNLIKELY * math.sqrt(variance / noise.size)
    # The fourth central moment of a Gumbel is 5.4 variances squared.
    assert abs(noise.var() - variance) < UNLIKELY * variance * math.sqrt(4.4 / noise.size)
    skewness = ((noise - noise.mean()) ** 3).mean() / noise.std() ** 3
    assert skewness == pytest.approx(1.13955, abs=0.03)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
@pytest.mark.parametrize("bins", [1000, 1024])
def test_uniform_in_a_thousand_bins(seed: int, bins: int) -> None:
    uniform = np.exp(-np.exp(-gumbels(seed)))
    counts, _ = np.histogram(uniform, bins, (0, 1))
    expected = uniform.size / bins
    statistic = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi2_z(statistic, bins - 1)) < UNLIKELY


def test_tail_where_winners_are_drawn() -> None:
    uniform = uniforms(gumbels(positions=16))
    for bits in range(1, 17):
        p = 2.0**-bits
        count = int((uniform < p).sum())
        spread = math.sqrt(uniform.size * p * (1 - p))
        assert abs(count - uniform.size * p) < UNLIKELY * spread + 1, bits


def test_finite_and_hardly_ever_twice_the_same() -> None:
    noise = gumbels()
    assert np.isfinite(noise).all()
    assert noise.min() > -4
    assert all(np.unique(row).size == row.size for row in noise)


@pytest.mark.parametrize("step", [1, 2, 3, 64, 1024, 32768, 65536])
def test_neighbouring_tokens_are_uncorrelated(step: int) -> None:
    noise = gumbels(positions=8)
    for transformed in (noise, uniforms(noise)):
        assert abs(correlation_z(transformed[:, step:], transformed[:, :-step])) < UNLIKELY


@pytest.mark.parametrize("step", [1, 2, 256, 2**31, 2**32, 2**40])
def test_neighbouring_positions_are_uncorrelated(step: int) -> None:
    noise = Noise(3)
    for start in (0, 1, 1000):
        here, there = (uniforms(noise.gumbel(p, TOKENS)) for p in (start, start + step))
        assert abs(correlation_z(here, there)) < UNLIKELY
        assert abs(correlation_z(here[1:], there[:-1])) < UNLIKELY


@pytest.mark.parametrize("step", [1, 2, 256, 2**31, 2**32, 2**40])
def test_neighbouring_seeds_are_uncorrelated(step: int) -> None:
    for start in (0, 1, 1000):
        here, there = (uniforms(Noise(s).gumbel(5, TOKENS)) for s in (start, start + step))
        assert abs(correlation_z(here, there)) < UNLIKELY


def test_seed_and_position_do_not_stand_in_for_each_other() -> None:
    rows = [uniforms(Noise(s).gumbel(p, TOKENS)) for s in range(4) for p in range(4)]
    worst = max(abs(correlation_z(a, b)) for i, a in enumerate(rows) for b in rows[:i])
    assert worst < 5.5


def test_one_token_across_positions_and_seeds() -> None:
    token = np.array([42])
    along = uniforms(np.array([Noise(9).gumbel(p, token)[0] for p in range(20_000)]))
    across = uniforms(np.array([Noise(s).gumbel(9, token)[0] for s in range(20_000)]))
    for uniform in (along, across):
        counts, _ = np.histogram(uniform, 100, (0, 1))
        assert abs(chi2_z(float(((counts - 200) ** 2 / 200).sum()), 99)) < UNLIKELY
        assert abs(correlation_z(uniform[1:], uniform[:-1])) < UNLIKELY


def signs(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 32): the leading 32 bits of the uniform numbers, as +1 and -1."""
    words = (uniforms(noise) * 2.0**32).astype(np.uint64)
    return ((words[:, None] >> np.arange(32, dtype=np.uint64)) & np.uint64(1)) * 2.0 - 1


def test_bits_are_fair_and_pairwise_independent() -> None:
    here = signs(Noise(7).gumbel(100, TOKENS))
    assert np.abs(here.sum(axis=0)).max() < UNLIKELY * math.sqrt(N_VOCAB)
    others = {
        "other bits": here,
        "next token": np.roll(here, -1, axis=0),
        "next position": signs(Noise(7).gumbel(101, TOKENS)),
        "next seed": signs(Noise(8).gumbel(100, TOKENS)),
    }
    for name, there in others.items():
        z = here.T @ there / math.sqrt(N_VOCAB)
        if name == "other bits":
            np.fill_diagonal(z, 0)
        # 1024 pairs each: a |z| above 6 anywhere has probability 2e-6.
        assert np.abs(z).max() < 6, name


def test_pinned_so_that_seeds_keep_their_texts() -> None:
    ids = np.array([0, 1, 31999, 131071])
    assert Noise(0).gumbel(0, ids) == pytest.approx(PINNED_AT_0, rel=1e-12)
    assert Noise(2**64 - 1).gumbel(2**40, ids) == pytest.approx(PINNED_AT_END, rel=1e-12)


PINNED_AT_0 = [-0.7057051764790483, 0.08523602405085536, -0.045163998466641216, 1.0978002931621398]
PINNED_AT_END = [0.18206972816719655, -0.40862968076855466, -1.3047688070278114, 5.686469012939742]


@pytest.mark.parametrize("coarse", [0, 1, 2, 4095, 2**20, 2**31, 2**32 - 2, 2**32 - 1])
def test_what_the_coarse_word_says_of_the_noise(coarse: int) -> None:
    """Bounds that no fine word passes, and that are hardly ever looser."""
    least, most = (
        float(gumbel.from_words(np.array([coarse], np.uint32), np.array([fine], np.uint32))[0])
        for fine in (2**32 - 1, 0)
    )
    assert math.isfinite(least) and least <= most <= gumbel.at_most(coarse) <= most + 1e-6
    assert coarse <= gumbel.largest_coarse(most) <= gumbel.largest_coarse(least) <= coarse + 2
    assert gumbel.largest_coarse(-5.0) == gumbel.largest_coarse(-1e4) == 2**32 - 1


# Purity


def test_a_function_of_seed_position_and_token_alone() -> None:
    noise = Noise(5)
    wanted = {p: noise.gumbel(p, TOKENS) for p in (0, 1, 77)}
    shuffled = np.random.default_rng(0).permutation(N_VOCAB)
    other = Noise(5)
    for position in (77, 0, 1, 0):
        assert np.array_equal(other.gumbel(position, shuffled), wanted[position][shuffled])
        some = shuffled[:3].astype(np.int32)
        assert np.array_equal(other.gumbel(position, some), wanted[position][some])


def test_choices_do_not_depend_on_those_before() -> None:
    rows = [Distribution(random_row(n, 3, n)) for n in (6, 1500, 2000, 6000)]
    in_order = Noise(1)
    wanted = {(i, p): in_order.sample(rows[i], p) for i in range(4) for p in range(20)}
    shared = Noise(1)
    for i, p in reversed(wanted):
        assert shared.sample(rows[i], p) == wanted[i, p] == Noise(1).sample(rows[i], p)


@pytest.mark.parametrize("seed", [-1, 2**64, 2**70])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(InvalidValueError, match=f"seed is {seed}; "):
        Noise(seed)


def test_seeds_and_positions_of_every_size_differ() -> None:
    seeds = [0, 1, 2**31, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    assert len({float(Noise(s).gumbel(0, np.array([0]))[0]) for s in seeds}) == len(seeds)
    positions = [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**33, 2**63, 2**64 - 1]
    assert len({float(Noise(0).gumbel(p, np.array([0]))[0]) for p in positions}) == len(positions)


# How often each token is drawn


def g_test_z(counts: NDArray[np.intp], probabilities: NDArray[np.float64]) -> float:
    seen = counts > 0
    expected = probabilities * counts.sum()
    g = 2 * float((counts[seen] * np.log(counts[seen] / expected[seen])).sum())
    return chi2_z(max(g, 1e-9), counts.size - 1)


# chi2_z beyond this has probability 1e-6 (one side: only misfits count).
MISFIT = 4.753


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("ids", [None, [5, 999, 3, 70_000, 131_071, 0]])
def test_six_tokens_are_drawn_as_often_as_they_should(
    temperature: float, ids: list[int] | None
) -> None:
    logits = np.log(np.array([0.4, 0.25, 0.2, 0.1, 0.04, 0.01], np.float32))
    drawn_from = Distribution(logits, None if ids is None else np.array(ids), temperature)
    tokens = range(6) if ids is None else ids
    wanted = drawn_from.probabilities()
    by_seed = [Noise(seed).sample(drawn_from, 17) for seed in range(20_000)]
    noise = Noise(4)
    by_position = [noise.sample(drawn_from, position) for position in range(20_000)]
    for drawn in (by_seed, by_position):
        counts = np.array([drawn.count(token) for token in tokens])
        assert counts.sum() == 20_000
        assert g_test_z(counts, wanted) < MISFIT


@pytest.mark.parametrize("temperature", [0.7, 1.0, 4.0])
def test_many_tokens_are_drawn_as_often_as_they_should(temperature: float) -> None:
    drawn_from = Distribution(random_row(3000, 2, 0), None, temperature)
    # Groups of about the same probability, so that all of them are seen.
    group = np.minimum((np.cumsum(drawn_from.probabilities()) * 50).astype(int), 49)
    wanted = np.bincount(group, drawn_from.probabilities(), 50)
    drawn = [Noise(seed).sample(drawn_from, 1) for seed in range(5_000)]
    kept = wanted > 0
    counts = np.bincount(group[drawn], minlength=50)
    assert g_test_z(counts[kept], wanted[kept]) < MISFIT


def test_draws_at_successive_positions_are_independent() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    noise = Noise(12)
    drawn = [noise.sample(Distribution(logits), position) for position in range(30_000)]
    pairs = np.zeros((3, 3), int)
    for pair in pairwise(drawn):
        pairs[pair] += 1
    p = np.array([0.5, 0.3, 0.2])
    assert g_test_z(pairs.ravel(), np.outer(p, p).ravel()) < MISFIT


# Choosing among many, which prunes, against the argmax over everything


def random_row(n: int, scale: float, seed: int) -> NDArray[np.float32]:
    return (np.random.default_rng([n, seed]).standard_normal(n) * scale).astype(np.float32)


def argmax_of_all(noise: Noise, distribution: Distribution, position: int) -> int:
    ids = np.arange(len(distribution)) if distribution.ids is None else distribution.ids
    return int(ids[(distribution.scores() + noise.gumbel(position, ids)).argmax()])


def argmax_below_the_top(noise: Noise, distribution: Distribution, position: int) -> int:
    """The same where scores are so large that adding noise to them would round it away."""
    ids = np.arange(len(distribution)) if distribution.ids is None else distribution.ids
    logits = distribution.logits.astype(np.float64)
    scores = (logits - logits.max()) / distribution.temperature
    return int(ids[(scores + noise.gumbel(position, ids)).argmax()])


@pytest.mark.parametrize("scale", [0.01, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("temperature", [0.1, 0.8, 1.0, 5.0])
@pytest.mark.parametrize("with_ids", [False, True])
@pytest.mark.parametrize("forbidden", [0.0, 0.3, 0.98])
def test_choosing_among_the_vocabulary(
    scale: float, temperature: float, with_ids: bool, forbidden: float
) -> None:
    rng = np.random.default_rng(0)
    noise = Noise(int(scale * 100))
    row = random_row(N_VOCAB, scale, 0)
    row[rng.random(N_VOCAB) < forbidden] = -np.inf
    ids = None
    if with_ids:
        ids = rng.permutation(N_VOCAB)[: N_VOCAB // 2]
        row = row[ids]
    drawn_from = Distribution(row, ids, temperature)
    for position in range(5):
        chosen = noise.sample(drawn_from, position)
        assert chosen == argmax_of_all(noise, drawn_from, position)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    n=st.one_of(st.integers(1020, 1030), st.integers(1025, 4000)),
    scale=st.sampled_from([0.0, 0.1, 1.0, 5.0, 30.0]),
    levels=st.sampled_from([0, 1, 3]),
    peak=st.one_of(st.just(0.0), st.floats(-40, 40)),
    temperature=st.floats(0.05, 20),
    forbidden=st.sampled_from([0.0, 0.5, 0.999]),
    with_ids=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    position=st.integers(0, 2**40),
)
def test_choosing_among_more_than_a_few(
    *,
    n: int,
    scale: float,
    levels: int,
    peak: float,
    temperature: float,
    forbidden: float,
    with_ids: bool,
    seed: int,
    position: int,
) -> None:
    rng = np.random.default_rng(seed)
    row = row_of_levels(rng, size=n, spread=scale, step=levels, forbidden=forbidden, peak=peak)
    ids = rng.permutation(200_000)[:n] if with_ids else None
    drawn_from = Distribution(row, ids, temperature)
    noise = Noise(seed)
    assert noise.sample(drawn_from, position) == argmax_of_all(noise, drawn_from, position)


@pytest.mark.parametrize("temperature", [1e-45, 1e-12, 1e-6, 1e-3, 1.0, 1e6, 1e30, 1e38, 1e300])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 12.0, 1e5, 1e30])
@pytest.mark.parametrize("n", [6, 1500])
def test_extreme_temperatures_and_logits(n: int, scale: float, temperature: float) -> None:
    for seed in range(10):
        row = random_row(n, scale, seed)
        if seed % 2:
            row[3:6] = row.max() + np.float32(scale)
        if seed % 3 == 0:
            row[::2] = -np.inf
        noise, drawn_from = Noise(seed), Distribution(row, None, temperature)
        wanted = argmax_below_the_top(noise, drawn_from, seed)
        assert noise.sample(drawn_from, seed) == wanted


def test_rows_as_wide_as_float32() -> None:
    most = np.finfo(np.float32).max
    row = np.full(2000, -most, np.float32)
    row[[7, 1900]] = most
    for temperature in (1e-6, 1.0, 1e6):
        drawn = {Noise(s).sample(Distribution(row, None, temperature), 0) for s in range(40)}
        assert drawn == {7, 1900}


@pytest.mark.parametrize("logit", [0.0, 30.0, 1e6, 1e30, -1e30])
@pytest.mark.parametrize("temperature", [1e-6, 1e-12])
@pytest.mark.parametrize("n", [8, 1032])
def test_equal_logits_are_drawn_equally_however_large(
    logit: float, temperature: float, n: int
) -> None:
    row = np.full(n, -np.inf, np.float32)
    row[-8:] = logit
    drawn_from = Distribution(row, None, temperature)
    drawn = [Noise(seed).sample(drawn_from, 0) for seed in range(2000)]
    counts = np.bincount(drawn, minlength=n)[-8:]
    assert g_test_z(counts, np.full(8, 1 / 8)) < MISFIT


def test_one_choice_needs_no_noise() -> None:
    assert Noise(0).sample(Distribution(np.array([1.5], np.float32), np.array([77])), 0) == 77
    forbidden = np.full(5000, -np.inf, np.float32)
    forbidden[4321] = -200
    assert all(Noise(s).sample(Distribution(forbidden), 0) == 4321 for s in range(20))


def test_logits_are_left_as_they_are() -> None:
    for n in (6, 3000):
        row = random_row(n, 2, 0)
        row.flags.writeable = False
        before = row.copy()
        Noise(0).sample(Distribution(row), 0)
        assert np.array_equal(row, before)


def test_filtered_and_whole_vocabulary_agree_on_a_shared_winner() -> None:
    # What couples target and drafter: a token that wins among all also wins among some.
    row = random_row(5000, 3, 0)
    some = np.argsort(-row)[:200]
    shared = 0
    for seed in range(300):
        winner = Noise(seed).sample(Distribution(row), 3)
        if winner in some:
            shared += 1
            assert Noise(seed).sample(Distribution(row[some], some), 3) == winner
    assert shared > 100
