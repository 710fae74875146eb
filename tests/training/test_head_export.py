"""Head export: the files compute what the trained heads do."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fakes.dflash import BlockOracle
from fakes.eagle3 import Eagle3Oracle
from fakes.matrix_heads import MedusaOracle
from fakes.trained import (
    DFLASH,
    DFLASH_LAYER,
    EAGLE3,
    MEDUSA,
    READS,
    SIZES,
    Rows,
    attention,
    mixed,
    normed,
    random_weights,
    stepped,
    write_tokenizer,
    write_trained_target,
)

import localspec
from localspec.training.bundled_pair.gguf_export import (
    MASK_ID,
    export_dflash,
    export_eagle3,
    export_medusa,
)
from localspec.training.tensor_layouts import BLOCK, DFLASH_LAYERS, MEDUSA_BLOCKS, MEDUSA_HEADS


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The target, the tokenizer, and where the head goes."""
    words = write_tokenizer(tmp_path / "tokenizer.json", SIZES.vocabulary)
    target = write_trained_target(tmp_path / "target.gguf", words)
    return target, words, tmp_path / "head.gguf"


def test_an_eagle3_file_computes_what_was_trained(files: tuple[Path, Path, Path]) -> None:
    target, words, path = files
    weights = random_weights(EAGLE3, 2)
    export_eagle3(SIZES, READS, weights, words, path, name="head")
    oracle = Eagle3Oracle(target, path)
    tokens = [5, 17, 44, 5, 90, 61, 8]
    part = {name: weights[f"{name}.weight"] for name in EAGLE3}
    features = oracle.features([0, *tokens[:-1]])
    states = features @ part["fc"].T
    embedded = oracle.target.embedding[tokens]
    pairs = [normed(embedded, part["token_norm"]), normed(states, part["state_norm"])]
    read = np.hstack(pairs) @ part["qkv"].T
    rows: Rows = stepped(states + mixed(read, SIZES.heads) @ part["output"].T, part)
    found_states = oracle.fused(features)
    logits, own = oracle.decoded(tokens, found_states)
    # Q8_0 rounds the matrices of the file.
    np.testing.assert_allclose(found_states, states, rtol=0, atol=0.05 * np.abs(states).max())
    np.testing.assert_allclose(own, rows, rtol=0, atol=0.05 * np.abs(rows).max())
    expected = normed(rows, part["norm"]) @ oracle.target.embedding.T
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.05 * np.abs(expected).max())


def test_a_dflash_file_computes_what_was_trained(files: tuple[Path, Path, Path]) -> None:
    target, words, path = files
    weights = random_weights(DFLASH, 3)
    export_dflash(SIZES, READS, weights, words, path, name="head")
    oracle = BlockOracle(target, path)
    assert (oracle.block.size, oracle.block.mask) == (BLOCK, MASK_ID)
    features = oracle.features([0, 17, 44, 5, 61])
    block = [8, *[MASK_ID] * (BLOCK - 1)]
    text = normed(features @ weights["fc.weight"].T, weights["text_norm.weight"])
    rows: Rows = oracle.target.embedding[block]
    for layer in range(DFLASH_LAYERS):
        part = {name: weights[f"layers.{layer}.{name}.weight"] for name in DFLASH_LAYER}
        q, k, v = np.split(normed(rows, part["attention_norm"]) @ part["qkv"].T, 3, 1)
        text_k, text_v = np.split(text @ part["qkv"].T, 3, 1)[1:]
        both = np.vstack([text_k, k]), np.vstack([text_v, v])
        seen = np.zeros((BLOCK, len(text) + BLOCK))
        read = attention(q, *both, heads=SIZES.heads, hidden=seen, norms=part)
        rows = stepped(rows + read @ part["output"].T, part)
    expected = normed(rows, weights["norm.weight"]) @ oracle.target.embedding.T
    logits, _ = oracle.block_rows(features, block)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.05 * np.abs(expected).max())


def test_a_medusa_file_computes_what_was_trained(files: tuple[Path, Path, Path]) -> None:
    target, words, path = files
    weights = random_weights(MEDUSA, 4)
    export_medusa(SIZES, READS, weights, words, path, name="head")
    oracle, expected = MedusaOracle(target, path), []
    text = [0, 5, 17, 44, 5, 61]
    for head in range(MEDUSA_HEADS):
        row = oracle.row(text[:-1])
        for block in range(MEDUSA_BLOCKS):
            name = f"heads.{head}.{block}"
            read = weights[f"{name}.weight"] @ row + weights[f"{name}.bias"]
            row = row + read / (1 + np.exp(-read))
        expected.append(oracle.target.embedding @ row)
    logits = oracle.draft_logits(text, [0] * MEDUSA_HEADS)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=0.05 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("export", "shapes"),
    [(export_eagle3, EAGLE3), (export_dflash, DFLASH), (export_medusa, MEDUSA)],
)
def test_a_file_drafts_for_its_target(
    files: tuple[Path, Path, Path], export: Callable[..., None], shapes: dict[str, tuple[int, ...]]
) -> None:
    target, words, path = files
    export(SIZES, READS, random_weights(shapes, 2), words, path, name="head")
    options = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}
    with localspec.load(target, draft=str(path), threads=1, context=128) as engine:
        drafted = engine.generate([0, 5, 17, 44], depth=3, **options)
        engine.switch(draft="none")
        assert engine.generate([0, 5, 17, 44], **options).token_ids == drafted.token_ids
    assert drafted.stats.drafted
