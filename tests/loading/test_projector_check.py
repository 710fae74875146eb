"""A file that reads images, and would end the process, ends a child first."""

import sys
from pathlib import Path

import pytest
from fakes.projectors import write_ears, write_projector

from localspec.errors import ModelLoadError
from localspec.gguf.projectors import check_projector
from localspec.loading import file_trial
from localspec.loading.projector_check import require_usable


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any file."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


def refusal(path: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        require_usable(check_projector(path))
    message = str(caught.value)
    assert message.startswith(f"{path.name} cannot be ") and message.isprintable()
    return message


@pytest.mark.parametrize("kind", ["eyes", "ears"])
def test_a_good_one_is_tried_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mmproj.gguf"
    write_ears(path) if kind == "ears" else write_projector(path, "qwen3vl_merger")
    require_usable(check_projector(path))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    require_usable(check_projector(path))
    path.touch()
    assert "no process could be started" in refusal(path)


@pytest.mark.parametrize(
    ("kind", "lost", "ends"),
    [
        ("mlp", "mm.2.weight", True),
        ("gemma3", "v.blk.1.ffn_up.weight", False),
        ("gemma3", "v.patch_embd.weight", True),
    ],
)
def test_one_that_lacks_a_tensor_is_refused(
    kind: str, lost: str, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_projector(tmp_path / "mmproj.gguf", kind, lost=lost)
    message = refusal(path)
    assert message.endswith("; download it again, or name another with mmproj")
    assert ("llama.cpp ended (" in message, "cannot be loaded: " in message) == (ends, not ends)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert (refusal(path) == message) is ends, "what it refuses by itself is not remembered"


def test_one_that_takes_too_long_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_projector(tmp_path / "mmproj.gguf", "mlp")
    monkeypatch.setattr(file_trial, "_LEAST_SECONDS", 0)
    monkeypatch.setattr(file_trial, "_BYTES_PER_SECOND", 1e12)
    assert "it was not loaded within 0 s" in refusal(path)
    assert "it was not loaded within 0 s" in refusal(path)
