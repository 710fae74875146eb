"""The margin of a drafted token."""

import numpy as np
import pytest

from localspec.drafters.confidence import margin
from localspec.sampling.draws import Draws
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler

LOGITS = np.array([1.0, 4.0, 2.5, -3.0], dtype=np.float32)


def drawn(params: SamplingParams, logits: np.ndarray, randomness: Noise | Draws) -> float:
    sampler = Sampler(params, randomness)
    prefix = sampler.prefix([0, 0])
    law = sampler.distribution(logits, prefix)
    return margin(logits, law, sampler.sample(law, prefix), sampler, prefix)


def test_greedy_is_the_lead_of_the_logits() -> None:
    assert drawn(SamplingParams(temperature=0), LOGITS, Noise(1)) == 1.5
    one = np.zeros(1, dtype=np.float32)
    assert drawn(SamplingParams(temperature=0), one, Noise(1)) > 50


def test_greedy_where_likelier_tokens_were_left_out_it_is_the_lead_over_those_that_stay() -> None:
    params = SamplingParams(temperature=0, xtc_probability=1, xtc_threshold=0.1)
    logits = np.array([10.0, 9.5, 9.0, -9.0], dtype=np.float32)
    assert drawn(params, logits, Noise(1)) == 18
    assert drawn(params, np.array([1.0, 1.0], dtype=np.float32), Noise(1)) >= 0
    # Nothing else stays.
    assert drawn(params, np.array([10.0, 9.9], dtype=np.float32), Noise(1)) > 50


@pytest.mark.parametrize("n_vocab", [4, 50, 5000])
@pytest.mark.parametrize("top_k", [0, 8])
def test_with_noise_it_is_the_lead_of_the_perturbed_scores(n_vocab: int, top_k: int) -> None:
    rng = np.random.default_rng(3)
    params = SamplingParams(temperature=0.7, top_k=top_k, top_p=1, min_p=0)
    for seed in range(30):
        logits = rng.normal(size=n_vocab).astype(np.float32) * 3
        sampler = Sampler(params, Noise(seed))
        law = sampler.distribution(logits, sampler.prefix([0, 0]))
        ids = np.arange(n_vocab) if law.ids is None else law.ids
        best, second = np.sort(law.scores() + Noise(seed).gumbel(2, ids))[:-3:-1]
        found = drawn(params, logits, Noise(seed))
        # In a large support, unlikely tokens are ignored: the margin may be larger, or 0.
        assert found == pytest.approx(best - second) or (n_vocab > 256 and found >= 0)


@pytest.mark.parametrize("temperature", [0.7, 3])
@pytest.mark.parametrize("top_k", [0, 400])
def test_in_a_large_support_no_likely_rival_is_ignored(temperature: float, top_k: int) -> None:
    rng = np.random.default_rng(3)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=1, min_p=0)
    for seed in range(30):
        logits = (rng.normal(size=5000) * 2 * temperature).astype(np.float32)
        sampler = Sampler(params, Noise(seed))
        law = sampler.distribution(logits, sampler.prefix([0, 0]))
        ids = np.arange(5000) if law.ids is None else law.ids
        best, second = np.sort(law.scores() + Noise(seed).gumbel(2, ids))[:-3:-1]
        assert drawn(params, logits, Noise(seed)) == pytest.approx(best - second, abs=1e-4)


def test_a_token_that_only_the_noise_made_win_has_none() -> None:
    logits = np.zeros(300, np.float32)
    logits[7] = -30
    sampler = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))
    prefix = sampler.prefix([0, 0])
    assert margin(logits, sampler.distribution(logits, prefix), 7, sampler, prefix) == 0


def test_a_token_without_a_rival_has_the_largest_margin() -> None:
    assert drawn(SamplingParams(top_k=1), LOGITS, Noise(1)) > 50


def test_without_shared_noise_it_is_the_log_odds() -> None:
    params = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
    found = drawn(params, np.array([0.0, 50.0], dtype=np.float32), Draws(1))
    assert found > 10
    even = drawn(params, np.zeros(2, dtype=np.float32), Draws(1))
    assert even == pytest.approx(0)
