"""A head scaled with its target drafts what the small head drafts for the small target."""

from pathlib import Path

import pytest
from fakes.trained import (
    DFLASH,
    EAGLE3,
    READS,
    SIZES,
    random_weights,
    write_tokenizer,
    write_trained_target,
)

import localspec
from localspec.errors import InvalidValueError
from localspec.scaling.scale import scaled_model
from localspec.scaling.shape import Size
from localspec.training.bundled_pair.gguf_export import export_dflash, export_eagle3

SIZE = Size(width=512, layers=7, ffn=512)


HEADS = {"eagle3": (export_eagle3, EAGLE3), "dflash": (export_dflash, DFLASH)}


@pytest.fixture(scope="module", params=HEADS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pair")
    words = write_tokenizer(folder / "tokenizer.json", SIZES.vocabulary)
    target = write_trained_target(folder / "target.gguf", words)
    head = folder / f"{request.param}.gguf"
    export, shapes = HEADS[request.param]
    export(SIZES, READS, random_weights(shapes, 2), words, head, name="head")
    return target, head


def drafts(target: Path, head: Path) -> tuple[list[int], list[int]]:
    """The text, and how many tokens of each depth were accepted."""
    options = {"max_tokens": 64, "temperature": 3.0, "seed": 3, "ignore_eos": True}
    with localspec.load(target, draft=str(head), threads=1, context=128) as engine:
        found = engine.generate([0, 5, 17, 44], depth=3, **options)
    return found.token_ids, found.stats.accepted_per_position


@pytest.mark.parametrize(("type_name", "extra"), [("F32", 0), ("Q8_0", 0), ("F32", 500)])
def test_acceptance_is_that_of_the_small_pair(
    pair: tuple[Path, Path], tmp_path: Path, type_name: str, extra: int
) -> None:
    """extra: tokens by which the vocabulary is padded."""
    target, head = pair
    vocabulary = SIZES.vocabulary + extra
    same = Size(SIZES.width, SIZES.layers, SIZES.feed_forward)
    small = [
        scaled_model(target, same, "F32", tmp_path),
        scaled_model(target, same, "F32", tmp_path, head=head),
    ]
    large = [
        scaled_model(target, SIZE, type_name, tmp_path, vocabulary=vocabulary),
        scaled_model(target, SIZE, type_name, tmp_path, vocabulary=vocabulary, head=head),
    ]
    assert len({*small, *large}) == 4
    text, accepted = drafts(*small)
    large_text, large_accepted = drafts(*large)
    assert sum(accepted) > 3
    if type_name == "F32":
        assert (large_text, large_accepted) == (text, accepted)
    assert abs(sum(large_accepted) - sum(accepted)) <= 0.4 * sum(accepted) + 3


def test_a_head_of_other_sizes_is_refused(pair: tuple[Path, Path], tmp_path: Path) -> None:
    target, head = pair
    words = write_tokenizer(tmp_path / "tokenizer.json", SIZES.vocabulary)
    other = write_trained_target(tmp_path / "other.gguf", words, feed_forward=128)
    with pytest.raises(InvalidValueError, match="other sizes than other"):
        scaled_model(other, SIZE, "F32", tmp_path, head=head)
    with pytest.raises(InvalidValueError, match="Q4_K_M"):
        scaled_model(target, SIZE, "Q4_K_M", tmp_path, head=head)
    with pytest.raises(InvalidValueError, match="'llama'"):
        scaled_model(target, SIZE, "F32", tmp_path, head=target)
