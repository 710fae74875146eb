"""What the file of a head says about the target that it belongs to."""

from pathlib import Path

import numpy as np
import pytest
from fakes import eagle3
from fakes.eagle3 import N_VOCAB, READS, SHAPES, WIDTH, HeadShape, write_head, write_target

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.heads import EAGLE3, Head, head_of, require_fitting


def head(path: Path) -> Head:
    return head_of(path, check_drafter(path))


def fit(path: Path, target: Path) -> None:
    require_fitting(path, check_drafter(path), target, check_generative(target))


def test_a_head_says_what_it_reads(tmp_path: Path) -> None:
    path = write_head(tmp_path / "head.gguf", HeadShape(width=24))
    assert head(path) == Head(EAGLE3, READS, target_width=WIDTH, width=24)


def test_a_head_is_a_drafter_and_no_model(tmp_path: Path) -> None:
    path = write_head(tmp_path / "head.gguf")
    with pytest.raises(ModelLoadError, match="draft head"):
        check_generative(path)
    target = write_target(tmp_path / "target.gguf")
    assert check_drafter(target).tensors == check_generative(target).tensors


@pytest.mark.parametrize("layer", [-1, eagle3.LAYERS + 1, 1000])
def test_a_layer_that_is_not_there_is_refused_by_name(tmp_path: Path, layer: int) -> None:
    head = write_head(tmp_path / "head.gguf", reads=(1, layer, 2))
    with pytest.raises(DrafterMismatchError) as refusal:
        fit(head, write_target(tmp_path / "target.gguf"))
    assert f"head.gguf reads hidden states of layer {layer}" in str(refusal.value)
    assert f"target.gguf has {eagle3.LAYERS} layers" in str(refusal.value)


def test_rows_of_another_width_are_refused(tmp_path: Path) -> None:
    head = write_head(tmp_path / "head.gguf", target_hidden_size=16)
    with pytest.raises(DrafterMismatchError, match=r"head\.gguf .* 16 numbers.* 32"):
        fit(head, write_target(tmp_path / "target.gguf"))


def test_the_targets_output_must_have_the_heads_tokens(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf", tokens=N_VOCAB - 2)
    with pytest.raises(DrafterMismatchError, match=f"{N_VOCAB} and {N_VOCAB - 2} tokens"):
        fit(write_head(tmp_path / "head.gguf", SHAPES["target's matrices"]), target)
    fit(write_head(tmp_path / "head.gguf", SHAPES["own"]), target)


def test_an_embedding_of_fewer_tokens_is_refused(tmp_path: Path) -> None:
    path = write_head(tmp_path / "head.gguf", embeddings=200)
    with pytest.raises(ModelLoadError, match=f"200 tokens, and its vocabulary has {N_VOCAB}"):
        head(path)


def test_a_head_without_layers_is_refused(tmp_path: Path) -> None:
    path = write_head(tmp_path / "head.gguf", target_layers=1)
    with pytest.raises(ModelLoadError, match="target_layers"):
        head(path)


@pytest.mark.parametrize("token", [-1, N_VOCAB, 2**40])
def test_a_map_to_tokens_that_do_not_exist_is_refused(tmp_path: Path, token: int) -> None:
    path = write_head(tmp_path / "head.gguf")
    [table] = [tensor for tensor in check_drafter(path).tensors if tensor.name == "d2t"]
    with path.open("r+b") as file:
        file.seek(table.offset + 8 * 5)
        file.write(np.int64(token).tobytes())
    with pytest.raises(ModelLoadError, match=f"{token}, and the vocabulary has {N_VOCAB}"):
        head(path)
