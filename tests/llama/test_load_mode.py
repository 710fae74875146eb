"""How files get into memory: the same texts, and what the system refuses is said."""

from pathlib import Path

import llama_cpp
import pytest
from fakes.tiny import write_tiny

import localspec
from localspec.errors import InvalidValueError
from localspec.llama import library
from localspec.llama.model_params import model_params
from localspec.llama.placement import DEFAULT, LOAD_MODES
from localspec.loading.config import RuntimeConfig


def test_the_library_knows_every_mode_by_the_same_name() -> None:
    for mode in LOAD_MODES:
        number = model_params(DEFAULT, load_mode=mode).values.load_mode
        assert llama_cpp.llama_load_mode_name(number).decode() == mode


def test_texts_do_not_depend_on_it(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "llama")
    texts = set()
    for mode in LOAD_MODES:
        with localspec.load(path, str(path), threads=1, load_mode=mode) as engine:
            texts.add(engine.generate([1, 5, 6], max_tokens=8, temperature=0, depth=2).text)
    assert len(texts) == 1


def test_another_mode_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"^load_mode is 'ram'; it must be one of"):
        RuntimeConfig.of(load_mode="ram")


@pytest.mark.parametrize(
    ("mode", "is_said"), [("mlock", True), ("mmap+mlock", True), ("none", False)]
)
def test_memory_that_cannot_be_locked_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, is_said: bool
) -> None:
    path = write_tiny(tmp_path / "tiny.gguf", "llama")
    log = "warning: failed to mlock 4096-byte buffer (after previously locking 0 bytes)"
    monkeypatch.setattr(library, "logged", lambda: log)
    with localspec.load(path, "none", threads=1, load_mode=mode) as engine:
        told = [note for note in engine.notes if "`ulimit -l`" in note]
    assert len(told) == is_said
