"""Audit: a true text passes, a touched one is a bug, floats are told from bugs."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from fakes.prompts import PROMPTS

from localspec import audit as audit_module
from localspec.audit import Recorded, Report, audit
from localspec.engine import Engine, load
from localspec.errors import InvalidValueError
from localspec.recipe import Recipe
from localspec.speculation.target import Scores


@pytest.fixture(scope="module")
def engine():  # type: ignore[no-untyped-def]
    with load(threads=1, flash_attention=True, context=512) as engine:
        yield engine


def recorded(engine: Engine, prompt: str, **options: object) -> Recorded:
    running = engine.stream(prompt, max_tokens=48, **options)  # type: ignore[arg-type]
    result = running.result()
    recipe = engine.recipe(running)
    return Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0.8},
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "depth": 7},
        {"repeat_penalty": 1.3, "penalty_window": -1},
        {"logit_bias": {269: -4.0, 30: float("-inf")}},
        {"min_tokens": 48},
        {"ignore_eos": True},
        {"rule": "token"},
        {"rule": "block", "depth": 5},
    ],
    ids=str,
)
def test_a_true_text_passes(engine: Engine, options: dict[str, object]) -> None:
    for seed in range(3):
        report = audit(engine, recorded(engine, PROMPTS[seed], seed=seed, **options))
        assert report.tokens > 0
        assert report.divergences == []
        # One thread and flash attention: no width changes a bit.
        assert report.largest_difference == 0


@pytest.mark.parametrize("options", [{"reproducible": True}, {"flash_attention": False}], ids=str)
def test_a_text_is_scored_as_it_was_made(options: dict[str, bool]) -> None:
    with load(threads=1, context=700, **options) as other:
        text = recorded(other, PROMPTS[0] * 12, seed=1, ignore_eos=True)
        report = audit(other, text)
    assert not report.has_bug
    if "reproducible" in options:
        assert (report.divergences, report.largest_difference) == ([], 0)
    else:
        assert report.largest_difference > 0


def touched(original: Recorded, index: int, token: int) -> Recorded:
    ids = list(original.token_ids)
    ids[index] = token
    return dataclasses.replace(original, token_ids=ids)


@pytest.mark.parametrize("index", [0, 1, 10, 47])
def test_a_touched_token_is_a_bug(engine: Engine, index: int) -> None:
    original = recorded(engine, PROMPTS[0], seed=1, ignore_eos=True)
    report = audit(engine, touched(original, index, original.token_ids[index] + 1))
    assert report.has_bug
    first = report.divergences[0]
    assert (first.index, first.verdict) == (index, "BUG")
    assert first.plain == original.token_ids[index]


def test_another_seed_is_a_bug(engine: Engine) -> None:
    original = recorded(engine, PROMPTS[1], seed=1)
    assert audit(engine, dataclasses.replace(original, seed=2)).has_bug


def test_an_impossible_token_is_a_bug_under_any_rule(engine: Engine) -> None:
    original = recorded(engine, PROMPTS[0], seed=1, rule="block", top_k=2)
    report = audit(engine, touched(original, 5, 4000))
    assert [each.verdict for each in report.divergences][:1] == ["BUG"]
    assert not report.same_text


class Shaky:
    """A context whose logits depend on the width of the pass, as on many GPUs."""

    def __init__(self, context, size: float) -> None:  # type: ignore[no-untyped-def]
        self._context = context
        self._size = size

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)

    def __enter__(self) -> "Shaky":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._context.close()

    def score(self, pending, draft):  # type: ignore[no-untyped-def]
        rows = self._context.score(pending, draft).logits.copy()
        noise = np.random.default_rng([len(self._context.tokens), len(draft)])
        return Scores(rows + (noise.normal(size=rows.shape) * self._size).astype(np.float32))


def shaken(engine: Engine, size: float, monkeypatch: pytest.MonkeyPatch) -> Report:
    """A text generated on shaky logits, audited on logits as shaky."""
    monkeypatch.setattr(engine, "_target", Shaky(engine._target, size))
    new_context: Callable[[int], object] = engine.new_context
    monkeypatch.setattr(engine, "new_context", lambda depth: Shaky(new_context(depth), size))
    original = recorded(engine, PROMPTS[2], seed=5, temperature=0, ignore_eos=True)
    return audit(engine, original)


@pytest.mark.parametrize("size", [0.05, 0.3])
def test_differences_of_floats_are_numeric(
    engine: Engine, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = shaken(engine, size, monkeypatch)
    assert report.largest_difference > size
    assert not report.has_bug
    if size == 0.3:
        assert {each.verdict for each in report.divergences} == {"NUMERIC"}


def test_another_model_or_version_is_refused(engine: Engine, drafter_path) -> None:  # type: ignore[no-untyped-def]
    recipe = recorded(engine, PROMPTS[0], seed=1).recipe
    recipe.require_same(engine.model.path)
    with pytest.raises(InvalidValueError, match="is another model than the one"):
        recipe.require_same(drafter_path)
    older = dataclasses.replace(recipe, versions={**recipe.versions, "localspec": "0.0.1"})
    with pytest.raises(InvalidValueError, match=r"made with localspec 0\.0\.1"):
        older.require_same(engine.model.path)
    with pytest.raises(InvalidValueError, match="no recipe"):
        Recipe.read({"depth": 3})


def test_steps_are_read_off_the_origins() -> None:
    recipe = dataclasses.make_dataclass("R", ["depth"])(3)
    text = Recorded(
        recipe,
        [1, 2, 3, 4, 5, 6, 7],
        ["d", "corrected", "plain", "d", "d", "bonus", "d"],
        0,
        "coupled",
    )
    assert list(audit_module._steps(text)) == [([1, 2], 3), ([3], 0), ([4, 5, 6], 2), ([7], 0)]
