"""The quick filters, and the quick search for the winner, equal plain ones bit for bit."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from fakes.plain_sampling import plain_choice, plain_distribution, row_of_levels
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.sampling import lucky_tokens
from localspec.sampling.block_maxima import BlockMaxima
from localspec.sampling.distribution import Distribution
from localspec.sampling.draws import Draws
from localspec.sampling.filters import distribution
from localspec.sampling.keyed_hash import hashed, keys_of, mixed, tokens_below
from localspec.sampling.lucky_tokens import LuckyTokens
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler

Row = NDArray[np.float32]

SIZES = st.one_of(
    st.integers(1, 80), st.integers(1000, 1100), st.integers(1100, 6000), st.just(32_000)
)
ROWS = {
    "size": SIZES,
    "spread": st.sampled_from([0.0, 0.1, 1.0, 4.0, 30.0]),
    "step": st.sampled_from([0.0, 0.5, 3.0]),
    "forbidden": st.sampled_from([0.0, 0.5, 0.999]),
    "peak": st.one_of(st.just(0.0), st.floats(-40, 40)),
    "seed": st.integers(0, 2**32),
}


def row_of(*, seed: int, **chosen: Any) -> Row:
    return row_of_levels(np.random.default_rng(seed), **chosen)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(
    **ROWS,
    top_k=st.one_of(st.just(0), st.integers(1, 100), st.integers(1, 7000)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.001, 1.0)),
    typical_p=st.one_of(st.just(1.0), st.just(1.0), st.floats(0.1, 1.0)),
    top_n_sigma=st.one_of(st.just(0.0), st.floats(0.1, 4.0)),
    dynatemp_range=st.one_of(st.just(0.0), st.floats(0.1, 4.0)),
    temperature=st.sampled_from([0.0, 1e-6, 0.8, 1.0, 50.0]),
)
def test_filters_keep_the_same_tokens_in_the_same_order(
    *,
    top_k: int,
    top_p: float,
    min_p: float,
    typical_p: float,
    top_n_sigma: float,
    dynatemp_range: float,
    temperature: float,
    **chosen: Any,
) -> None:
    row = row_of(**chosen)
    params = SamplingParams(
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        typical_p=typical_p,
        top_n_sigma=top_n_sigma,
        dynatemp_range=dynatemp_range,
        temperature=temperature,
    )
    found, wanted = distribution(row, params), plain_distribution(row, params)
    ids = np.arange(row.size) if found.ids is None else found.ids
    assert np.array_equal(ids, wanted.ids)
    assert np.array_equal(found.logits, wanted.logits)
    assert found.logits.dtype == np.float32
    assert found.temperature == pytest.approx(wanted.temperature, rel=1e-9)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(**ROWS, bound=st.floats(-50, 50, width=32), k=st.integers(1, 7000))
def test_block_maxima_find_what_the_whole_row_has(*, bound: float, k: int, **chosen: Any) -> None:
    row = row_of(**chosen)
    maxima = BlockMaxima(row)
    assert maxima.top == row.max()
    assert np.array_equal(maxima.at_least(np.float32(bound)), np.flatnonzero(row >= bound))
    assert np.array_equal(maxima.at_least(maxima.top), np.flatnonzero(row == row.max()))
    assert maxima.has_more(k, np.float32(bound)) == (np.count_nonzero(row >= bound) > k)
    values, ids = maxima.largest(k)
    assert np.array_equal(ids, np.argsort(-row, kind="stable")[:k])
    assert np.array_equal(values, row[ids])


@pytest.mark.parametrize("size", [1, 31, 32, 33, 2000, 4097])
def test_one_nan_anywhere_is_the_top(size: int) -> None:
    for place in {0, size // 2, size - 1}:
        row = np.zeros(size, np.float32)
        row[place] = np.nan
        assert np.isnan(BlockMaxima(row).top)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    **ROWS,
    temperature=st.sampled_from([1e-45, 1e-6, 0.3, 1.0, 8.0, 1e6, 1e300]),
    position=st.integers(0, 2**40),
)
def test_the_winner_of_the_whole_vocabulary(
    *, temperature: float, position: int, **chosen: Any
) -> None:
    row, noise = row_of(**chosen), Noise(chosen["seed"])
    drawn_from = Distribution(row, None, temperature)
    assert noise.sample(drawn_from, position) == plain_choice(noise, drawn_from, position)


@pytest.mark.parametrize("n_vocab", [32_000, 128_256, 131_072, 151_669, 262_144])
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_the_winner_of_real_sizes(n_vocab: int, spread: float) -> None:
    rng, noise = np.random.default_rng(n_vocab), Noise(9)
    row = (rng.standard_normal(n_vocab) * spread).astype(np.float32)
    peaked = row.copy()
    peaked[n_vocab // 3] += 20
    for position in range(4):
        for logits in (row, peaked):
            drawn_from = Distribution(logits)
            assert noise.sample(drawn_from, position) == plain_choice(noise, drawn_from, position)
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    assert noise.sample(distribution(peaked, params), 5) == plain_choice(
        noise, Distribution(peaked), 5
    )


def test_a_kept_distribution_does_not_remember_the_row_that_changed() -> None:
    row = np.zeros(5000, np.float32)
    row[7] = 30
    params = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    kept = distribution(row, params).kept()
    row[:] = 0
    row[4000] = 30
    assert Noise(0).sample(kept, 0) == 7


# Lucky tokens


@pytest.mark.parametrize("n_vocab", [1, 1025, 16_384, 16_385, 50_257])
def test_tokens_below_a_bound_are_those_whose_hash_is(n_vocab: int) -> None:
    words = mixed(np.arange(n_vocab))
    for position in range(3):
        keys = keys_of(5, position)[:, 0]
        for bound in (1 << 16, 1 << 23, 1 << 31):
            wanted = np.flatnonzero(hashed(words, keys) < bound)
            assert np.array_equal(tokens_below(bound, n_vocab, keys), wanted)


def test_lucky_are_the_tokens_with_large_noise() -> None:
    noise = Noise(3)
    every = noise.gumbel(11, np.arange(50_000))
    lucky = LuckyTokens(3).at(11, 50_000)
    assert 50_000 / 1024 < lucky.ids.size < 50_000 / 256
    assert np.array_equal(lucky.noise, every[lucky.ids])
    others = np.delete(every, lucky.ids)
    assert others.max() <= lucky_tokens.NOISE_WITHOUT_LUCK < lucky.noise.min() + 1e-6


def same(found: lucky_tokens.Lucky, wanted: lucky_tokens.Lucky) -> bool:
    return np.array_equal(found.ids, wanted.ids) and np.array_equal(found.noise, wanted.noise)


def worker() -> ThreadPoolExecutor:
    return lucky_tokens._worker_of(os.getpid())


def test_foreseen_tokens_are_the_same_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {position: LuckyTokens(1).at(position, 5000) for position in range(12)}
    foreseen, searched = LuckyTokens(1), list[int]()
    assert same(foreseen.at(0, 5000), wanted[0])
    foreseen.foresee(range(10))
    worker().submit(lambda: None).result(60)
    find = lucky_tokens._find

    def counted(seed: int, position: int, n_vocab: int) -> lucky_tokens.Lucky:
        searched.append(position)
        return find(seed, position, n_vocab)

    monkeypatch.setattr(lucky_tokens, "_find", counted)
    assert all(same(foreseen.at(position, 5000), wanted[position]) for position in range(12))
    assert searched == [10, 11]


def test_what_the_other_thread_has_not_begun_is_not_waited_for() -> None:
    wanted = [LuckyTokens(1).at(position, 5000) for position in range(4)]
    foreseen, go_on = LuckyTokens(1), threading.Event()
    foreseen.at(0, 5000)
    busy = worker().submit(go_on.wait, 60)
    foreseen.foresee(range(4))
    try:
        assert all(same(foreseen.at(position, 5000), wanted[position]) for position in range(4))
        assert not busy.done()
    finally:
        go_on.set()


def test_another_vocabulary_has_other_lucky_tokens() -> None:
    lucky = LuckyTokens(2)
    lucky.at(0, 4000)
    lucky.foresee(range(3))
    for n_vocab in (9000, 4000):
        assert all(
            same(lucky.at(position, n_vocab), LuckyTokens(2).at(position, n_vocab))
            for position in range(3)
        )


def test_a_drafter_with_fewer_tokens_searches_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does its target after it: vocabularies of one family have paddings of their own."""
    wanted = {n: [LuckyTokens(3).at(place, n) for place in range(4)] for n in (8900, 9000)}
    lucky, searched = LuckyTokens(3), list[int]()
    find = lucky_tokens._find

    def counted(seed: int, position: int, n_vocab: int) -> lucky_tokens.Lucky:
        # What another test foresaw may still be sought in the thread that all texts share.
        if seed == 3:
            searched.append(position)
        return find(seed, position, n_vocab)

    monkeypatch.setattr(lucky_tokens, "_find", counted)
    for n_vocab in (9000, 8900, 9000, 8900):
        for position in range(4):
            assert same(lucky.at(position, n_vocab), wanted[n_vocab][position])
    assert searched == [0, 1, 2, 3]


