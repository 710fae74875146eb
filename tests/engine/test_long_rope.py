"""A model with other rotations for long texts: its texts do not depend on their company."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from fakes.tiny import FAMILIES, HEAD, TURNS, write_tiny

import localspec
from localspec.conversation.session import Session
from localspec.engine.audit import Recorded, audit
from localspec.engine.state_store import StateStore
from localspec.loading import load_plan, places

LIMIT = 512
PROMPTS = ["an br", "es ft cn", "dr ds"]
OPTIONS: dict[str, Any] = {"max_tokens": 40, "seed": 5, "temperature": 0.8, "ignore_eos": True}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def rotated(writer: Any) -> None:
        FAMILIES["llama"](writer)
        writer.gguf.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        writer.gguf.add_rope_scaling_orig_ctx_len(LIMIT)
        for name, factor in (("short", 1), ("long", 20)):
            factors = np.full(HEAD // 2, factor, np.float32)
            writer.gguf.add_tensor(f"rope_factors_{name}.weight", factors)

    file = tmp_path_factory.mktemp("models") / "rotated.gguf"
    options: dict[str, Any] = {"quantised": False, "template": TURNS, "context": 2048}
    return write_tiny(file, "llama", layers=rotated, **options)


def written(path: Path, **options: Any) -> list[list[int]]:
    with localspec.load(path, draft="none", threads=1, **options) as engine:
        return [list(each.token_ids) for each in engine.generate(PROMPTS, **OPTIONS)]


def test_texts_beside_others_are_those_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with localspec.load(path, draft="none", threads=1, context=256) as engine:
        alone = [list(engine.generate(each, **OPTIONS).token_ids) for each in PROMPTS]
    assert written(path, context=256) == alone
    assert written(path, context=256, texts=3) == alone
    with localspec.load(path, draft="none", threads=1, context=256, texts=3) as engine:
        assert engine.slots.own.target.context.params.texts == LIMIT // 256
        assert "a cache has room for 2 texts, not 3: more share none" in engine.notes
    # Without the limit, they are others.
    for module in (places, load_plan):
        monkeypatch.setattr(module, "most_texts", lambda *_: 64)
    assert written(path, context=256, texts=3) != alone


@pytest.mark.parametrize(("planned", "is_said"), [(256, True), (1024, False)])
def test_a_plan_that_changes_the_texts_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, planned: int, is_said: bool
) -> None:
    plan_drafters = load_plan.plan_drafters

    def short(*arguments: Any, **options: Any) -> Any:
        found, plan = plan_drafters(*arguments, **options)
        return found, replace(plan, context=replace(plan.context, n_ctx=planned))

    monkeypatch.setattr(load_plan, "plan_drafters", short)
    with localspec.load(path, draft="none", threads=1) as engine:
        told = [note for note in engine.notes if "rotates as for short texts" in note]
        assert len(told) == is_said
    # Who names the context has what was asked for.
    with localspec.load(path, draft="none", threads=1, context=planned) as engine:
        assert not engine.notes


@pytest.mark.parametrize("context", [256, 1024])
@pytest.mark.parametrize("texts", [1, 2])
def test_an_audit_has_the_rotations_of_the_text(path: Path, context: int, texts: int) -> None:
    options: dict[str, Any] = {"draft": "none", "threads": 1}
    with localspec.load(path, context=context, texts=texts, **options) as engine:
        running = engine.stream(PROMPTS[0], **OPTIONS)
        result = running.result()
        recipe = engine.recipe(running)
    assert recipe.cache_tokens == context * texts
    recorded = Recorded(recipe, result.token_ids, result.origins, result.seed, result.rule)
    with localspec.load(path, context=64, **options) as engine:
        assert not audit(engine, recorded).divergences
        # Without it, the text looks like another one.
        wrong = 4 * LIMIT if context * texts <= LIMIT else LIMIT
        unlike = replace(recorded, recipe=replace(recipe, cache_tokens=wrong))
        assert audit(engine, unlike).has_bug


@pytest.mark.parametrize("context", [256, 512, 1024])
def test_a_saved_text_is_continued_only_with_its_rotations(
    path: Path, tmp_path: Path, context: int
) -> None:
    options: dict[str, Any] = {"draft": "none", "threads": 1}
    store = StateStore(tmp_path)
    with localspec.load(path, context=256, **options) as engine, Session(engine) as session:
        list(session.send(PROMPTS[0], max_tokens=8))
        assert session.save_state("a", store) is None
    with localspec.load(path, context=context, **options) as engine, Session(engine) as session:
        loaded = session.load_state("a", store) is None
    assert loaded == (context <= LIMIT)
