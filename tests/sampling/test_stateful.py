"""Mirostat and adaptive-p against llama.cpp's own samplers, and against a plain reference.

llama.cpp's samplers draw by themselves: each text goes on with what they drew, so that their state
is moved along with ours. It shows in what they leave of the next row.
"""

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import llama_cpp
import numpy as np
import pytest
from fakes.plain_sampling import plain_count, plain_softmax, plain_stateful
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.sampling.distribution import Distribution, relative_scores
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler

DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
LENGTH, SCALES = 40, (1.0, 3.0, 6.0)
# llama.cpp's state is a float32, and so are its probabilities.
NEAR, TOLERANCE = 3e-5, 5e-4


@contextmanager
def chain(*samplers: Any) -> Iterator[Any]:
    made = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    for sampler in samplers:
        llama_cpp.llama_sampler_chain_add(made, sampler)
    yield made
    llama_cpp.llama_sampler_free(made)


def drawn(made: Any, row: np.ndarray) -> tuple[int, np.ndarray]:
    """What a chain draws after a row, and the probabilities that it draws with."""
    data = np.zeros(row.size, DATA)
    data["id"], data["logit"] = np.arange(row.size), row
    pointer = data.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data))
    array = llama_cpp.llama_token_data_array(pointer, data.size, -1, False)
    llama_cpp.llama_sampler_apply(made, ctypes.byref(array))
    token = int(data["id"][array.selected])
    llama_cpp.llama_sampler_accept(made, token)
    left = data[: array.size]
    chances = np.zeros(row.size)
    chances[left["id"]] = left["p"]
    return token, chances


def of_llama_cpp(params: SamplingParams, n_vocab: int, seed: int) -> list[Any]:
    temperature = llama_cpp.llama_sampler_init_temp(params.temperature)
    if params.mirostat == 1:
        tau, eta = params.mirostat_tau, params.mirostat_eta
        return [temperature, llama_cpp.llama_sampler_init_mirostat(n_vocab, seed, tau, eta, 100)]
    if params.mirostat == 2:
        tau, eta = params.mirostat_tau, params.mirostat_eta
        return [temperature, llama_cpp.llama_sampler_init_mirostat_v2(seed, tau, eta)]
    return [
        llama_cpp.llama_sampler_init_top_k(params.top_k),
        llama_cpp.llama_sampler_init_min_p(params.min_p, 1),
        llama_cpp.llama_sampler_init_temp_ext(
            params.temperature, params.dynatemp_range, params.dynatemp_exponent
        ),
        llama_cpp.llama_sampler_init_adaptive_p(
            params.adaptive_target, params.adaptive_decay, seed
        ),
    ]


def is_nearly_whole(count: float, most: int, distance: float) -> bool:
    """Whether rounding may decide how many of the likeliest tokens these are."""
    return 1.5 < count < most + 0.5 and abs(count - round(count)) < distance * count


def is_near(row: np.ndarray, params: SamplingParams, state: float) -> bool:
    """Whether rounding may decide what mirostat keeps."""
    every = plain_softmax((row.astype(np.float64) / params.temperature).tolist())
    likely = sorted(every, reverse=True)[:100]
    if params.mirostat == 1:
        count = plain_count(every, state)
        # Probabilities that are no float32 and counts that are no int32 are arbitrary there.
        arbitrary = likely[-1] < 1e-35 or count > 2**31 - 1
        return arbitrary or is_nearly_whole(count, row.size, NEAR)
    return min(abs(-math.log2(each) - state) for each in every if each) < NEAR


MIROSTAT = [
    {"temperature": temperature, "mirostat": version, "mirostat_tau": tau, "mirostat_eta": eta}
    for version in (1, 2)
    for temperature, tau, eta in [
        (1.0, 5.0, 0.1),
        (0.8, 3.0, 0.1),
        (1.0, 1.0, 0.5),
        (1.5, 4.0, 1.0),
        (0.7, 0.3, 0.9),
        (1.0, 0.0, 0.1),
        (1.0, 6.0, 0.0),
    ]
]
ADAPTIVE = [
    {
        "temperature": temperature,
        "top_k": k,
        "top_p": 1.0,
        "min_p": p,
        "adaptive_target": target,
        "adaptive_decay": decay,
        "dynatemp_range": dynamic,
    }
    for temperature, k, p, target, decay, dynamic in [
        (1.0, 0, 0.0, 0.5, 0.9, 0.0),
        (1.0, 0, 0.05, 0.55, 0.9, 0.5),
        (0.7, 40, 0.0, 0.3, 0.5, 0.6),
        (1.3, 10, 0.01, 0.0, 1.0, 0.0),
        (1.0, 0, 0.1, 1.0, 0.0, 0.0),
    ]
]


