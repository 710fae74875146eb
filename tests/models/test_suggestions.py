"""Which models might draft, among files on this disk and the pairs that are known."""

import shutil
from pathlib import Path

import gguf
import pytest
from fakes.tiny import write_tiny
from fakes.vocabularies import words, write_model
from huggingface_hub import constants

from localspec.gguf.facts import Facts
from localspec.hub.reference import Repository
from localspec.models import registry, suggestions
from localspec.models.compatibility import checks
from localspec.models.speed_up import NOTHING, Measured
from localspec.models.suggestions import model_at, pair_for
from localspec.models.vocabulary_match import Verdict, failure


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, and no models of the user's own."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put(hub: Path, repository: str, file: Path) -> Path:
    """A file as if it had been downloaded."""
    folder = hub / f"models--{repository.replace('/', '--')}" / "snapshots" / ("0" * 40)
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(file, folder / file.name))


def unknown(_target: Facts, _drafter: Facts) -> Measured:
    """Nobody has measured anything."""
    return NOTHING


def test_those_that_draft_come_first_and_the_smallest_of_them(tmp_path: Path, hub: Path) -> None:
    target = write_model(tmp_path / "target-F32.gguf", words(), layers=12)
    layers = {"good": 4, "best": 1, "larger": 16}
    for name, count in layers.items():
        path = write_model(tmp_path / f"{name}-F32.gguf", words(), layers=count)
        put(hub, f"someone/{name}", path)
    put(hub, "someone/other", write_model(tmp_path / "other-F32.gguf", words(changed={9: "x"})))
    put(hub, "someone/target", target)
    found = suggestions.on_disk(model_at(target), unknown)
    assert [each.name for each in found if each.drafts] == [
        *("someone/best:F32", "someone/good:F32")
    ]
    assert {each.name for each in found if not each.drafts} >= {"someone/other:F32"}
    assert not {"someone/larger:F32", "someone/target:F32"} & {each.name for each in found}


def test_what_was_measured_ranks_higher_than_size(tmp_path: Path, hub: Path) -> None:
    target = write_model(tmp_path / "target-F32.gguf", words(), layers=12)
    for name, count in {"small": 1, "large": 4}.items():
        path = write_model(tmp_path / f"{name}-F32.gguf", words(), layers=count)
        put(hub, f"someone/{name}", path)
    rates = {"small-F32": 0.1, "large-F32": 0.95}
    found = suggestions.on_disk(
        model_at(target), lambda _, drafter: Measured(rates.get(drafter.files[0].stem))
    )
    [best] = [each for each in found if each.drafts]
    assert best.name == "someone/large:F32"


def test_files_that_generate_no_text_are_no_candidates(tmp_path: Path, hub: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "embedding.gguf", "bert")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    put(hub, "someone/embedding", tmp_path / "embedding.gguf")
    (tmp_path / "broken.gguf").write_text("no model")
    put(hub, "someone/broken", tmp_path / "broken.gguf")
    target = write_model(tmp_path / "target.gguf", words(), layers=12)
    names = [each.name for each in suggestions.on_disk(model_at(target), unknown)]
    assert not [name for name in names if name.startswith("someone")]


def test_pairs_are_found_by_their_target_in_any_quantisation() -> None:
    pair = pair_for(Repository("Qwen/Qwen3-8B-GGUF", "Q6_K"))
    assert pair and pair.name == "qwen3-8b"
    assert pair_for(Repository("someone/else")) is None
    pair = pair_for(registry.bundled().target)
    assert pair and pair.name == "pycode"


@pytest.mark.parametrize(
    ("file", "pair"),
    [
        ("Qwen3-8B-Q5_K_S.gguf", "qwen3-8b"),
        ("qwen3_8b.gguf", "qwen3-8b"),
        ("Qwen3-8B-abliterated.gguf", "qwen3-8b"),
        ("Qwen3-80B.gguf", None),
        ("my-own.gguf", None),
    ],
)
def test_pairs_are_found_by_the_name_of_a_file(
    file: str, pair: str | None, tmp_path: Path, hub: Path
) -> None:
    path = write_model(tmp_path / file, words(), layers=1)
    found = suggestions.pair_of(model_at(path))
    assert (found and found.name) == pair


@pytest.mark.parametrize(
    ("families", "verdict", "detail"),
    [
        (("llama", "qwen3moe"), Verdict.FITS, "attention: any last"),
        (("qwen35", "mamba"), Verdict.HARMLESS, "hybrid, recurrent: the target and the drafter"),
        (("mamba", "llama"), Verdict.HARMLESS, "recurrent, attention: the target must copy"),
        (("llama", "qwen35"), Verdict.HARMLESS, "attention, hybrid: the drafter must copy"),
    ],
)
def test_running_states_are_copied(
    families: tuple[str, str], verdict: Verdict, detail: str, tmp_path: Path
) -> None:
    target, drafter = (
        model_at(write_tiny(tmp_path / f"{family}.gguf", family)) for family in families
    )
    [rollback] = [each for each in checks(target, drafter) if each.name == "rollback"]
    assert rollback.verdict is verdict and rollback.detail.startswith(detail)


def test_a_sliding_window_fits(tmp_path: Path) -> None:
    target, drafter = (
        model_at(write_tiny(tmp_path / f"{family}.gguf", family)) for family in ("gemma3", "qwen3")
    )
    [rollback] = [each for each in checks(target, drafter) if each.name == "rollback"]
    assert rollback.verdict is Verdict.FITS
    assert rollback.detail.startswith("sliding window, attention")


def test_a_context_is_the_targets_own_unless_another_is_wanted(tmp_path: Path) -> None:
    target = model_at(write_model(tmp_path / "target.gguf", words(), layers=4, context=512))
    drafter = model_at(write_model(tmp_path / "drafter.gguf", words(), layers=1, context=512))
    assert failure(checks(target, drafter)) is None
    [found] = [each for each in checks(target, drafter, 600) if each.name == "context"]
    assert found.verdict is Verdict.HARMLESS and found.detail.startswith("600 tokens")