TEXT_AT_THE_END = """
import os, sys, threading
from localspec.sampling.lucky_tokens import LuckyTokens

lucky = LuckyTokens(1)
lucky.at(0, 5000)
lucky.foresee(range(1, 3))

def text(expected):
    lucky.foresee(range(1, 6))
    found = [lucky.at(position, 5000).ids.tolist() for position in range(1, 6)]
    print(found == expected, flush=True)

expected = [LuckyTokens(1).at(position, 5000).ids.tolist() for position in range(1, 6)]
def at_the_end():
    threading.main_thread().join()
    text(expected)
if sys.argv[1] == "thread":
    threading.Thread(target=at_the_end).start()
elif child := os.fork():
    assert not os.waitpid(child, 0)[1]
else:
    lucky = LuckyTokens(1)
    lucky.at(0, 5000)
    text(expected)
    os._exit(0)
"""


@pytest.mark.parametrize("where", ["thread", "fork"])
def test_a_text_in_a_thread_that_outlives_the_main_one_and_in_a_fork(where: str) -> None:
    """Python takes no work for thread pools by then; and a fork has no threads of its parent."""
    if where == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system has no forks")
    command = [sys.executable, "-W", "ignore", "-c", TEXT_AT_THE_END, where]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert found.stdout.split() == ["True"], found.stderr


def test_only_a_bounded_number_of_positions_is_kept() -> None:
    lucky = LuckyTokens(2)
    for position in range(3000):
        lucky.at(position, 1025)
    assert len(lucky._found) <= lucky_tokens._MOST_POSITIONS + 1


def test_a_text_that_never_sampled_from_the_whole_vocabulary_foresees_nothing() -> None:
    noise = Noise(4)
    sampler = Sampler(SamplingParams(), noise)
    sampler.foresee(range(9))
    row = np.arange(5000, dtype=np.float32)
    prefix = sampler.prefix([1])
    sampler.sample(sampler.distribution(row, prefix), prefix)
    sampler.foresee(range(9))
    assert not noise._lucky._found
    Sampler(SamplingParams(), Draws(0)).foresee(range(9))