@pytest.mark.parametrize("n_vocab", [120, 4096])
@pytest.mark.parametrize("chosen", [*MIROSTAT, *ADAPTIVE], ids=str)
def test_same_as_llama_cpp(chosen: dict[str, Any], n_vocab: int) -> None:
    params = SamplingParams(**chosen)
    rng = np.random.default_rng(n_vocab)
    # A text ends where rounding decides what is kept.
    lengths = [compare(params, rng, n_vocab, seed=text) for text in range(10)]
    assert sum(lengths) >= 40 and max(lengths) >= 10, lengths


def compare(params: SamplingParams, rng: np.random.Generator, n_vocab: int, *, seed: int) -> int:
    """Compare a text's rows; returns how many."""
    sampler = Sampler(params, Noise(0))
    prefix = sampler.prefix([0])
    with chain(*of_llama_cpp(params, n_vocab, seed)) as made:
        for place in range(LENGTH):
            row = (rng.standard_normal(n_vocab) * rng.choice(SCALES)).astype(np.float32)
            assert prefix.state is not None
            if params.mirostat and is_near(row, params, prefix.state):
                return place
            law = sampler.distribution(row, prefix)
            token, theirs = drawn(made, row)
            ours = law.dense(n_vocab)
            assert np.array_equal(ours > 1e-9, theirs > 1e-9)
            assert np.abs(ours - theirs).max() < TOLERANCE
            prefix = prefix.then(token, law.state_after(token))
    return LENGTH


ROWS = st.lists(
    st.sampled_from([-np.inf, -3.0, -1.0, -0.5, 0.0, 0.0, 0.25, 1.0, 2.0, 5.0]),
    min_size=1,
    max_size=130,
).filter(lambda row: max(row) > -np.inf)


@given(ROWS, st.integers(0, 12), st.sampled_from([*MIROSTAT, *ADAPTIVE]))
@example([-np.inf, 1.0], 3, MIROSTAT[0])
@example([-np.inf, -np.inf, -np.inf, -3.0, -3.0], 2, MIROSTAT[0])
def test_same_as_token_by_token(row: list[float], state: int, chosen: dict[str, Any]) -> None:
    """Also where tokens are forbidden, equally likely, few or alone."""
    params, logits = SamplingParams(**chosen), np.array(row, np.float32)
    prefix = Prefix(1, state=float(state) if params.mirostat else min(1.0, state / 12))
    assert prefix.state is not None
    if params.mirostat and is_bound(logits, params, prefix.state):
        return
    law = Sampler(params, Noise(0)).distribution(logits, prefix)
    chances, moved = plain_stateful(logits, params, prefix.state)
    assert law.dense(len(row)) == pytest.approx(chances, abs=1e-6)
    for token, chance in enumerate(chances):
        after = law.state_after(token)
        if chance:
            assert after == pytest.approx(moved[token], abs=1e-6)
        elif law.index(token) is None:
            assert after is None
        if params.mirostat and logits[token] == -np.inf:
            assert law.index(token) is None
    assert np.array_equal(logits, np.array(row, np.float32))


def is_bound(row: np.ndarray, params: SamplingParams, state: float) -> bool:
    """Whether floats decide here."""
    every = plain_softmax((row.astype(np.float64) / params.temperature).tolist())
    if params.mirostat == 1:
        return is_nearly_whole(plain_count(every, state), row.size, 1e-6)
    return min(abs(-math.log2(each) - state) for each in every if each) < 1e-5


@pytest.mark.parametrize(
    ("version", "count", "bits", "kept"),
    [(2, 2, 1, 2), (2, 8, 3, 8), (1, 3, 1, 1), (1, 5, 2, 1), (1, 9, 3, 1)],
)
def test_what_carries_just_as_much_as_it_may(
    version: int, count: int, bits: int, kept: int
) -> None:
    """Of equally likely tokens, whose numbers are not rounded; same as llama.cpp."""
    params = SamplingParams(temperature=1.0, mirostat=version, mirostat_tau=bits / 2)
    sampler, row = Sampler(params, Noise(0)), np.zeros(count, np.float32)
    ours = sampler.distribution(row, sampler.prefix([0])).dense(count)
    with chain(*of_llama_cpp(params, count, 0)) as made:
        _, theirs = drawn(made, row)
    assert np.count_nonzero(ours) == np.count_nonzero(theirs) == kept


