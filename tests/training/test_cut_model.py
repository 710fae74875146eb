"""A cut model computes what llama.cpp computes with the same layers, before and after training."""

from pathlib import Path

import numpy as np
import pytest
from fakes.cut_target import LAYERS, write_cut_target
from fakes.tiny import write_tiny

from localspec.conversion.target import TargetFile
from localspec.errors import DrafterMismatchError, InvalidValueError
from localspec.gguf.reader import read_header
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model

torch = pytest.importorskip("torch")

from localspec.gguf.writer import TensorType  # noqa: E402
from localspec.training.cut_model import CutModel  # noqa: E402
from localspec.training.cut_shape import CutSource  # noqa: E402
from localspec.training.draft_model_kind import DRAFT_MODEL_KIND, DraftModel  # noqa: E402
from localspec.training.drafter_kind import KindOptions  # noqa: E402

TOKENS = [1, 259, 30, 266, 271, 90, 275, 5, 17, 200]


def library_logits(path: Path) -> np.ndarray:
    options = {"n_ctx": 64, "threads": 1, "flash_attention": False}
    with Model(path) as model, single_sequence(model, ContextParams(**options)) as sequence:
        return np.array([sequence.extend([token]).copy() for token in TOKENS])


def torch_logits(model: CutModel) -> np.ndarray:
    with torch.no_grad():
        rows = model(torch.tensor([TOKENS]))[0]
        return (rows @ model.table.T).numpy()


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_all_layers_compute_what_the_target_does(family: str, tied: bool, tmp_path: Path) -> None:
    target = write_cut_target(tmp_path / "target.gguf", family, tied=tied)
    model = CutModel(CutSource(TargetFile(target)), list(range(LAYERS)), trains_tables=True)
    expected = library_logits(target)
    np.testing.assert_allclose(torch_logits(model), expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("trains_tables", [False, True])
def test_the_file_computes_what_was_trained(
    family: str, tied: bool, trains_tables: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.training import draft_model_kind

    monkeypatch.setattr(draft_model_kind, "_LARGEST_TABLES", 10**9 if trains_tables else 0)
    target = write_cut_target(tmp_path / "target.gguf", family, tied=tied, quantised=True)
    drafter = DraftModel(CutSource(TargetFile(target)), [0, 3], TensorType.F32)
    trained = [weight for weight in drafter.parameters() if weight.requires_grad]
    assert len(trained) == len(list(drafter.parameters())) - (not trains_tables) * (2 - tied)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in trained:
            weight += 0.02 * torch.randn_like(weight)
    drafter.export(tmp_path / "draft.gguf", {"general.name": "x", "localspec.trained.target": "y"})
    expected = torch_logits(drafter.model)
    found = library_logits(tmp_path / "draft.gguf")
    np.testing.assert_allclose(found, expected, atol=1e-2 * np.abs(expected).max())
    header = read_header(tmp_path / "draft.gguf")
    assert header.number("block_count") == 2 and header.architecture == family
    assert header.metadata["localspec.trained.target"] == "y"
    assert header.metadata["tokenizer.chat_template"]


@pytest.mark.parametrize("type_name", ["Q8_0", "Q4_0", "F16"])
def test_types_of_the_file(type_name: str, tmp_path: Path) -> None:
    target = write_cut_target(tmp_path / "target.gguf")
    drafter = DraftModel(CutSource(TargetFile(target)), [1], TensorType[type_name])
    drafter.export(tmp_path / "draft.gguf", {})
    header = read_header(tmp_path / "draft.gguf")
    types = {each.name: TensorType(each.type).name for each in header.tensors}
    assert types["blk.0.ffn_down.weight"] == type_name
    assert types["blk.0.attn_norm.weight"] == "F32"
    alike = {"Q8_0": 0.995, "Q4_0": 0.9, "F16": 0.9999}[type_name]
    found = library_logits(tmp_path / "draft.gguf")
    assert np.corrcoef(found.ravel(), torch_logits(drafter.model).ravel())[0, 1] > alike


@pytest.mark.parametrize(
    ("family", "why"),
    [("gemma3", "architecture is gemma3"), ("mamba", "is mamba"), ("qwen3moe", "is qwen3moe")],
)
def test_targets_that_cannot_be_cut(family: str, why: str, tmp_path: Path) -> None:
    target = TargetFile(write_tiny(tmp_path / "target.gguf", family))
    with pytest.raises(DrafterMismatchError, match=rf"{why}.*; train --kind medusa$"):
        DRAFT_MODEL_KIND.layers(target, KindOptions())


def test_layers_that_make_no_sense(tmp_path: Path) -> None:
    target = TargetFile(write_cut_target(tmp_path / "target.gguf"))
    for layers in (0, -1, LAYERS, 99):
        with pytest.raises(InvalidValueError, match=f"layers is {layers}; .* name 1 to 3"):
            DRAFT_MODEL_KIND.layers(target, KindOptions(layers=layers))
    with pytest.raises(InvalidValueError, match="type is 'Q3'"):
        DRAFT_MODEL_KIND.layers(target, KindOptions(type_name="Q3"))
    with pytest.raises(InvalidValueError, match="cut is 'half'; it is one of auto, first"):
        KindOptions(cut="half")
