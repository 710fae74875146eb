"""Which pair a target has, by its file, its repository or its name; and which models fit it."""

from pathlib import Path

import pytest
from fakes.hub_disk import HubDisk
from fakes.vocabularies import words, write_model
from huggingface_hub import constants

from localspec.hub.reference import Repository
from localspec.models import registry
from localspec.models.pair_finder import DrafterFinder, pair_like, pair_of, sampling_pair
from localspec.models.suggestions import text_model
from localspec.models.summaries import ModelSummary, summary_of

QWEN = "Qwen/Qwen3-8B-GGUF"


@pytest.fixture(autouse=True)
def users_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No pairs of the user's own."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "models.toml"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubDisk:
    """An empty cache of the Hub."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return HubDisk(tmp_path / "hub")


def downloaded(disk: HubDisk, repository: str, file: str) -> Path:
    return disk.add(repository, {file: b"GGUF"}) / file


# The pair of a target.


def test_a_file_of_the_cache_has_the_pair_of_its_repository(disk: HubDisk) -> None:
    for quant in ("Q4_K_M", "Q8_0"):
        found = pair_of(downloaded(disk, QWEN, f"Qwen3-8B-{quant}.gguf"))
        assert found is registry.pairs()["qwen3-8b"]
    assert pair_of(registry.bundled().target) is registry.pairs()["terminal"]


def test_a_repository_has_a_pair_in_any_quantisation() -> None:
    pair = pair_of(Repository(QWEN, "Q6_K"))
    assert pair and pair.name == "qwen3-8b"
    assert pair_of(Repository("someone/else")) is None


def test_a_link_to_a_target_has_its_pair(tmp_path: Path) -> None:
    link = tmp_path / "link.gguf"
    link.symlink_to(registry.bundled().target)
    assert pair_of(link) is registry.pairs()["terminal"]


def test_other_files_have_no_pair(disk: HubDisk, tmp_path: Path) -> None:
    assert pair_of(downloaded(disk, "me/mine", "mine-Q8_0.gguf")) is None
    assert pair_of(tmp_path / "not-there.gguf") is None
    # A drafter is the target of no pair.
    assert pair_of(downloaded(disk, "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf")) is None


def test_a_users_pair_for_a_curated_target_is_taken(users_file: Path, disk: HubDisk) -> None:
    users_file.write_text(f'[pairs.mine]\ntarget = "{QWEN}"\ndrafter = "me/small:Q8_0"\n')
    pair = pair_of(downloaded(disk, QWEN, "Qwen3-8B-Q4_K_M.gguf"))
    assert pair and pair.files == [Repository(QWEN), Repository("me/small", "Q8_0")]


def test_of_several_pairs_the_one_that_was_named_is_taken(users_file: Path) -> None:
    users_file.write_text(f'[pairs.mine]\ntarget = "{QWEN}"\n')
    for name, found in {"": "mine", "Qwen3-8B:Q8_0": "qwen3-8b", "gpt-oss-20b": "mine"}.items():
        pair = pair_of(Repository(QWEN), name)
        assert pair and pair.name == found


def test_of_several_own_pairs_the_one_that_was_named_is_taken(users_file: Path) -> None:
    """The file is parsed anew each time, so that a pair is equal to itself and not the same."""
    users_file.write_text(
        "".join(
            f'[pairs.{name}]\ntarget = "{QWEN}"\ndrafter = "me/{name}:Q8_0"\n'
            f"sampling = {{ temperature = {temperature} }}\n"
            for name, temperature in (("first", 1.3), ("second", 0.3))
        )
    )
    for name, temperature in {"": 1.3, "second": 0.3, "SECOND:Q8_0": 0.3}.items():
        drafting, drawing = pair_of(Repository(QWEN), name), sampling_pair(Repository(QWEN), name)
        assert drafting and drawing and drafting == drawing
        assert drawing.sampling == {"temperature": temperature}
        assert drafting.files[1] == Repository(f"me/{drafting.name}", "Q8_0")
        assert drafting.name == (name or "first").lower().partition(":")[0]


def test_the_sampling_of_a_target_is_that_of_the_named_pair_else_of_the_first_that_has_one(
    users_file: Path,
) -> None:
    """The same model from another uploader has it too; a fine-tune, which is another, has none."""
    users_file.write_text(
        f'[pairs.plain]\ntarget = "{QWEN}"\n'
        f'[pairs.mine]\ntarget = "{QWEN}"\nsampling = {{ temperature = 1.2 }}\n'
    )
    for name, found in {"": "mine", "plain": "mine", "qwen3-8b:Q8_0": "qwen3-8b"}.items():
        pair = sampling_pair(Repository(QWEN), name)
        assert pair and pair.name == found
    elsewhere = sampling_pair(Repository("bartowski/Qwen_Qwen3-8B-GGUF"))
    assert elsewhere and elsewhere.name == "mine"
    assert sampling_pair(Repository("bartowski/Qwen3-8B-abliterated-GGUF")) is None
    assert sampling_pair(registry.bundled().target) is None


def test_the_target_of_a_pair_need_not_exist(users_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "not-there.gguf"
    users_file.write_text(f'[pairs.mine]\ntarget = "{target}"\n')
    pair = pair_of(target)
    assert pair and pair.name == "mine"


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
def test_pairs_are_found_by_the_name_of_a_file(file: str, pair: str | None, tmp_path: Path) -> None:
    path = write_model(tmp_path / file, words(), layers=1)
    found = pair_like(text_model(path))
    assert (found and found.name) == pair


# The drafters that fit.


def summary(path: Path) -> ModelSummary:
    found = summary_of([path])
    assert found
    return found


@pytest.fixture
def target(tmp_path: Path) -> ModelSummary:
    return summary(write_model(tmp_path / "target.gguf", words(), layers=4, ggml__bos_token_id=3))


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
def test_smaller_models_of_the_same_vocabulary_fit(
    *,
    tmp_path: Path,
    target: ModelSummary,
    tokens: list[str],
    layers: int,
    adds_bos: bool,
    fits: bool,
) -> None:
    path = tmp_path / "drafter.gguf"
    keys = {"ggml__bos_token_id": 3, "ggml__add_bos_token": adds_bos}
    drafter = summary(write_model(path, tokens, layers=layers, **keys))
    assert DrafterFinder([target, drafter]).drafters_for(target) == ([drafter] if fits else [])


def test_the_smallest_drafter_comes_first(tmp_path: Path, target: ModelSummary) -> None:
    models = [
        summary(write_model(tmp_path / f"{layers}.gguf", words(), layers=layers))
        for layers in (3, 1, 2)
    ]
    found = DrafterFinder(models).drafters_for(target)
    assert [each.file.stem for each in found] == ["1", "2", "3"]
