"""EAGLE-3 heads as drafters of the engine: their shapes, and what is refused."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.drafter_kinds import EXACT, PROMPT
from fakes.eagle3 import SHAPES, Eagle3Oracle, write_head, write_target
from fakes.pycode import load
from fakes.recorder import Recorder
from fakes.tiny import write_tiny

from localspec.control import adaptive, candidate
from localspec.drafters.eagle3 import Eagle3
from localspec.engine.engine import Engine
from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.llama import hidden_states, library


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The target, and heads by their shape."""
    folder: Path = tmp_path_factory.mktemp("eagle3")
    heads = {
        shape: write_head(folder / f"{shape.replace(' ', '-')}.gguf", SHAPES[shape])
        for shape in SHAPES
    }
    return {"target": write_target(folder / "target.gguf"), **heads}


@pytest.fixture(scope="module")
def plain(files: dict[str, Path]) -> Iterator[Engine]:
    with load(files["target"], draft="none", **EXACT) as engine:
        yield engine


@pytest.mark.parametrize("shape", SHAPES)
def test_heads_of_all_shapes_draft_what_the_oracle_drafts(
    files: dict[str, Path], plain: Engine, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    oracle = Eagle3Oracle(files["target"], files[shape])
    drafts = Recorder(Eagle3, oracle, monkeypatch)
    drafted = accepted = 0
    with load(files["target"], draft=files[shape], **EXACT) as engine:
        assert engine.drafter_set.names == [files[shape].stem]
        for seed, temperature in enumerate((0, 1, 1)):
            options = {"max_tokens": 40, "temperature": temperature, "seed": seed}
            expected = plain.generate(PROMPT, ignore_eos=True, **options)
            found = engine.generate(PROMPT, ignore_eos=True, depth=2 + 2 * seed, **options)
            assert found.token_ids == expected.token_ids
            drafted += found.stats.drafted
            accepted += found.stats.accepted
    assert 0 < accepted < drafted
    drafts.check(every=2)
    assert drafts.checked > 60


def test_the_target_hands_out_only_rows_that_a_drafter_reads(files: dict[str, Path]) -> None:
    options = {"max_tokens": 20, "temperature": 0, "depth": 3, "ignore_eos": True}
    with load(files["target"], draft=files["own"], **EXACT) as engine:
        target = engine.slots.own.target
        [head] = engine.drafter_set.drafters
        text = engine.generate(PROMPT, **options).token_ids
        for draft, layers in (
            ("none", ()),
            (files["own"], head.traits.reads_hidden),
            ("suffix", ()),
            (files["own"], head.traits.reads_hidden),
        ):
            held = list(target.tokens)
            engine.switch(draft=draft)
            assert target.tokens == held
            found = engine.generate(PROMPT, **options)
            assert target.context.hidden.layers == set(layers)
            assert found.token_ids == text
            assert bool(found.stats.drafted) == (draft != "none")


def test_a_head_that_does_not_pay_reads_no_more_rows(
    files: dict[str, Path], plain: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidate, "_MOST_READING", 0.0)
    monkeypatch.setattr(adaptive, "_RESUMING_SHARE", 0.0)
    monkeypatch.setattr(hidden_states, "_UNUSED", 5)
    options: dict[str, Any] = {"max_tokens": 20, "temperature": 0, "ignore_eos": True}
    expected = plain.generate(PROMPT, **options).token_ids
    longer = [*PROMPT, *expected]
    after = plain.generate(longer, **options).token_ids
    with load(files["target"], draft=files["own"], **EXACT) as engine:
        shown: list[int] = []
        read = Eagle3.read
        monkeypatch.setattr(
            Eagle3, "read", lambda head, rows: shown.append(rows.start) or read(head, rows)
        )
        assert engine.generate(PROMPT, **options).token_ids == expected
        # The prompt's rows, and those of the step that used up what reading may take.
        assert len(shown) <= 3
        assert engine.slots.own.target.context.hidden.layers == set()
        # The next text is not read again for a head that failed, but it is for a fixed depth.
        found = engine.generate(longer, **options)
        assert found.token_ids == after
        assert found.stats.prompt_evaluated == 1
        found = engine.generate(longer, **options, depth=3)
        assert found.token_ids == after
        assert found.stats.drafted
        assert found.stats.prompt_evaluated > 10


# What is refused.


def test_a_layer_that_is_not_there_is_refused_by_name(
    files: dict[str, Path], tmp_path: Path
) -> None:
    head = write_head(tmp_path / "greedy-head.gguf", reads=(1, 2, 9))
    with pytest.raises(DrafterMismatchError) as refusal:
        load(files["target"], draft=head, **EXACT)
    assert "greedy-head.gguf reads hidden states of layer 9, and target.gguf has 5 layers" in str(
        refusal.value
    )


def test_rows_behind_the_last_layer_are_refused_where_there_are_none(
    files: dict[str, Path], tmp_path: Path
) -> None:
    head = write_head(tmp_path / "head.gguf", reads=(1, 2, 5))
    with pytest.raises(DrafterMismatchError, match="no rows behind the last layer"):
        load(files["target"], draft=head, **EXACT)


@pytest.mark.parametrize("family", ["gpt2", "gemma3", "mamba"])
def test_a_target_without_hidden_states_is_refused_in_words(tmp_path: Path, family: str) -> None:
    target = write_tiny(tmp_path / "target.gguf", family)
    head = write_head(tmp_path / "head.gguf", reads=(0, 1, 1), family=family)
    with pytest.raises(DrafterMismatchError, match=r"head\.gguf cannot draft for target\.gguf"):
        load(target, draft=head, **EXACT)


def test_a_head_for_another_vocabulary_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    head = write_head(tmp_path / "head.gguf", family="qwen35")
    with pytest.raises(DrafterMismatchError, match="vocabulary"):
        load(files["target"], draft=head, **EXACT)


def test_a_head_is_no_target(files: dict[str, Path]) -> None:
    with pytest.raises(ModelLoadError, match="draft head"):
        load(files["own"], **EXACT)


def test_a_build_without_hidden_states_is_said(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual: Callable[..., object] = library.symbol

    def lacking(name: str, *signature: object) -> object:
        return None if "layer_inp" in name else usual(name, *signature)

    monkeypatch.setattr(library, "symbol", lacking)
    hidden_states._function.cache_clear()
    try:
        with pytest.raises(ModelLoadError) as refusal:
            load(files["target"], draft=files["own"], **EXACT)
    finally:
        hidden_states._function.cache_clear()
    assert "hands out no hidden states" in str(refusal.value)
    assert "llama_set_embeddings_layer_inp" in str(refusal.value)
