"""Which file reads images for a model, by the names in its folder."""

from pathlib import Path

import pytest
from fakes.projectors import tiny_projector
from fakes.tiny import tiny_model, write_tiny

from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.gguf.projectors import check_projector, choose_projector, is_projector
from localspec.models.projectors import projector_beside


@pytest.mark.parametrize(
    ("target", "files", "chosen"),
    [
        ("gemma-3-4b-it-Q4_K_M.gguf", ["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        (
            "gemma-3-4b-it-Q4_K_M.gguf",
            ["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"],
            "mmproj-F16.gguf",
        ),
        (
            "Qwen3.8-27B-Q4_K_M.gguf",
            ["mmproj-Qwen3.8-27B-Q8_0.gguf", "mmproj-Qwen3.8-27B-BF16.gguf", "mmproj-F16.gguf"],
            "mmproj-Qwen3.8-27B-BF16.gguf",
        ),
        (
            "Qwen3.8-27B-Q4_K_M.gguf",
            ["Qwen3.8-27B.mmproj-f16.gguf", "mmproj-gemma-3-4b-it-f16.gguf"],
            "Qwen3.8-27B.mmproj-f16.gguf",
        ),
        ("llama-3-8b-Q4_K_M.gguf", ["mmproj-gemma-3-4b-it-f16.gguf", "a.gguf"], None),
        ("model-00001-of-00002.gguf", ["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        ("a-q8_0.gguf", ["a-mm-projector-q8_0.gguf"], "a-mm-projector-q8_0.gguf"),
        ("a-q8_0.gguf", [], None),
        ("a-q8_0.gguf", ["mmproj-F32.gguf", "mmproj-Q8_0.gguf"], "mmproj-Q8_0.gguf"),
        ("Q8_0/a-q8_0.gguf", ["mmproj-F16.gguf"], "mmproj-F16.gguf"),
        ("a-q8_0.gguf", ["mmproj/mmproj-F16.gguf"], "mmproj/mmproj-F16.gguf"),
        ("a-q8_0.gguf", ["other/mmproj-F16.gguf"], None),
        ("a/a-q8_0.gguf", ["b/mmproj-F16.gguf"], None),
    ],
)
def test_the_projector_of_a_model(target: str, files: list[str], chosen: str | None) -> None:
    for each in (files, files[::-1]):
        assert choose_projector([*each, target], target) == chosen


def test_names_of_projectors() -> None:
    assert is_projector("mmproj-F16.gguf") and is_projector("a/B-MMPROJ.GGUF")
    assert not is_projector("mmproj/model.gguf") and not is_projector("mmproj.txt")


def test_the_one_beside_a_model(tmp_path: Path) -> None:
    target = tmp_path / "a-q8_0.gguf"
    assert projector_beside(target) is None
    (tmp_path / "mmproj-a-f16.gguf").touch()
    assert projector_beside(target) == tmp_path / "mmproj-a-f16.gguf"
    assert projector_beside(tmp_path / "none" / "a.gguf") is None


def test_what_a_file_reads(tmp_path: Path) -> None:
    found = check_projector(tiny_projector("llama"))
    assert (found.images, found.sounds) == (True, False)
    with pytest.raises(ModelLoadError, match=r"llama\.gguf is no mmproj file \(llama\)"):
        check_projector(tiny_model("llama"))
    with pytest.raises(ModelNotFoundError):
        check_projector(tmp_path / "none.gguf")
    blind = write_tiny(tmp_path / "mmproj.gguf", "clip", layers=lambda _writer: None)
    with pytest.raises(ModelLoadError, match="reads neither images nor sounds"):
        check_projector(blind)
