"""Which models on disk may draft for which, told from what is remembered of their headers."""

from pathlib import Path

import pytest
from fakes.hub_disk import write_split
from fakes.vocabularies import words, write_model

from localspec.models.summaries import Matchmaker, Profile, profile_of


def profile(path: Path) -> Profile:
    found = profile_of([path])
    assert found
    return found


@pytest.fixture
def target(tmp_path: Path) -> Profile:
    return profile(write_model(tmp_path / "target.gguf", words(), layers=4, ggml__bos_token_id=3))


@pytest.mark.parametrize(
    ("tokens", "layers", "adds_bos", "fits"),
    [
        (words(), 2, False, True),
        (words(), 4, False, False),  # as large as the target
        (words(), 2, True, False),
        (words(610), 2, False, True),  # padded
        (words(600, {1: "<pad>"}), 2, False, True),
        (words(600, {599: "other"}), 2, False, False),
        (words(800), 1, False, False),
    ],
)
def test_who_fits(
    *, tmp_path: Path, target: Profile, tokens: list[str], layers: int, adds_bos: bool, fits: bool
) -> None:
    path = tmp_path / "drafter.gguf"
    keys = {"ggml__bos_token_id": 3, "ggml__add_bos_token": adds_bos}
    drafter = profile(write_model(path, tokens, layers=layers, **keys))
    assert Matchmaker().drafters(target, [target, drafter]) == ([drafter] if fits else [])


def test_the_smallest_comes_first(tmp_path: Path, target: Profile) -> None:
    models = [
        profile(write_model(tmp_path / f"{layers}.gguf", words(), layers=layers))
        for layers in (3, 1, 2)
    ]
    found = Matchmaker().drafters(target, models)
    assert [each.file.stem for each in found] == ["1", "2", "3"]


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", words(), layers=1)
    before = profile(path)
    assert profile(path) == before
    after = profile(write_model(path, words(601), layers=1))
    assert after.vocabulary.n_vocab == 601 and after.parameters > before.parameters


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    parts = write_split(tmp_path / "big-F32")
    found = profile_of(parts)
    assert found and found.parameters == 3 * 32 + 32


def test_what_cannot_generate_has_no_profile(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    assert profile_of([path]) is None
    path.write_bytes(b"no model")
    assert profile_of([path]) is None
