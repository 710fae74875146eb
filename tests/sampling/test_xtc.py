"""XTC: when it applies, and that drafts change nothing with it. What it leaves: test_filters.py."""

import json
from dataclasses import asdict, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from fakes.enumeration import total_variation
from fakes.mutants import PROMPT, SAMPLERS, TOYS, Code, Edit, KeyedDraws, Trial, spoken

import localspec
from localspec.engine.audit import Recorded, audit
from localspec.engine.recipe import Recipe
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.sampling.filters import distribution
from localspec.sampling.keyed_hash import keys_of
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.sampling.xtc import applies, without_top_choices

EXACT = 1e-12


def often(p: float, **chosen: Any) -> SamplingParams:
    return SamplingParams(xtc_probability=p, **chosen)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_it_applies_with_its_probability_at_independent_positions(p: float) -> None:
    applied = np.array(
        [[applies(often(p), seed, place) for place in range(400)] for seed in range(100)]
    )
    # Five standard deviations of the mean, over positions and over seeds.
    assert abs(applied.mean() - p) < 5 * np.sqrt(p * (1 - p) / applied.size)
    for axis, count in ((0, 100), (1, 400)):
        spread = applied.mean(axis=axis).std()
        assert spread == pytest.approx(np.sqrt(p * (1 - p) / count), rel=0.3)
    neighbours = np.corrcoef(applied[:, 1:].ravel(), applied[:, :-1].ravel())[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(applied.size)


def test_pinned_so_that_seeds_keep_their_texts() -> None:
    for seed, places in PINNED.items():
        assert [place for place in range(30) if applies(often(0.3), seed, place)] == places


PINNED = {0: [2, 9, 10, 14, 18, 24, 25], 7: [9, 10, 12, 13, 16, 18, 28, 29]}


def test_the_noise_of_a_position_does_not_tell_whether_it_applies() -> None:
    words = [(seed, place) for seed in range(200) for place in range(100)]
    applied = np.array([applies(often(0.5), *each) for each in words])
    keys = np.array([keys_of(*each).ravel() for each in words])
    for bits in (keys >> 31, keys & 1):
        shares = bits[applied].mean(axis=0) - bits[~applied].mean(axis=0)
        assert np.abs(shares).max() < 5 / np.sqrt(len(words))


def test_never_and_always() -> None:
    assert not any(applies(often(0), 1, place) for place in range(100))
    assert not any(applies(often(1, xtc_threshold=0.6), 1, place) for place in range(100))
    assert all(applies(often(1), 2**64 - 1, place) for place in range(1000))


def test_a_forbidden_token_is_no_choice() -> None:
    """Below a threshold of 0, where llama.cpp would keep one of them, and nothing else."""
    row = np.array([3, 1, 2, -np.inf], np.float32)
    params = often(1, xtc_threshold=0.0, top_k=0, top_p=1.0, min_p=0.0)
    assert distribution(row, params, xtc=True).dense(4).tolist() == [0, 1, 0, 0]


def test_of_equal_top_choices_the_highest_id_stays() -> None:
    row = np.array([1, 2, 2, 2, 0], np.float32)
    logits, ids = without_top_choices(row, np.array([5, 7, 9, 3, 1]), 0.2)
    assert (logits.tolist(), ids is not None and ids.tolist()) == ([1, 2, 0], [5, 9, 1])
    left, every = without_top_choices(row, None, 0.2)
    assert (left.tolist(), every) == ([1, -np.inf, -np.inf, 2, 0], None)


@pytest.mark.parametrize(
    "wrong", [{"xtc_probability": 1.5}, {"xtc_threshold": -0.1}, {"xtc_threshold": 2}], ids=str
)
def test_values_that_mean_nothing(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(wrong))):
        GenerationConfig.of(**wrong)


# Over all seeds, the text has XTC's own distribution: each token is drawn from the mixture.

DECISION = "applies(self.params, self.randomness.seed, prefix.position)"
LENGTH, SHARE = 3, SAMPLERS["xtc"].xtc_probability


def xtc_law() -> dict[tuple[int, ...], float]:
    target, law = TOYS["loud"][0], {}
    for text in product(range(3), repeat=LENGTH):
        law[text] = 1.0
        for place, token in enumerate(text):
            before = [*PROMPT, *text[:place]]
            without, applied = (
                distribution(target.logits(before), SAMPLERS["xtc"], before, xtc=xtc).dense(3)
                for xtc in (False, True)
            )
            law[text] *= (1 - SHARE) * without[token] + SHARE * applied[token]
    return law


def decided(decision: str, rule: str) -> float:
    """How far a text is from XTC's law, where XTC applies by this expression."""
    code = Code(Edit(Sampler._distribution, DECISION, decision))
    trial = Trial(rule, sampler="xtc", length=LENGTH, noise=KeyedDraws)
    return total_variation(spoken(trial, code), xtc_law())  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", ["token", "block"])
def test_one_decision_for_each_position_gives_its_distribution(rule: str) -> None:
    once = f"self.randomness.below(prefix.position, {SHARE})"
    assert decided(once, rule) < EXACT


# On the bundled pair.


@pytest.mark.parametrize("temperature", [0, 0.9])
def test_drafts_do_not_change_a_text_with_it(temperature: float, own_cache: None) -> None:
    """It changes the text, also a greedy one, and an audit finds it again."""
    settings: dict[str, Any] = {"temperature": temperature, "seed": 5, "max_tokens": 48}
    settings |= {"ignore_eos": True, "logprobs": True}
    xtc: dict[str, Any] = {"xtc_probability": 0.4, "xtc_threshold": 0.05}
    with localspec.load(threads=1) as engine:
        prompt = "def f(x):\n"
        alone = engine.generate(prompt, depth=0, **settings, **xtc)
        assert alone.token_ids != engine.generate(prompt, depth=0, **settings).token_ids
        other = engine.generate(prompt, depth=0, **settings | {"seed": 6}, **xtc)
        assert alone.token_ids != other.token_ids
        for depth in (2, 5):
            drafted = engine.generate(prompt, depth=depth, **settings, **xtc)
            assert drafted.token_ids == alone.token_ids
            assert drafted.stats.accepted > 0
        stream = engine.stream(prompt, depth=5, **settings, **xtc)
        result = stream.result()
        record = json.loads(json.dumps(asdict(engine.recipe(stream))))
        recorded = Recorded(
            Recipe.read(record), result.token_ids, result.origins, result.seed, result.rule
        )
        report = audit(engine, recorded)
        assert not report.has_bug and report.tokens == 48
        record["sampling"]["xtc_probability"] = 0
        assert audit(engine, replace(recorded, recipe=Recipe.read(record))).has_bug


@pytest.mark.parametrize("rule", ["token", "block"])
def test_under_a_rejection_rule_each_token_is_one_that_it_leaves(
    rule: str, own_cache: None
) -> None:
    settings: dict[str, Any] = {"seed": 5, "max_tokens": 48, "ignore_eos": True, "rule": rule}
    with localspec.load(threads=1) as engine:
        stream = engine.stream(
            "def f(x):\n", depth=4, xtc_probability=0.5, xtc_threshold=0.05, **settings
        )
        result, recipe = stream.result(), engine.recipe(stream)
        assert result.stats.accepted > 0
        recorded = Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)
        assert not audit(engine, recorded).has_bug
        # With another seed it applies at other positions: some tokens could not be there.
        assert audit(engine, replace(recorded, seed=6)).has_bug
