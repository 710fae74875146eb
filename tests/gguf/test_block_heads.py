"""What the file of a head that drafts blocks says about its block and its target."""

from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from fakes.dflash import BLOCK, KINDS, LAYERS, MASK, SHAPES, BlockShape, write_block_head
from fakes.eagle3 import READS, WIDTH, write_target
from fakes.tiny import N_VOCAB, write_tiny

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.block_heads import DFLASH, DFLASH2, DSPARK, Block
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.facts import facts_of
from localspec.gguf.heads import Head, head_of, require_fitting

MARKOV = KINDS["dspark"][0]
CANDIDATES = KINDS["dflash2"][0]


def head(path: Path) -> Head:
    return head_of(path, check_drafter(path))


def fit(path: Path, target: Path) -> None:
    require_fitting(path, check_drafter(path), target, check_generative(target))


@pytest.mark.parametrize(
    ("shape", "kind", "block"),
    [
        (SHAPES["own matrices"], DFLASH, Block(BLOCK, MASK, LAYERS)),
        (SHAPES["causal"], DFLASH, Block(BLOCK, MASK, LAYERS, causal=True)),
        (SHAPES["not causal"], DFLASH, Block(BLOCK, MASK, LAYERS)),
        (MARKOV, DSPARK, Block(BLOCK, MASK, LAYERS, first=0, has_confidence=True)),
        (replace(MARKOV, anchor=True), DSPARK, Block(BLOCK, MASK, LAYERS, 0, has_confidence=True)),
        (replace(MARKOV, anchor=False, confidence=False), DSPARK, Block(BLOCK, MASK, LAYERS)),
        (CANDIDATES, DFLASH2, Block(BLOCK, MASK, LAYERS, candidates=5)),
        (BlockShape(logit_scale=0.5), DFLASH, Block(BLOCK, MASK, LAYERS, logit_scale=0.5)),
        (BlockShape(softcap=30.0), DFLASH, Block(BLOCK, MASK, LAYERS, softcap=30.0)),
        (replace(CANDIDATES, softcap=2.0), DFLASH2, Block(BLOCK, MASK, LAYERS, candidates=5)),
    ],
    ids=str,
)
def test_the_file_tells_the_kind_and_its_block(
    tmp_path: Path, shape: BlockShape, kind: str, block: Block
) -> None:
    found = head(write_block_head(tmp_path / "head.gguf", shape))
    assert found == Head(kind, READS, WIDTH, WIDTH, block)
    assert block.drafted == (BLOCK if not block.first else BLOCK - 1)


def test_a_dflash_head_that_does_not_say_its_block_has_the_usual_one(tmp_path: Path) -> None:
    block = head(write_block_head(tmp_path / "head.gguf", block_size=None)).block
    assert block is not None
    assert block.size == 16


def test_a_head_is_no_model(tmp_path: Path) -> None:
    path = write_block_head(tmp_path / "head.gguf")
    with pytest.raises(ModelLoadError, match="pass its target, and this file as its drafter"):
        check_generative(path)


@pytest.mark.parametrize(
    ("kind", "words"), [("dflash", "DFlash"), ("dflash2", "DFlash 2"), ("dspark", "DSpark")]
)
def test_kinds_are_named(tmp_path: Path, kind: str, words: str) -> None:
    path = write_block_head(tmp_path / "head.gguf", KINDS[kind][0])
    assert facts_of(path).hidden_state_heads == f"{words} head, for its own target"


