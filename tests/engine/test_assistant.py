"""Gemma 4's assistant in the engine: where it lies, texts that were there before it, refusals."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.assistant import AssistantShape, write_assistant, write_target
from fakes.drafter_kinds import EXACT, PROMPT
from fakes.numpy_gemma4 import AssistantOracle
from fakes.pycode import load
from fakes.recorder import TIE_OF_FLASH_ATTENTION, Recorder
from fakes.tiny import write_tiny

from localspec.conversation.session import Session
from localspec.drafters.assistant import Assistant
from localspec.engine.engine import Engine
from localspec.errors import DrafterMismatchError, ModelLoadError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder: Path = tmp_path_factory.mktemp("assistant")
    return {
        "target": write_target(folder / "target.gguf"),
        "assistant": write_assistant(folder / "assistant.gguf"),
    }


@pytest.fixture(scope="module")
def plain(files: dict[str, Path]) -> Iterator[Engine]:
    with load(files["target"], draft="none", **EXACT) as engine:
        yield engine


@pytest.fixture
def drafts(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Recorder:
    oracle = AssistantOracle(files["target"], files["assistant"])
    return Recorder(Assistant, oracle, monkeypatch)


def test_drafters_are_exchanged_while_texts_are_in_the_cache(
    files: dict[str, Path], plain: Engine, drafts: Recorder
) -> None:
    options = {"max_tokens": 20, "temperature": 0, "ignore_eos": True}
    expected = plain.generate(PROMPT, **options).token_ids
    # Texts share a cache only with flash attention.
    with load(files["target"], draft="none", **{**EXACT, "flash_attention": True}) as engine:
        sessions = [Session(engine, **options) for _ in range(2)]
        said = [session.send("anbtdnen").result().content for session in sessions]
        for draft in (files["assistant"], "suffix", files["assistant"], "none"):
            engine.switch(draft=draft)
            for session in sessions:
                answer = session.regenerate(depth=3).result()
                assert answer.content == said[0]
            found = engine.generate(PROMPT, depth=3, **options)
            assert (found.stats.drafted > 0) == (draft != "none")
            assert found.token_ids == expected
        for session in sessions:
            session.close()
    drafts.check(tie=TIE_OF_FLASH_ATTENTION)


def test_texts_without_a_common_cache_have_an_assistant_each(
    files: dict[str, Path], plain: Engine, drafts: Recorder
) -> None:
    options = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
    with load(files["target"], draft=files["assistant"], **EXACT) as engine:
        slots = [engine.slots.open() for _ in range(3)]
        places = [next(iter(slot.loaded.drafter_set.sequences.values())) for slot in slots]
        assert len({id(place.context) for place in places}) == 3
        for place, slot in zip(places, slots, strict=True):
            assert slot.target.context.head_contexts == [place.context]
        found = engine.generate(PROMPT, depth=3, **options)
    assert found.token_ids == plain.generate(PROMPT, **options).token_ids
    assert found.stats.drafted
    drafts.check()


# Loading.


def test_auto_takes_the_assistant_beside_its_target(files: dict[str, Path], tmp_path: Path) -> None:
    target = tmp_path / "gemma-4-1b-it-F32.gguf"
    target.symlink_to(files["target"])
    (tmp_path / "mtp-gemma-4-1b-it-F32.gguf").symlink_to(files["assistant"])
    with load(target, **EXACT) as engine:
        assert engine.drafter_set.names == ["suffix", "mtp-gemma-4-1b-it-F32"]
        engine.generate(PROMPT, max_tokens=20)
    with pytest.raises(DrafterMismatchError, match=r"pass draft='.*mtp-gemma-4-1b-it-F32\.gguf'"):
        load(target, draft="mtp", **EXACT)


def test_a_long_text_fills_the_context(files: dict[str, Path], plain: Engine) -> None:
    prompt = [1, *(20 + i % 200 for i in range(199))]
    options = {"max_tokens": 56, "temperature": 1, "seed": 2, "ignore_eos": True}
    expected = plain.generate(prompt, **options).token_ids
    with load(files["target"], draft=files["assistant"], **EXACT) as engine:
        for depth in (1, 5, 8):
            found = engine.generate(prompt, depth=depth, **options)
            assert found.token_ids == expected
            assert found.stats.drafted


def test_an_assistant_is_no_target(files: dict[str, Path]) -> None:
    with pytest.raises(ModelLoadError, match="draft head, not a model; pass its target"):
        load(files["assistant"], **EXACT)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (AssistantShape(rows=48), r"hidden states of 48 numbers, and those of .* have 32"),
        (AssistantShape(shared=(2, 2)), r"2 key-value heads of 16 and 16 .* 1 key-value heads"),
        (AssistantShape(shared=(1, 1)), r"1 key-value heads of 8 and 8 numbers in layer 2"),
        (AssistantShape(key=(16, 16)), r"2 key-value heads of 16 and 16 numbers in layer 2"),
    ],
    ids=["rows", "heads without a window", "heads with a window", "keys"],
)
def test_an_assistant_of_another_shape_is_refused(
    files: dict[str, Path], tmp_path: Path, shape: AssistantShape, words: str
) -> None:
    other: Any = write_assistant(tmp_path / "other.gguf", shape)
    with pytest.raises(DrafterMismatchError, match=words) as refusal:
        load(files["target"], draft=other, **EXACT)
    assert "\n" not in str(refusal.value)
    assert "draft='suffix'" in str(refusal.value)


def test_a_target_of_another_family_is_refused(files: dict[str, Path], tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "tiny.gguf", "gemma3")
    with pytest.raises(DrafterMismatchError, match=r"assistant of gemma4 models.* is gemma3"):
        load(target, draft=files["assistant"], **EXACT)
    swapped = write_target(tmp_path / "swapped.gguf", layers=(False, True, False, True))
    with pytest.raises(DrafterMismatchError, match="layer 2 of its target as one with a sliding"):
        load(swapped, draft=files["assistant"], **EXACT)
