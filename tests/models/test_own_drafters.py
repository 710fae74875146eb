"""The drafters that a target has: in its file, in models.toml, and beside it."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from fakes.eagle3 import write_head, write_target
from fakes.fork_heads import FORKS, write_fork_head
from fakes.hub_disk import HubDisk
from fakes.vocabularies import words, write_model
from huggingface_hub import constants

from localspec.drafters.spec import parse_draft
from localspec.gguf.facts import facts_of
from localspec.gguf.files import ModelFiles, choose_model
from localspec.gguf.sidecars import is_named_like
from localspec.hub.reference import Repository
from localspec.loading import acceptance_check
from localspec.loading.drafter_finder import FoundDrafters, find_drafters
from localspec.models.own_drafters import is_no_target, own_drafters, sidecar_drafters
from localspec.models.pair_finder import pair_like
from localspec.models.registry import user_file
from localspec.models.summaries import summary_of
from localspec.models.trained_drafters import TrainedDrafter, add_trained
from localspec.utils.stored_json import store_json

REPO = "zoo/owl-GGUF"
AUTO = parse_draft("auto")


@dataclass(frozen=True)
class Known:
    """What is known of a target, so that its file is not read."""

    has_mtp: bool = False
    name: str | None = None


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "home").mkdir()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def listed(*drafters: str, target: str) -> None:
    entries = [f'[[pairs.owl.drafters]]\n{each}\nsource = "me"\n' for each in drafters]
    user_file().write_text(f'[pairs.owl]\ntarget = "{target}"\n' + "\n".join(entries))


def kinds(target: Path, has_heads: bool = False) -> list[str]:
    return [each.kind for each in own_drafters(target, Known(has_heads))]


def test_a_folder_of_one_model_needs_no_names(folder: Path) -> None:
    target = folder / "Muse-Glimmer-30B-UD-Q4_K_XL.gguf"
    for name in (target.name, "dflash-kquant.gguf", "mmproj-kquant.gguf"):
        (folder / name).write_bytes(b"GGUF")
    [found] = own_drafters(target, Known())
    assert (found.kind, found.file) == ("dflash", folder / "dflash-kquant.gguf")


def test_in_a_folder_of_many_models_names_tell(folder: Path) -> None:
    (folder / "MTP").mkdir()
    names = ("Qwen3.8-27B-Q4_K_M.gguf", "gemma-4-12b-it-Q8_0.gguf", "dflash-kquant.gguf")
    for name in (*names, "MTP/mtp-Qwen3.8-27B-Q8_0.gguf", "mtp-gemma-4-12b-it.gguf"):
        (folder / name).write_bytes(b"GGUF")
    [qwens] = own_drafters(folder / names[0], Known())
    assert qwens.file == folder / "MTP" / "mtp-Qwen3.8-27B-Q8_0.gguf"
    # Gemma 4 has no heads, whatever the file is called.
    gemmas, *others = own_drafters(folder / names[1], Known())
    assert (gemmas.kind, gemmas.file) == ("assistant", folder / "mtp-gemma-4-12b-it.gguf")
    assert {each.kind for each in others} <= {"draft-model"}


def test_of_a_repository_all_folders_count(tmp_path: Path) -> None:
    disk = HubDisk(tmp_path / "hub")
    files = ["Q8_0/owl-Q8_0.gguf", "Q8_0/eagle3-x.gguf", "MTP/mtp-x.gguf", "mtp-owl-F16.gguf"]
    snapshot = disk.add(REPO, {name: name.encode() for name in files})
    found = {each.kind: each.file for each in own_drafters(snapshot / files[0], Known())}
    assert found == {"mtp": snapshot / "mtp-owl-F16.gguf", "eagle3": snapshot / files[1]}


def test_links_to_files_that_are_gone_are_left_out(folder: Path, tmp_path: Path) -> None:
    snapshot = HubDisk(tmp_path / "hub").add(REPO, {"owl-Q8_0.gguf": b"GGUF"})
    for target in (folder / "owl-Q8_0.gguf", snapshot / "owl-Q8_0.gguf"):
        target.touch()
        for name in ("mtp-owl-q8_0.gguf", "eagle3/owl.gguf"):
            (target.parent / name).parent.mkdir(exist_ok=True)
            (target.parent / name).symlink_to("none")
        assert own_drafters(target, Known()) == []


def test_the_order_is_that_of_models_toml_then_what_lies_beside(folder: Path) -> None:
    target, beside = folder / "owl-Q8_0.gguf", folder / "eagle3-owl-Q8_0.gguf"
    for path in (target, beside, folder / "dspark-owl.gguf"):
        path.write_bytes(b"GGUF")
    listed(
        'kind = "dflash"\nfile = "zoo/none-GGUF"',
        f'kind = "eagle3"\nfile = "{beside}"',
        'kind = "mtp"\nfile = "in the target"',
        target=str(target),
    )
    found = own_drafters(target, Known(has_mtp=True))
    assert [each.kind for each in found] == ["dflash", "eagle3", "mtp", "dspark"]
    assert [each.file and each.file.name for each in found] == [
        *(None, beside.name, target.name, "dspark-owl.gguf")
    ]
    plain = own_drafters(target, Known())[2]
    assert plain.file is None and "localspec pull owl fetches one that has" in plain.missing


def test_a_trimmed_head_is_named_after_its_target(folder: Path) -> None:
    target, other = folder / "owl-Q8_0.gguf", folder / "jay-Q8_0.gguf"
    whole, trimmed = folder / "eagle3-owl-Q8_0.gguf", folder / "eagle3-owl-Q8_0-16384-tokens.gguf"
    for path in (target, other, trimmed):
        path.write_bytes(path.name.encode())
    assert [each.file for each in own_drafters(target, Known())] == [trimmed]
    assert own_drafters(other, Known()) == []
    # Where it is known that the cut did not gain, the whole head stays the first.
    whole.touch()
    (folder / "eagle3-broken.gguf").symlink_to("none")
    add_trained(target, TrainedDrafter("eagle3", trimmed, target.name, False))
    assert [each.file for each in own_drafters(target, Known())] == [whole, trimmed]


def test_heads_inside_need_no_entry(folder: Path) -> None:
    target = folder / "owl-Q8_0.gguf"
    target.write_bytes(b"GGUF")
    assert kinds(target, has_heads=True) == ["mtp"] and kinds(target) == []


def test_sidecars_of_a_listing(folder: Path) -> None:
    files = ["owl-Q4_0.gguf", "dspark-owl-Q4_0.gguf", "MTP/mtp-owl-Q8_0.gguf", "eagle3-owl.gguf"]
    found = sidecar_drafters(files, ModelFiles((files[0],)), REPO)
    assert [(each.kind, each.reference) for each in found] == [
        ("mtp", Repository(REPO, files[2])),
        ("dspark", Repository(REPO, files[1])),
        ("eagle3", Repository(REPO, files[3])),
    ]


# What `auto` takes.


@pytest.fixture
def pair(folder: Path) -> tuple[Path, Path]:
    return write_target(folder / "owl-F32.gguf"), write_head(folder / "eagle3-owl-F32.gguf")


def taken(found: FoundDrafters) -> list[str]:
    return [each.files[0].name for each in found.models]


def test_an_assistant_beside_its_target(folder: Path) -> None:
    files = ["gemma-4-12B-it-Q4_0.gguf", "gemma-4-12B-it-assistant.Q4_0.gguf", "owl-Q4_0.gguf"]
    target = ModelFiles((files[0],))
    (drafter,) = sidecar_drafters(files, target, REPO)
    assert (drafter.kind, str(drafter.reference)) == ("assistant", f"{REPO}:{files[1]}")
    assert is_named_like(ModelFiles((files[1],)), target)
    assert choose_model(files[:2], None, REPO) == target
    assert choose_model(files[1:2], None, REPO).first == files[1]


def test_auto_takes_the_sidecar_beside_a_target(pair: tuple[Path, Path]) -> None:
    found = find_drafters(AUTO, pair[0])
    assert taken(found) == ["eagle3-owl-F32.gguf"] and found.optional and found.reason is None


def test_auto_takes_the_first_that_can_be_used(pair: tuple[Path, Path], folder: Path) -> None:
    target, head = pair
    (folder / "empty.gguf").touch()
    foreign = write_model(folder / "foreign.gguf", words(), layers=1)
    listed(
        'kind = "dflash"\nfile = "zoo/none-GGUF"',
        f'kind = "eagle3"\nfile = "{folder / "empty.gguf"}"',
        f'kind = "medusa"\nfile = "{foreign}"\nloses = "it is slow"',
        f'kind = "eagle3"\nfile = "{head}"',
        target=str(target),
    )
    assert taken(find_drafters(AUTO, target)) == [head.name]
    head.unlink()
    why = find_drafters(AUTO, target).reason or ""
    assert "zoo/none-GGUF is not on this machine; localspec pull owl --drafter dflash" in why
    assert "empty.gguf is empty; download it again" in why
    assert f"medusa {foreign} is left out: it is slow" in why


def test_auto_leaves_out_what_its_target_did_not_accept(pair: tuple[Path, Path]) -> None:
    target, head = pair
    store_json(acceptance_check._file([target, head]), {"rate": 0.005})
    found = find_drafters(AUTO, target)
    assert not found.models and "owl-F32.gguf accepted 0% of its tokens" in (found.reason or "")


@pytest.mark.parametrize("architecture", FORKS)
def test_files_of_forks_are_refused_by_name(architecture: str, pair: tuple[Path, Path]) -> None:
    target, head = pair
    head.unlink()
    write_fork_head(target.with_name("dflash-owl-F32.gguf"), architecture)
    why = find_drafters(AUTO, target).reason or ""
    assert f"is a draft head ({architecture}) that only a fork of llama.cpp loads" in why


@pytest.mark.parametrize(
    ("repository", "file", "expected"),
    [
        (REPO, "owl-Q8_0.gguf", ["draft-model", "eagle3", "pard"]),
        # The same model from others, with the publisher in front or without.
        ("ann/owl-GGUF", "Q4.gguf", ["draft-model", "eagle3", "pard"]),
        ("ann/Zoo_Owl-gguf", "Q4.gguf", ["draft-model", "eagle3", "pard"]),
        # One that was trained further, and a file of no repository: a head might not fit.
        ("ann/owl-night-GGUF", "owl-night-Q4_0.gguf", ["draft-model", "pard"]),
        (None, "Owl_Q4_K_M.gguf", ["draft-model", "pard"]),
        (None, "zoo_Owl-Q4_K_M.gguf", ["draft-model", "pard"]),
        # Without the heads that the pair's target has inside.
        ("ann/owl-MTP-GGUF", "Q4.gguf", ["draft-model", "eagle3", "pard"]),
        ("ann/owlet-GGUF", "owlet-Q4_0.gguf", []),
        (None, "barn-owl.gguf", []),
    ],
)
def test_drafters_of_a_model_that_somebody_else_has_made_a_file_of(
    tmp_path: Path, folder: Path, repository: str | None, file: str, expected: list[str]
) -> None:
    entries = (
        f'kind = "{kind}"\nfile = "zoo/{kind}-GGUF"' for kind in ("draft-model", "eagle3", "pard")
    )
    listed(*entries, target=REPO)
    if repository:
        target = HubDisk(tmp_path / "hub").add(repository, {file: b"GGUF"}) / file
    else:
        target = folder / file
        target.write_bytes(b"GGUF")
    found = own_drafters(target, Known())
    assert [each.kind for each in found] == expected
    # What is missing is fetched alone, without another file of the target.
    own = repository == REPO
    fetched = "localspec pull owl" if own else "localspec pull zoo/draft-model-GGUF fetches it"
    assert not found or fetched in found[0].missing
    assert all((each.origin is None) == own for each in found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Owl", 1), ("Owl Night 4B", 1), ("Zoo_Owl", 1), ("Owlet", 0), ("Barn Owl", 0), (None, 0)],
)
def test_a_file_is_known_by_its_name_in_the_header_too(
    folder: Path, name: str | None, expected: int
) -> None:
    """Alike for loading, for `ls`, which knows the header from before, and for `pair`."""
    listed('kind = "draft-model"\nfile = "zoo/owlet-GGUF"', target=REPO)
    target = write_model(folder / "mine.gguf", words(), layers=1, name=name)
    summary = summary_of([target])
    assert summary and summary.name == name
    for known in (None, summary, facts_of(target), Known(name=name)):
        found = own_drafters(target, known)
        assert len(found) == expected
    assert (pair_like(facts_of(target)) is not None) == bool(expected)
    if expected:
        assert found[0].origin == (
            "draft-model zoo/owlet-GGUF is of the pair owl: mine.gguf is named after zoo/owl-GGUF"
        )


def test_what_drafts_says_whose_it_is(folder: Path, tmp_path: Path) -> None:
    target = write_model(folder / "owl-night.gguf", words(), layers=2)
    small = {"small.gguf": write_model(folder / "small.gguf", words(), layers=1).read_bytes()}
    HubDisk(tmp_path / "hub").add("zoo/owlet-GGUF", small)
    listed('kind = "draft-model"\nfile = "zoo/owlet-GGUF"', target=REPO)
    drafter = find_drafters(AUTO, target).drafters[-1]
    assert drafter.files[0].name == "small.gguf"
    assert drafter.origin and "zoo/owlet-GGUF is of the pair owl: owl-night.gguf" in drafter.origin


@pytest.mark.parametrize(
    ("file", "alone"),
    [
        ("mtp-gemma-4-E2B-it.gguf", True),
        ("MTP/gemma-4-Q8_0.gguf", True),
        ("gemma-4-E4B-it-assistant.Q4_K_M.gguf", True),
        ("Gemma-4-12B-it-assistant-Q8_0.gguf", True),
        ("gemma-4-E4B-it-assistant.gguf", True),
        ("home-assistant-7B-Q8_0.gguf", False),
        ("gemma-4-12b-it-assistants-tune-Q8_0.gguf", False),
        ("Qwen3-8B-DFlash.Q8_0.gguf", True),
        ("Qwen3-8B-Eagle3-Q8_0.gguf", True),
        ("PARD-Qwen3-0.6B.Q8_0.gguf", True),
        ("Qwen3-Embedding-8B-Q4_K_M.gguf", True),
        ("qwen3-reranker-0.6b-q8_0.gguf", True),
        ("Qwen3.6-27B-MTP-Q4_K_M.gguf", False),
        ("dspark-models/Leopard-7B-Q8_0.gguf", False),
        ("Qwen3-8B-Q4_K_M.gguf", False),
    ],
)
def test_what_no_drafter_drafts_for_is_told_by_its_name(file: str, alone: bool) -> None:
    assert is_no_target(file) == alone