@pytest.mark.parametrize(
    "architecture",
    ["dflash-draft", "qwen35-dflash-draft", "gemma4-dflash-draft", "gemma4_assistant"],
)
def test_heads_of_forks_are_refused_by_name(tmp_path: Path, architecture: str) -> None:
    writer = gguf.GGUFWriter(tmp_path / "fork.gguf", architecture)
    writer.add_tensor("fc.weight", np.zeros((8, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for check in (check_drafter, check_generative):
        with pytest.raises(ModelLoadError, match=rf"\({architecture}\) that only a fork"):
            check(tmp_path / "fork.gguf")


@pytest.mark.parametrize("mask", [None, N_VOCAB, 2**31])
def test_a_mask_that_is_no_token_is_refused(tmp_path: Path, mask: int | None) -> None:
    path = write_block_head(tmp_path / "head.gguf", mask=mask)
    with pytest.raises(ModelLoadError, match=rf"the token {mask} .*has {N_VOCAB}"):
        head(path)


@pytest.mark.parametrize(
    ("kind", "size", "least"),
    [
        ("dflash", 0, 2),
        ("dflash", 1, 2),
        ("dflash", 63, 2),
        ("dflash2", None, 2),
        ("dspark", None, 1),
        ("dspark", 0, 1),
    ],
)
def test_blocks_of_no_size_are_refused(
    tmp_path: Path, kind: str, size: int | None, least: int
) -> None:
    path = write_block_head(tmp_path / "head.gguf", KINDS[kind][0], block_size=size)
    with pytest.raises(ModelLoadError, match=rf"blocks of {size} tokens .* not {least} to 62"):
        head(path)


@pytest.mark.parametrize("count", [6, 300])
def test_candidates_that_have_no_room_are_refused(tmp_path: Path, count: int) -> None:
    shape = replace(CANDIDATES, candidates=count)
    path = write_block_head(tmp_path / "head.gguf", shape)
    with pytest.raises(ModelLoadError, match=rf"among {count} candidates .* {WIDTH} numbers"):
        head(path)


def test_layers_that_do_not_fit_the_first_matrix_are_refused(tmp_path: Path) -> None:
    path = write_block_head(tmp_path / "head.gguf", embedding_length=64)
    with pytest.raises(ModelLoadError, match="3 layers of 64 numbers, and takes rows of 96"):
        head(path)


def test_a_head_of_deepseek_v4_is_refused(tmp_path: Path) -> None:
    path = write_block_head(tmp_path / "head.gguf", hyper_connection_count=4)
    with pytest.raises(ModelLoadError, match="DeepSeek-V4"):
        head(path)


def test_a_head_without_layers_is_refused(tmp_path: Path) -> None:
    path = write_block_head(tmp_path / "head.gguf", target_layers=1)
    with pytest.raises(ModelLoadError, match=r"dflash\.target_layers"):
        head(path)


@pytest.mark.parametrize("layer", [-1, 6, 1000])
def test_a_layer_that_is_not_there_is_refused_by_name(tmp_path: Path, layer: int) -> None:
    path = write_block_head(tmp_path / "head.gguf", reads=(1, layer, 2))
    with pytest.raises(DrafterMismatchError, match=f"layer {layer}, and .* 5 layers"):
        fit(path, write_target(tmp_path / "target.gguf"))


def test_rows_of_another_width_are_refused(tmp_path: Path) -> None:
    path, target = write_block_head(tmp_path / "head.gguf"), write_target(tmp_path / "target.gguf")
    wide = check_generative(target)
    wide = replace(wide, metadata={**wide.metadata, "llama.embedding_length": 64})
    with pytest.raises(DrafterMismatchError, match=rf"head\.gguf .* {WIDTH} numbers.* 64"):
        require_fitting(path, check_drafter(path), target, wide)


def test_the_targets_output_must_have_the_heads_tokens(tmp_path: Path) -> None:
    target = write_target(tmp_path / "target.gguf", tokens=N_VOCAB - 2)
    with pytest.raises(DrafterMismatchError, match=f"{N_VOCAB} and {N_VOCAB - 2} tokens"):
        fit(write_block_head(tmp_path / "head.gguf"), target)
    for shape in ("own matrices", "tied"):
        fit(write_block_head(tmp_path / "head.gguf", SHAPES[shape]), target)


def test_a_dflash2_head_must_say_the_sections_of_its_target(tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "target.gguf", "qwen35")
    write = {"reads": (1, 2), "family": "qwen35"}
    path = write_block_head(tmp_path / "head.gguf", CANDIDATES, **write)
    with pytest.raises(DrafterMismatchError, match=r"dflash\.rope\.dimension_sections"):
        fit(path, target)
    fit(write_block_head(path, replace(CANDIDATES, sections=True), **write), target)
    # To a DFlash head they make no difference for text.
    fit(write_block_head(path, SHAPES["own matrices"], **write), target)
