"""A context beyond the model's own: the model gets its own, and a line says so."""

from pathlib import Path
from typing import Any

import pytest
from fakes.tiny import write_tiny

import localspec
from localspec.errors import DrafterMismatchError, LocalspecError, ModelLoadError
from localspec.gguf.facts import facts_of
from localspec.loading.config import RuntimeConfig
from localspec.loading.context_limit import within_model


@pytest.fixture
def tiny_path(tmp_path: Path) -> Path:
    return write_tiny(tmp_path / "tiny.gguf", "llama", context=64)


@pytest.mark.parametrize("context", [None, 16, 64])
def test_a_smaller_context_stays(tiny_path: Path, context: int | None) -> None:
    runtime = RuntimeConfig(context, threads=1)
    assert within_model(runtime, facts_of(tiny_path)) == (runtime, None)


def test_a_larger_one_is_the_models_own(tiny_path: Path) -> None:
    """Also of the bundled model, which nobody named: zeros for so many would take half a minute."""
    with localspec.load(tiny_path, "suffix", context=1_000_000) as engine:
        assert engine.context == 64
        assert engine.notes == ("context 64: 1000000 is more than tiny.gguf was made for",)
    with localspec.load(context=1_000_000) as engine:
        assert engine.context == 2048
        assert any(note.startswith("context 2048: 1000000 is") for note in engine.notes)


@pytest.mark.parametrize(
    "rope", [{"rope_scale": 2.0, "rope_scaling": "linear"}, {"rope_freq_base": 5e5}]
)
def test_a_model_without_rotations_keeps_its_own(rope: dict[str, Any], tmp_path: Path) -> None:
    """Behind the end of its table of positions, the library ends the process."""
    path = write_tiny(tmp_path / "table.gguf", "gpt2", context=256)
    with localspec.load(path, "none", context=300, threads=1, **rope) as engine:
        assert engine.context == 256
        assert any("context 256: 300 is more than table.gguf" in note for note in engine.notes)
    with localspec.load(path, "none", threads=1, **rope) as engine:
        assert engine.context == 256


def test_a_drafter_whose_positions_end_before_the_context_is_refused(tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "target.gguf", "qwen3", context=512)
    table = write_tiny(tmp_path / "table.gguf", "gpt2", context=256)
    said = "table.gguf has positions for 256 tokens, and the context holds 300"
    with pytest.raises(DrafterMismatchError, match=said):
        localspec.load(target, table, context=300, threads=1)
    with localspec.load(target, table, context=256, threads=1) as engine:
        assert engine.drafter_set.names == ["table"]


def test_each_model_has_its_own_limit(tiny_path: Path, tmp_path: Path) -> None:
    longer = write_tiny(tmp_path / "longer.gguf", "llama", context=96)
    with localspec.load(tiny_path, "none", context=80) as engine:
        assert engine.context == 64
        engine.switch(longer)
        assert (engine.context, engine.notes) == (80, ())
        engine.switch(tiny_path)
        assert engine.context == 64 and engine.notes


@pytest.mark.parametrize("family", ["llama", "mamba", "qwen35"])
@pytest.mark.parametrize("context", [0, 1, 2, 3, 4, 9, 2**31, 2**32 - 1])
def test_a_context_of_any_size_is_used_or_refused(
    family: str, context: int, tmp_path: Path
) -> None:
    """llama.cpp ends the process where a pass is larger than a context of one token."""
    path = write_tiny(tmp_path / "tiny.gguf", family, context=context)
    if context == 1:
        with pytest.raises(ModelLoadError, match="says context_length = 1, which holds no text"):
            localspec.load(path, "none")
        return
    with localspec.load(path, "suffix", threads=1) as engine:
        for prompt in ([1], [1, 5], [1, 5, 6, 7, 5, 6]):
            try:
                result = engine.generate(prompt, max_tokens=4, depth=2)
            except LocalspecError as error:
                assert "the context holds" in str(error)
            else:
                assert len(prompt) + len(result.token_ids) <= max(engine.context, 1) + 1
