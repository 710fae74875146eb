"""Links to other tools' models: made, found by name, lost, replaced and deleted."""

import os
from pathlib import Path

import pytest
from fakes.hub_disk import HubDisk, write_split
from fakes.other_tools import OllamaStore, fill
from huggingface_hub import constants

from localspec.errors import LocalspecError, ModelNotFoundError
from localspec.hub.reference import Repository
from localspec.imports import links
from localspec.imports.collection import Collection
from localspec.imports.gguf_folders import folder_collections
from localspec.imports.ollama import ollama_collections
from localspec.imports.sources import collections_of
from localspec.models.inventory import all_models, model_inventory
from localspec.models.locate import find_file, locate, meaning_note
from localspec.models.own_drafters import own_drafters
from localspec.models.pair_finder import pair_of
from localspec.models.registry import bundled, user_file

TARGET, DRAFTER = bundled()


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "localspec"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def studio(tmp_path: Path) -> Path:
    files = {
        "zoo/owl-GGUF/owl-Q8_0.gguf": TARGET,
        "zoo/owl-GGUF/owl-Q4_0.gguf": DRAFTER,
        "zoo/owl-GGUF/MTP/mtp-owl-Q8_0.gguf": b"head",
    }
    return fill(tmp_path / "studio", files)


def link_all(collections: list[Collection]) -> list[Path]:
    return [
        path
        for each in collections
        for names in each.models().values()
        for path in links.link(each, names)
    ]


def names() -> list[str]:
    return [each.name for each in links.imported()]


def test_a_model_is_linked_and_has_the_name_it_had(studio: Path) -> None:
    [collection] = folder_collections("lmstudio", studio)
    made = link_all([collection])
    assert names() == [*collection.models()] and len(made) == 3
    assert all(path.is_symlink() and path.resolve().is_relative_to(studio) for path in made)
    assert link_all([collection]) == made
    assert {*names()} < {each.name for each in all_models()}
    assert sum(each.size for each in links.imported()[:1]) in (TARGET.stat().st_size, 2_803_744)


def test_it_is_found_by_its_name_in_any_case(studio: Path) -> None:
    link_all(folder_collections("lmstudio", studio))
    whole = locate("lmstudio:zoo/owl-GGUF:Q8_0")
    assert whole.resolve() == studio / "zoo/owl-GGUF/owl-Q8_0.gguf"
    assert locate("LMStudio:Zoo/Owl-GGUF:q8_0") == whole
    # Without a quantisation, the preferred one of what is there.
    assert locate("lmstudio:zoo/owl-GGUF").name == "owl-Q4_0.gguf"
    assert locate("lmstudio:zoo/owl-GGUF:owl-Q8_0.gguf") == whole
    with pytest.raises(ModelNotFoundError, match=r"has no Q5_0; it has Q4_0, Q8_0"):
        locate("lmstudio:zoo/owl-GGUF:Q5_0")
    for missing in (
        "lmstudio:zoo/other",
        "ollama:zoo",
        "llama.cpp:",
        "lmstudio:zoo/owl-GGUF2:Q8_0",
    ):
        with pytest.raises(ModelNotFoundError, match="localspec ls --others"):
            locate(missing)


def test_a_tag_of_ollama_stands_in_for_a_pair_that_is_not_here(tmp_path: Path) -> None:
    store = OllamaStore(tmp_path / "models")
    store.add("qwen3:8b", {"model": TARGET})
    with pytest.raises(ModelNotFoundError, match="localspec pull qwen3:8b fetches it"):
        locate("qwen3:8b")
    [link] = link_all(ollama_collections(store.folder))
    assert locate("qwen3:8b") == locate("Qwen3:8B") == link
    said = "qwen3:8b is ollama:qwen3:8b here, which was imported; the pair is not on this machine"
    assert meaning_note("qwen3:8b", link) == said
    for other in ("qwen3-8b", "qwen3:8b:q8_0"):
        with pytest.raises(ModelNotFoundError):
            locate(other)
    hub = HubDisk(tmp_path / "hub")
    name = "Qwen3-8B-Q4_K_M.gguf"
    pulled = hub.add("Qwen/Qwen3-8B-GGUF", {name: b"GGUF"}) / name
    assert locate("qwen3:8b") == pulled
    assert meaning_note("qwen3:8b", pulled) is None


def test_of_ollama_a_name_without_a_tag_is_the_latest(tmp_path: Path) -> None:
    store = OllamaStore(tmp_path / "models")
    store.add("owl:latest", {"model": TARGET})
    store.add("owl:9m", {"model": DRAFTER})
    link_all(ollama_collections(store.folder))
    assert locate("ollama:owl").resolve().read_bytes() == TARGET.read_bytes()
    assert locate("ollama:owl:9m").resolve().read_bytes() == DRAFTER.read_bytes()


