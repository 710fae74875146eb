"""What is cached of models on disk."""

from pathlib import Path

from fakes.hub_disk import write_split
from fakes.vocabularies import words, write_model

from localspec.models.summaries import ModelSummary, summary_of


def summary(path: Path) -> ModelSummary:
    found = summary_of([path])
    assert found
    return found


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", words(), layers=1)
    before = summary(path)
    assert summary(path) == before
    after = summary(write_model(path, words(601), layers=1))
    assert after.vocabulary.n_vocab == 601 and after.parameters > before.parameters


def test_all_parts_of_a_split_model_count(tmp_path: Path) -> None:
    parts = write_split(tmp_path / "big-F32")
    found = summary_of(parts)
    assert found and found.parameters == 3 * 32 + 32


def test_what_cannot_generate_has_no_summary(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    assert summary_of([path]) is None
    path.write_bytes(b"no model")
    assert summary_of([path]) is None
