"""Vectors and scores of texts, beside an independent computation and the library's own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import psutil
import pytest
from fakes.numpy_bert import NumpyBert
from fakes.tiny_embedders import CLS, LAST, MEAN, RANK, write_bert, write_causal
from numpy.typing import NDArray

from localspec.errors import LocalspecError, ModelLoadError
from localspec.gguf.check import check_embedder, check_generative, reads_in_pieces
from localspec.gguf.reader import read_header
from localspec.llama.embedder import Embedder

TEXTS = ["an bs cr", "dn", "en an fs et dn bt ar", "ct ct ct"]
Write = Callable[[Path], Path]
MODELS: dict[str, Write] = {
    "mean": lambda path: write_bert(path, MEAN, context=256),
    "cls": lambda path: write_bert(path, CLS, context=256),
    "last": lambda path: write_causal(path, LAST),
}
# Of a length of 1; the library computes attention and GELU in part with 16-bit floats.
COARSE, FINE = 2e-3, 1e-5


@contextmanager
def embedder(path: Path, n_ctx: int = 64) -> Iterator[Embedder]:
    with Embedder(path, check_embedder(path), n_ctx) as opened:
        yield opened


def unit(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("kind", ["mean", "cls"])
def test_the_vectors_are_those_of_bert(kind: str, tmp_path: Path) -> None:
    path = MODELS[kind](tmp_path / "bert.gguf")
    bert = NumpyBert(path)
    with embedder(path) as opened:
        tokens = [opened.model.tokenize(text) for text in TEXTS]
        found = opened.vectors(tokens)
    rows = [bert.rows(each) for each in tokens]
    expected = [each.mean(0) if kind == "mean" else each[0] for each in rows]
    assert np.abs(unit(found) - unit(np.array(expected))).max() < COARSE
    assert found.shape == (len(TEXTS), opened.width)


@pytest.mark.parametrize("kind", MODELS)
def test_they_are_those_of_the_library(kind: str, tmp_path: Path) -> None:
    path = MODELS[kind](tmp_path / "model.gguf")
    library = llama_cpp.Llama(str(path), embedding=True, flash_attn=True, n_ctx=512, verbose=False)
    texts = [*TEXTS, "an bs cr dt " * 20]
    expected = [library.create_embedding(text)["data"][0]["embedding"] for text in texts]
    library.close()
    with embedder(path) as opened:
        found = opened.vectors([opened.model.tokenize(text) for text in texts])
    apart = np.abs(unit(found) - unit(np.array(expected))).max(-1)
    # It computes the short ones in narrower passes.
    assert apart.max() < COARSE and apart[-1] < FINE


@pytest.mark.parametrize("kind", MODELS)
def test_a_text_has_one_vector_alone_and_beside_others(kind: str, tmp_path: Path) -> None:
    """But for the last digits: sums over other cells are added up in another order."""
    path = MODELS[kind](tmp_path / "model.gguf")
    with embedder(path) as opened:
        tokens = [opened.model.tokenize(text) for text in [*TEXTS, "en " * 40]]
        together = opened.vectors(tokens)
        for one, beside in zip(tokens, together, strict=True):
            (alone,) = opened.vectors([one])
            assert np.abs(unit(alone) - unit(beside)).max() < FINE
            # Nothing of the texts before is left.
            assert (opened.vectors([one]) == alone).all()
    assert len({each.tobytes() for each in together}) == len(tokens)


def test_a_long_text_is_read_in_pieces(tmp_path: Path) -> None:
    path = write_causal(tmp_path / "model.gguf")
    library = llama_cpp.Llama(
        str(path), embedding=True, flash_attn=True, n_ctx=2048, n_batch=2048, n_ubatch=2048,
        verbose=False,
    )  # fmt: skip
    text = "an bs cr dt " * 150
    expected = library.create_embedding(text)["data"][0]["embedding"]
    library.close()
    with embedder(path, 2048) as opened:
        tokens = opened.model.tokenize(text)
        assert len(tokens) > 1000
        found, other = opened.vectors([tokens]), opened.vectors([tokens[512:]])
    assert np.abs(unit(found) - unit(np.array(expected))).max() < COARSE
    assert np.abs(unit(found) - unit(other)).max() > 4 * COARSE


def test_only_causal_models_read_in_pieces(tmp_path: Path) -> None:
    header = read_header(write_causal(tmp_path / "model.gguf"))
    assert reads_in_pieces(header)
    gemma = {"general.architecture": "gemma-embedding", "gemma-embedding.pooling_type": int(LAST)}
    assert not reads_in_pieces(replace(header, metadata=gemma))


def test_batches_hold_as_many_texts_as_a_pass(tmp_path: Path) -> None:
    texts = [[1] * length for length in (300, 200, 13, 2000, *[1] * 100)]
    batches = [*Embedder.batches(texts)]
    assert [[*map(len, each)] for each in batches] == [[300, 200], [13], [2000], [1] * 63, [1] * 37]
    with embedder(write_causal(tmp_path / "model.gguf"), 2048) as opened:
        assert [len(opened.vectors(each)) for each in batches] == [2, 1, 1, 63, 37]


@pytest.mark.parametrize("n_ctx", [2, 63, 65, 512, 513, 600, 1000])
def test_contexts_of_any_size(n_ctx: int, tmp_path: Path) -> None:
    """For the mean, the library ends the process where some sizes are no multiples of others."""
    with embedder(write_bert(tmp_path / "bert.gguf", context=1000), n_ctx) as opened:
        assert np.isfinite(opened.vectors([[5] * n_ctx])).all()


def test_the_scores_are_those_of_bert(tmp_path: Path) -> None:
    path = write_bert(tmp_path / "ranker.gguf", RANK)
    bert = NumpyBert(path)
    with embedder(path) as opened:
        assert opened.ranks and opened.width == 1
        pairs = [opened.pair("an", text) for text in TEXTS]
        scores = opened.vectors(pairs)[:, 0]
    # [CLS] query [SEP] document, as llama-server writes it.
    assert pairs[1] == [2, 5, 3, 17]
    expected = np.array([bert.score(pair) for pair in pairs])
    assert np.ptp(expected) > 0.1 and np.abs(scores - expected).max() < 5 * COARSE


def test_a_model_that_writes_text_ranks_by_its_template(tmp_path: Path) -> None:
    with embedder(write_causal(tmp_path / "ranker.gguf", RANK)) as opened:
        pair = opened.pair("an {document}", "bs {query}")
        assert opened.model.tokenize("q an {document} d bs {query}", add_special=False) == pair
        yes, other = opened.vectors([pair, opened.pair("an", "dn")])[:, 0]
    assert 0 < yes < 1 and 0 < other < 1 and yes != other


@pytest.mark.parametrize(("kind", "end"), [("mean", 3), ("last", 2)])
def test_a_text_is_shortened_before_its_last_special_token(
    kind: str, end: int, tmp_path: Path
) -> None:
    with embedder(MODELS[kind](tmp_path / "model.gguf"), 8) as opened:
        short, long = (opened.model.tokenize(text) for text in ("an", "an bs cr dt an bs cr dt"))
        assert opened.shortened(short) == short
        assert opened.shortened(long) == [*long[:7], end]
        assert opened.shortened(long[:-1]) == long[:8]  # tokens of the client's own


@pytest.mark.parametrize("kind", MODELS)
def test_a_pass_that_is_stopped_gives_no_vector(kind: str, tmp_path: Path) -> None:
    with embedder(MODELS[kind](tmp_path / "model.gguf")) as opened:
        opened.vectors([[5, 6]])
        opened.stop()
        with pytest.raises(LocalspecError, match="gives no embedding of a text"):
            opened.vectors([[5, 6]])


def test_numbers_that_are_none(tmp_path: Path) -> None:
    path = write_causal(tmp_path / "model.gguf")
    tensors = {each.name: each for each in gguf.GGUFReader(path).tensors}
    row = int(tensors["token_embd.weight"].data_offset) + 270 * 32 * 4
    with path.open("r+b") as file:
        file.seek(row)
        file.write(np.float32("nan").tobytes())
    with embedder(path) as opened:
        usual = opened.vectors([[1, 260, 2]])
        with pytest.raises(LocalspecError, match=r"model\.gguf computes what is no number"):
            opened.vectors([[1, 260, 2], [1, 270, 2]])
        assert (opened.vectors([[1, 260, 2]]) == usual).all()


@pytest.mark.parametrize("kind", ["bert", "causal"])
def test_a_long_text_takes_no_memory_that_was_free_after_loading(kind: str, tmp_path: Path) -> None:
    """What is loaded later is planned with what is free then."""
    path = tmp_path / "model.gguf"
    if kind == "bert":
        write_bert(path, context=1024, more_tokens=20_000)  # 80 MB of rows
    else:
        write_causal(path)
    with embedder(path, 1024) as opened:
        process = psutil.Process()
        loaded = process.memory_info().rss
        opened.vectors([[5] * 1024])
        assert process.memory_info().rss - loaded < 2e7


def test_what_is_no_embedding_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="names no pooling type, as embedding models do"):
        check_embedder(write_causal(tmp_path / "none.gguf", gguf.PoolingType.NONE))
    for lost in ("cls", "cls.output"):
        headless = write_bert(tmp_path / "headless.gguf", RANK, lost=lost)
        with pytest.raises(ModelLoadError, match=r"ranks texts and has no tensor 'cls.output.wei"):
            check_embedder(headless)
    for path in (write_bert(tmp_path / "bert.gguf"), write_causal(tmp_path / "causal.gguf")):
        with pytest.raises(ModelLoadError, match="is an embedding model and cannot generate text"):
            check_generative(path)
