"""Which models on this disk could draft, and in which order they are suggested."""

import shutil
from pathlib import Path

import gguf
import pytest
from fakes.vocabularies import words, write_model
from huggingface_hub import constants

from localspec.gguf.facts import Facts
from localspec.models import speed_up
from localspec.models.speed_up import UNMEASURED, PairMeasurement
from localspec.models.suggestions import suggest_drafters, text_model


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, no models of the user's own; small targets count as large ones."""
    monkeypatch.setattr(speed_up, "_QUICK_BYTES", 0)
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put(hub: Path, repository: str, file: Path) -> Path:
    """A file as if it had been downloaded: a link to one that is named by its hash."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    blob, link = folder / "blobs" / ("a" * 64), folder / "snapshots" / ("0" * 40) / file.name
    for each in (blob, link):
        each.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(file, blob)
    link.symlink_to(blob)
    return link


def unknown(_target: Facts, _drafter: Facts) -> PairMeasurement:
    """Nobody has measured anything."""
    return UNMEASURED


def test_those_that_draft_come_first_and_the_smallest_of_them(tmp_path: Path, hub: Path) -> None:
    target = write_model(tmp_path / "target-F32.gguf", words(), layers=12)
    layers = {"good": 4, "best": 1, "larger": 16}
    for name, count in layers.items():
        path = write_model(tmp_path / f"{name}-F32.gguf", words(), layers=count)
        put(hub, f"someone/{name}", path)
    put(hub, "someone/other", write_model(tmp_path / "other-F32.gguf", words(changed={9: "x"})))
    put(hub, "someone/target", target)
    found = suggest_drafters(text_model(target), unknown)
    assert [each.name for each in found if each.useful] == [
        *("someone/best:F32", "someone/good:F32", "someone/other:F32")
    ]
    assert not {"someone/larger:F32", "someone/target:F32"} & {each.name for each in found}


def test_what_was_measured_ranks_higher_than_size(tmp_path: Path, hub: Path) -> None:
    target = write_model(tmp_path / "target-F32.gguf", words(), layers=12)
    for name, count in {"small": 1, "large": 4}.items():
        path = write_model(tmp_path / f"{name}-F32.gguf", words(), layers=count)
        put(hub, f"someone/{name}", path)
    rates = {"small-F32": 0.1, "large-F32": 0.95}
    found = suggest_drafters(
        text_model(target), lambda _, drafter: PairMeasurement(rates.get(drafter.files[0].stem))
    )
    [best] = [each for each in found if each.useful]
    assert best.name == "someone/large:F32"


def test_files_that_generate_no_text_are_not_suggested(tmp_path: Path, hub: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "embedding.gguf", "bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    put(hub, "someone/embedding", tmp_path / "embedding.gguf")
    (tmp_path / "broken.gguf").write_text("no model")
    put(hub, "someone/broken", tmp_path / "broken.gguf")
    target = write_model(tmp_path / "target.gguf", words(), layers=12)
    names = [each.name for each in suggest_drafters(text_model(target), unknown)]
    assert not [name for name in names if name.startswith("someone")]
