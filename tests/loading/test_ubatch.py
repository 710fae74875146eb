"""How many tokens of a prompt a pass reads."""

from pathlib import Path
from typing import Any

import pytest
from fakes.noted_passes import note_passes

import localspec
from localspec.engine import scheduler
from localspec.engine.audit import Recorded, audit
from localspec.engine.engine import Engine
from localspec.engine.scheduler import Scheduler
from localspec.errors import InvalidValueError
from localspec.loading import calibration
from localspec.loading.config import RuntimeConfig
from localspec.models.registry import bundled

TARGET = bundled().target
PROMPT = "How do I list the files of a folder by size? " * 30
OPTIONS: dict[str, Any] = {"max_tokens": 24, "seed": 3, "ignore_eos": True}


def widest_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> int:
    """The rows of the target's widest pass while a text is written."""
    seen = note_passes(monkeypatch)
    engine.generate(PROMPT, **OPTIONS)
    return max(each.rows for each in seen if each.path == TARGET)


@pytest.mark.parametrize("ubatch", [None, 128, 64])
def test_a_prompt_is_read_in_passes_of_so_many_tokens(
    monkeypatch: pytest.MonkeyPatch, ubatch: int | None
) -> None:
    with localspec.load(draft="suffix", threads=1, ubatch=ubatch) as engine:
        prompt = len(engine.model.tokenize(PROMPT))
        assert prompt > 256, "otherwise this shows nothing"
        assert widest_of(engine, monkeypatch) == min(ubatch or prompt - 1, prompt - 1)


def test_also_where_further_texts_may_begin_at_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in `serve`, where a pass of a prompt else takes a tenth of a second."""
    with localspec.load(draft="none", threads=1, ubatch=256, texts=2) as engine:
        monkeypatch.setattr(Scheduler, "has_one_text", property(lambda _: False))
        monkeypatch.setattr(scheduler, "_LONGEST_PASS", 0.0)
        assert widest_of(engine, monkeypatch) == 256


def test_drafts_change_no_token_and_an_audit_reads_as_the_text_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with localspec.load(draft="auto", threads=1, ubatch=64) as engine:
        plain = engine.generate(PROMPT, **OPTIONS, depth=0)
        running = engine.stream(PROMPT, **OPTIONS, depth=4)
        tokens = list(running)
        ids, origins = [each.id for each in tokens], [each.origin for each in tokens]
        assert ids == plain.token_ids
        recipe = engine.recipe(running)
        assert recipe.ubatch == 64
        recorded = Recorded(recipe, ids, origins, OPTIONS["seed"], "coupled")
    with localspec.load(draft="none", threads=1, ubatch=recipe.ubatch) as engine:
        seen = note_passes(monkeypatch)
        report = audit(engine, recorded)
        assert not report.divergences
        assert max(each.rows for each in seen) == 64


def test_a_record_has_the_usual_number_too() -> None:
    with localspec.load(draft="none", threads=1) as engine:
        running = engine.stream(PROMPT, **OPTIONS)
        list(running)
        assert engine.recipe(running).ubatch == 512


@pytest.mark.parametrize("ubatch", [0, 63, 8193])
def test_numbers_that_cannot_be_are_refused(ubatch: int) -> None:
    with pytest.raises(InvalidValueError, match=f"ubatch is {ubatch}; "):
        RuntimeConfig(ubatch=ubatch)


def test_the_width_of_a_reproducible_text_does_not_depend_on_what_is_free() -> None:
    assert RuntimeConfig(reproducible=True).fixed_ubatch == 512
    assert RuntimeConfig(reproducible=True, ubatch=128).fixed_ubatch == 128
    assert RuntimeConfig().fixed_ubatch is None


def test_costs_are_those_of_their_width() -> None:
    def file(ubatch: int | None) -> Path:
        return calibration._file(TARGET, [], RuntimeConfig(ubatch=ubatch))

    assert file(None) == file(512) != file(64)
