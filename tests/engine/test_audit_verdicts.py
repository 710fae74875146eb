"""The audit's verdicts on made-up rows: rounding is never a bug, and a wrong filter is one."""

from typing import Any

import numpy as np
import pytest

from localspec.engine.audit import _Judge, _Scored
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler

FILTERED = [
    {"top_k": 3, "top_p": 1.0, "min_p": 0.0},
    {"top_k": 0, "top_p": 0.7, "min_p": 0.0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.5},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
    {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1.3, "penalty_window": 64},
    {"top_k": 40, "xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"top_k": 40, "xtc_probability": 0.5, "xtc_threshold": 0.05, "typical_p": 0.5},
    {"top_p": 0.5, "xtc_probability": 1.0, "xtc_threshold": 0.1},
    {"typical_p": 0.2},
    {"typical_p": 0.5, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    {"typical_p": 0.5, "temperature": 0},
    {"top_n_sigma": 1.0},
    {"dynatemp_range": 0.5, "dynatemp_exponent": 2.0},
    {"mirostat": 1, "mirostat_tau": 1.5},
    {"mirostat": 2, "mirostat_tau": 1.5},
    {"adaptive_target": 0.3},
    {"adaptive_target": 0.3, "top_k": 0, "top_p": 1.0, "min_p": 0.1},
]


def judged(
    options: dict[str, Any], plain: Any, recorded_from: Any, difference: float, *, same_text: bool
) -> list[str]:
    """The verdict on each token that other logits give and plain decoding's do not.

    plain: (rows, vocabulary). recorded_from: the logits of which the tokens were drawn, and again
    those of the repeated pass: (2, rows, vocabulary).
    """
    verdicts = []
    for seed, (row, other, stepped) in enumerate(zip(plain, *recorded_from, strict=True)):
        sampler = Sampler(SamplingParams(**{"temperature": 0.8, **options}), Noise(seed))
        prefix = sampler.prefix(np.argsort(-row)[:10].tolist())
        token = sampler.sample(sampler.distribution(other, prefix), prefix)
        judge = _Judge(sampler, same_text=same_text)
        scored = _Scored(seed, token, prefix, row, stepped, prefix.state)
        if not judge.plain_gives(scored):
            verdicts.append(judge.divergence(scored, difference).verdict)
    return verdicts


@pytest.mark.parametrize("same_text", [True, False])
@pytest.mark.parametrize("options", FILTERED, ids=str)
def test_rounding_is_never_called_a_bug(options: dict[str, Any], same_text: bool) -> None:
    random = np.random.default_rng(1)
    plain = (random.normal(size=(4000, 200)) * 2.5).astype(np.float32)
    rounded = plain + (random.uniform(-0.02, 0.02, size=(2, *plain.shape))).astype(np.float32)
    verdicts = judged(options, plain, rounded, 0.021, same_text=same_text)
    assert verdicts
    assert set(verdicts) == {"NUMERIC"}


@pytest.mark.parametrize("same_text", [True, False])
@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"top_k": 3, "top_p": 1.0, "min_p": 0.0}, {"top_k": 4, "top_p": 1.0, "min_p": 0.0}),
        ({"top_k": 0, "top_p": 0.7, "min_p": 0.0}, {"top_k": 0, "top_p": 0.8, "min_p": 0.0}),
        ({"top_k": 0, "top_p": 1.0, "min_p": 0.2}, {"top_k": 0, "top_p": 1.0, "min_p": 0.1}),
        ({"xtc_probability": 1, "xtc_threshold": 0.1}, {"xtc_probability": 0}),
        ({"typical_p": 0.3}, {"typical_p": 0.4}),
        ({"top_n_sigma": 0.5}, {"top_n_sigma": 0.6}),
        ({"mirostat": 2, "mirostat_tau": 1.0}, {"mirostat": 2, "mirostat_tau": 1.2}),
    ],
    ids=str,
)
def test_a_wrong_filter_is_a_bug(
    options: dict[str, Any], wrong: dict[str, Any], same_text: bool
) -> None:
    """Also where the wrong tokens are just behind the filter: few of them are within rounding."""
    random = np.random.default_rng(2)
    plain = (random.normal(size=(3000, 200)) * 2.5).astype(np.float32)
    verdicts = []
    for seed, row in enumerate(plain):
        loose, strict = (
            Sampler(SamplingParams(temperature=0.8, **each), Noise(seed))
            for each in (wrong, options)
        )
        prefix, loose_prefix = strict.prefix([1, 2]), loose.prefix([1, 2])
        token = loose.sample(loose.distribution(row, loose_prefix), loose_prefix)
        if strict.distribution(row, prefix).index(token) is not None:
            continue
        judge = _Judge(strict, same_text=same_text)
        scored = _Scored(seed, token, prefix, row, row, prefix.state)
        verdicts.append(judge.divergence(scored, 0.005).verdict)
    assert len(verdicts) > 50
    assert verdicts.count("BUG") > 0.9 * len(verdicts)


def test_logits_that_are_far_apart_are_judged_too() -> None:
    """As a broken build gives them."""
    sampler = Sampler(SamplingParams(xtc_probability=1, xtc_threshold=0.05), Noise(0))
    samplers = _Judge(sampler, same_text=True)._samplers(1e4)
    assert [each.params.xtc_threshold for each in samplers][-1] == 1.0