def test_a_repository_that_was_imported_need_not_be_fetched(studio: Path) -> None:
    link_all(folder_collections("lmstudio", studio))
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text('[pairs.mine]\ntarget = "zoo/owl-GGUF:Q8_0"\nno_drafter = "none"\n')
    whole = locate("lmstudio:zoo/owl-GGUF:Q8_0")
    assert locate("zoo/owl-GGUF:Q8_0") == locate("mine") == whole
    assert find_file(Repository("zoo/owl-GGUF", "Q5_0")) is None
    pair = pair_of(whole)
    assert pair and pair.name == "mine"
    assert "mine" in {each.name for each in model_inventory()}
    assert [(each.kind, each.name) for each in own_drafters(whole)] == [
        ("mtp", f"mtp {links.root_of(whole)}/MTP/mtp-owl-Q8_0.gguf")
    ]


def test_all_parts_of_a_split_model_are_linked(tmp_path: Path) -> None:
    parts = write_split(tmp_path / "owl-Q8_0")
    made = link_all(folder_collections("folder", tmp_path, "mine"))
    assert [path.name for path in made] == [part.name for part in parts]
    [found] = links.imported()
    assert found.name == "folder:mine:owl-Q8_0-00001-of-00002.gguf" and len(found.files) == 2
    parts[1].unlink()
    assert not names()
    [lost] = links.lost()
    assert lost.file == parts[1]


def test_a_file_that_is_gone_is_lost_until_it_comes_back(studio: Path) -> None:
    link_all(folder_collections("lmstudio", studio))
    file = studio / "zoo/owl-GGUF/owl-Q8_0.gguf"
    content = file.read_bytes()
    file.unlink()
    assert "lmstudio:zoo/owl-GGUF:Q8_0" not in names()
    [lost] = links.lost()
    assert lost.name == "lmstudio:zoo/owl-GGUF:Q8_0" and str(file) in lost.reason
    with pytest.raises(ModelNotFoundError, match="its file is gone"):
        locate("lmstudio:zoo/owl-GGUF:Q8_0")
    file.write_bytes(content)
    assert "lmstudio:zoo/owl-GGUF:Q8_0" in names() and not links.lost()


def test_what_to_type_for_a_lost_file_is_quoted(tmp_path: Path) -> None:
    folder = fill(tmp_path / "odd", {"a b-Q8_0.gguf": b""})
    link_all(folder_collections("folder", folder, "odd"))
    (folder / "a b-Q8_0.gguf").unlink()
    [lost] = links.lost()
    assert "localspec rm 'folder:odd:a b-Q8_0.gguf'" in lost.reason


def test_a_file_that_vanishes_while_it_is_linked_leaves_no_link(studio: Path) -> None:
    [collection] = folder_collections("lmstudio", studio)
    for path in collection.files.values():
        path.unlink()
    with pytest.raises(ModelNotFoundError, match="has vanished meanwhile"):
        link_all([collection])
    assert not links.lost()


def test_a_link_follows_its_tool_to_another_file(tmp_path: Path) -> None:
    store = OllamaStore(tmp_path / "models")
    for content in (TARGET, DRAFTER):
        store.add("owl:9m", {"model": content})
        link_all(ollama_collections(store.folder))
        assert locate("ollama:owl:9m").read_bytes() == content.read_bytes()


def test_of_ollama_a_file_that_is_gone_is_linked_anew(tmp_path: Path) -> None:
    store = OllamaStore(tmp_path / "models")
    store.add("owl:9m", {"model": TARGET})
    [link] = link_all(ollama_collections(store.folder))
    link.resolve().unlink()
    [lost] = links.lost()
    assert "run localspec pull --from ollama owl:9m, or" in lost.reason


def test_deleting_a_link_keeps_the_file(studio: Path) -> None:
    link_all(folder_collections("lmstudio", studio))
    for name in names():
        links.remove(links.links_of(name.upper()))
    assert not names() and not [*links.imports_folder().rglob("*")]
    assert (studio / "zoo/owl-GGUF/owl-Q8_0.gguf").read_bytes() == TARGET.read_bytes()


def test_two_folders_of_one_name_are_kept_apart(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = fill(tmp_path / str(number) / "models", {"owl-Q8_0.gguf": b"x" * number})
        for _ in range(2):
            link_all(collections_of("folder", folder))
    assert names() == ["folder:models:owl-Q8_0.gguf", "folder:models-2:owl-Q8_0.gguf"]
    assert [each.size for each in links.imported()] == [1, 2]


def test_where_no_symbolic_link_can_be_made_a_hard_one_is(
    studio: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1314, "A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    [collection] = folder_collections("lmstudio", studio)
    for path in link_all([collection]):
        assert not path.is_symlink() and path.stat().st_nlink == 2
    assert len(names()) == 3


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_one_line(studio: Path) -> None:
    links.imports_folder().mkdir(parents=True)
    links.imports_folder().chmod(0o500)
    with pytest.raises(LocalspecError, match=r"cannot link .*LOCALSPEC_HOME"):
        link_all(folder_collections("lmstudio", studio))