def test_probabilities_that_fall_as_by_zipfs_law_are_no_special_case() -> None:
    """Where the exponent is just 1, the formula has its limit. All of the vocabulary counts."""
    row = np.array([0, -1, *[-np.inf] * 30], np.float32)
    counts = []
    for temperature in (1 / math.log(2), 1.4427):
        params = SamplingParams(temperature=temperature, mirostat=1, mirostat_tau=0.8)
        sampler = Sampler(params, Noise(0))
        counts.append(len(sampler.distribution(row, sampler.prefix([0]))))
    exponent = -float(np.diff(relative_scores(row[:2], row[0], 1 / math.log(2)))[0]) / math.log(2)
    assert exponent == 1 and counts == [1, 1]


@pytest.mark.parametrize("version", [1, 2])
def test_a_token_that_is_never_drawn_leaves_the_state(version: int) -> None:
    """A drafter may propose it: it is kept, with a probability too small for a float."""
    sampler, prefix = Sampler(SamplingParams(mirostat=version), Noise(0)), Prefix(1, state=1e5)
    law = sampler.distribution(np.array([0, -900], np.float32), prefix)
    assert law.probabilities()[1] == 0
    assert law.state_after(1) == prefix.state


@pytest.mark.parametrize("chosen", [MIROSTAT[1], MIROSTAT[8], ADAPTIVE[1]], ids=str)
def test_a_text_carries_what_was_asked_for(chosen: dict[str, Any]) -> None:
    """The samplers' purpose: the mean of what is drawn is the target."""
    params = SamplingParams(**chosen)
    rng = np.random.default_rng(5)
    sampler = Sampler(params, noise := Noise(3))
    prefix, seen = sampler.prefix([0]), list[float]()
    for _ in range(600):
        row = (rng.standard_normal(500) * rng.choice([1, 3])).astype(np.float32)
        law = sampler.distribution(row, prefix)
        token = noise.sample(law, prefix.position)
        p = plain_softmax((row / params.temperature).astype(np.float64).tolist())
        index = law.index(token)
        assert index is not None
        seen.append(-math.log2(law.probabilities()[index]) if params.mirostat else p[token])
        prefix = prefix.then(token, law.state_after(token))
    if params.mirostat:
        assert np.mean(seen[100:]) == pytest.approx(params.mirostat_tau, abs=0.15)


def test_what_is_kept_is_no_view_of_the_models_buffer() -> None:
    for chosen in (MIROSTAT[0], MIROSTAT[7], ADAPTIVE[0]):
        sampler = Sampler(SamplingParams(**chosen), Noise(0))
        row = np.linspace(0, 3, 300, dtype=np.float32)
        law = sampler.distribution(row, sampler.prefix([0])).kept()
        before, after = law.dense(300), law.state_after(299)
        row[:] = 0
        assert np.array_equal(law.dense(300), before)
        assert law.state_after(299) == after is not None


@pytest.mark.parametrize("chosen", [*MIROSTAT, *ADAPTIVE], ids=str)
def test_the_likeliest_token_is_taken_at_temperature_0(chosen: dict[str, Any]) -> None:
    sampler = Sampler(SamplingParams(**{**chosen, "temperature": 0.0, "typical_p": 0.2}), Noise(0))
    prefix = sampler.prefix([0])
    assert prefix.state is None
    row = np.random.default_rng(1).standard_normal(300).astype(np.float32)
    law = sampler.distribution(row, prefix)
    if "mirostat" in chosen:
        assert [law.token(0)] == [int(row.argmax())]
    assert len(law) == 1 and prefix.then(law.token(0), law.state_after(law.token(0))).state is None


@pytest.mark.parametrize("version", [1, 2])
def test_no_other_sampler_is_on_beside_mirostat(version: int) -> None:
    others: dict[str, Any] = {
        "top_k": 3, "top_p": 0.2, "min_p": 0.5, "typical_p": 0.1, "top_n_sigma": 0.3,
        "repeat_penalty": 1.9, "frequency_penalty": 2.0, "dry_multiplier": 3.0,
        "dry_allowed_length": 0, "xtc_probability": 1.0, "dynatemp_range": 0.5,
        "adaptive_target": 0.1,
    }  # fmt: skip
    row = np.random.default_rng(2).standard_normal(300).astype(np.float32)
    laws = list[Distribution]()
    for more in ({}, others):
        sampler = Sampler(
            SamplingParams(mirostat=version, mirostat_tau=3.0, logit_bias={7: 5.0}, **more),
            Noise(0),
        )
        has = sampler.params.has_xtc, sampler.params.has_dry, sampler.params.penalises
        assert has == (False,) * 3
        laws.append(sampler.distribution(row, sampler.prefix([7, 7, 9, 7, 9])))
    assert np.array_equal(laws[0].dense(300), laws[1].dense(300))
    assert laws[0].state_after(7) == laws[1].state_after(7) is not None
    assert laws[0].token(int(laws[0].logits.argmax())) == 7
