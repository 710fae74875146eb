"""GGUF export: the file computes what the trained model does."""

from pathlib import Path

import numpy as np
import pytest
from fakes.trained import Rows, mixed, normed, stepped, write_tokenizer
from numpy.typing import NDArray

from localspec.gguf.reader import read_header
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.training.bundled_pair.chat_tokens import TURN
from localspec.training.bundled_pair.gguf_export import export
from localspec.training.bundled_pair.gguf_import import TrainedFile
from localspec.training.sizes import Sizes, Weights

SIZES = Sizes(vocabulary=96, width=64, layers=2, heads=2, feed_forward=96)


@pytest.fixture
def weights() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return (rng.standard_normal((rows, columns)) * 0.2).astype(np.float16).astype(np.float32)

    width, inner = SIZES.width, SIZES.feed_forward
    made = {
        "embedding.weight": matrix(SIZES.vocabulary, width),
        "norm.weight": np.ones(width, np.float32),
    }
    for number in range(SIZES.layers):
        made |= {
            f"blocks.{number}.attention_norm.weight": rng.uniform(0.5, 2, width).astype(np.float32),
            f"blocks.{number}.feed_norm.weight": rng.uniform(0.5, 2, width).astype(np.float32),
            f"blocks.{number}.qkv.weight": matrix(3 * width, width),
            f"blocks.{number}.output.weight": matrix(width, width),
            f"blocks.{number}.gate_up.weight": matrix(2 * inner, width),
            f"blocks.{number}.down.weight": matrix(width, inner),
        }
    return made


def trained_logits(weights: Weights, tokens: list[int]) -> Rows:
    """What the model of training computes, in numpy."""
    rows = weights["embedding.weight"][tokens].astype(np.float64)
    for number in range(SIZES.layers):
        part = {name: weights[f"blocks.{number}.{name}.weight"] for name in PARTS}
        read = normed(rows, part["attention_norm"]) @ part["qkv"].T
        rows = stepped(rows + mixed(read, SIZES.heads) @ part["output"].T, part)
    return normed(rows, weights["norm.weight"]) @ weights["embedding.weight"].T


PARTS = ("attention_norm", "qkv", "output", "feed_norm", "gate_up", "down")


@pytest.fixture
def path(weights: Weights, tmp_path: Path) -> Path:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", SIZES.vocabulary)
    made = tmp_path / "made-f16.gguf"
    export(
        SIZES, weights, tokenizer, made, type_="f16", name="made", license="x", license__link="y"
    )
    return made


def test_the_file_computes_what_was_trained(path: Path, weights: Weights) -> None:
    tokens = [0, 5, 17, 44, 5, 90, 61, 8]
    options = {"n_ctx": 64, "threads": 1, "flash_attention": False}
    with Model(path) as model, single_sequence(model, ContextParams(**options)) as sequence:
        found = np.array([sequence.extend([token]).copy() for token in tokens], np.float64)
    np.testing.assert_allclose(found, trained_logits(weights, tokens), atol=0.03)


def test_a_file_is_read_back_to_be_trained_further(path: Path, weights: Weights) -> None:
    file = TrainedFile(path)
    assert file.sizes == SIZES and file.merges == [("!", "!")]
    assert file.vocabulary[TURN] == 1 and len(file.vocabulary) == SIZES.vocabulary
    assert file.weights.keys() == weights.keys()
    for name, weight in file.weights.items():
        np.testing.assert_array_equal(weight, weights[name], err_msg=name)


def test_source_licence_and_template_are_in_the_file(path: Path) -> None:
    metadata = read_header(path).metadata
    assert metadata["general.license"] == "x" and metadata["general.license.link"] == "y"
    assert metadata["general.sampling.temp"] == pytest.approx(0.2)
    assert "<|im_start|>" in str(metadata["tokenizer.chat_template"])
