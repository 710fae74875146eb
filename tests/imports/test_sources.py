"""Where other tools keep models: LM Studio's folders, llama.cpp's cache, any folder."""

import json
import os
from pathlib import Path

import pytest
from fakes.other_tools import OllamaStore, fill
from huggingface_hub import constants

from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.imports.collection import Collection
from localspec.imports.gguf_folders import folder_collections
from localspec.imports.links import link
from localspec.imports.sources import all_folders, collections_of, source_folders


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without any tool, and a Hub's cache elsewhere."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("OLLAMA_MODELS", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "localspec"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return home


def found(source: str | Path) -> list[Collection]:
    return [
        each for tool, path in source_folders(str(source)) for each in collections_of(tool, path)
    ]


def names(source: str | Path) -> list[str]:
    return [name for each in found(source) for name in each.models()]


def test_lm_studio_is_found_where_it_was_moved_to(home: Path, tmp_path: Path) -> None:
    for folder in (home / ".lmstudio", home / ".cache" / "lm-studio", tmp_path / "moved"):
        fill(folder / "models", {f"zoo/{folder.name.strip('.')}-GGUF/owl-Q8_0.gguf": b"x"})
    (home / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'moved'}\n")
    fill(tmp_path / "disk", {"zoo/disk-GGUF/owl-Q8_0.gguf": b"x"})
    settings = home / ".lmstudio" / "settings.json"
    settings.write_text(json.dumps({"downloadsFolder": str(tmp_path / "disk")}))
    assert {*names("lmstudio")} == {
        f"lmstudio:zoo/{name}-GGUF:Q8_0" for name in ("lmstudio", "lm-studio", "moved", "disk")
    }


@pytest.mark.parametrize("pointer", [b"", b"\xff\xfe", b"/no\0where", b"x" * 10_000])
def test_a_pointer_that_points_nowhere_is_ignored(home: Path, pointer: bytes) -> None:
    (home / ".lmstudio-home-pointer").write_bytes(pointer)
    (home / ".lmstudio").mkdir()
    (home / ".lmstudio" / "settings.json").write_text('{"downloadsFolder": 5}')
    looked = [path for tool, path in all_folders() if tool == "lmstudio"]
    assert looked == [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]


def test_models_of_a_repository_are_named_by_quantisation_or_file(home: Path) -> None:
    fill(
        home / ".lmstudio" / "models" / "zoo" / "owl-GGUF",
        {
            "owl-Q8_0.gguf": b"",
            "owl-Q4_0.gguf": b"",
            "small/owl-Q4_0.gguf": b"",
            "eagle3-owl-Q8_0.gguf": b"",
            "mmproj-F16.gguf": b"",
            "README.md": b"",
        },
    )
    assert names("lmstudio") == [
        "lmstudio:zoo/owl-GGUF:owl-Q4_0.gguf",
        "lmstudio:zoo/owl-GGUF:Q8_0",
        "lmstudio:zoo/owl-GGUF:small/owl-Q4_0.gguf",
        "lmstudio:zoo/owl-GGUF:eagle3-owl-Q8_0.gguf",
    ]
    assert [each.repository for each in found("lmstudio")] == ["zoo/owl-GGUF"]


def test_no_name_leads_out_of_the_folder_of_links(tmp_path: Path) -> None:
    files = {"manifest=x=..=latest.json": b"{}", "x_.._owl-Q8_0.gguf": b""}
    [found] = folder_collections("llama.cpp", fill(tmp_path / "cache", files))
    assert not found.files and "may not be one here" in " ".join(found.problems.values())


def test_both_layouts_of_llama_cpps_cache_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = fill(
        tmp_path / "cache",
        {
            "zoo_owl-GGUF_owl-Q8_0.gguf": b"",
            "odd_name_with_lines_owl-Q4_0.gguf": b"",
            "manifest=odd_name=with_lines=latest.json": b"{}",
            "unknown.gguf": b"",
            "models--zoo--new-GGUF/snapshots/1/MTP/mtp-new-Q4_0.gguf": b"",
            "models--zoo--new-GGUF/snapshots/1/new-Q4_0.gguf": b"",
        },
    )
    monkeypatch.setenv("LLAMA_CACHE", str(cache))
    assert names("llama.cpp") == [
        "llama.cpp:unknown.gguf",
        "llama.cpp:odd_name/with_lines:Q4_0",
        "llama.cpp:zoo/new-GGUF:Q4_0",
        "llama.cpp:zoo/new-GGUF:MTP/mtp-new-Q4_0.gguf",
        "llama.cpp:zoo/owl-GGUF:Q8_0",
    ]
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    assert "llama.cpp" not in [tool for tool, _ in all_folders()]


def test_a_folder_is_one_collection_named_after_it(tmp_path: Path) -> None:
    folder = fill(tmp_path / "my models", {"owl-Q8_0.gguf": b"", "a/b/c/owl-Q8_0.gguf": b""})
    fill(folder, {".hidden/owl-Q8_0.gguf": b"", "bad\x1bname.gguf": b"", "bad:name.gguf": b""})
    (folder / "loop").symlink_to(folder)
    assert names(folder) == [
        "folder:my-models:a/b/c/owl-Q8_0.gguf",
        "folder:my-models:owl-Q8_0.gguf",
    ]
    assert sum(len(each.problems) for each in found(folder)) == 2


def test_our_own_links_are_no_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fill(tmp_path / "mine", {"a-Q8_0.gguf": b""})
    monkeypatch.setenv("LOCALSPEC_HOME", str(folder))
    for _ in range(2):
        assert names(folder) == ["folder:mine:a-Q8_0.gguf"]
        for each in found(folder):
            link(each, next(iter(each.models().values())))


def test_an_ending_in_capitals_is_an_ending(home: Path) -> None:
    folder = home / ".lmstudio" / "models"
    fill(folder, {"zoo/owl-GGUF/owl-Q8_0.GGUF": b"", "zoo/owl-GGUF/owl-Q4_0.Gguf": b""})
    assert names("lmstudio") == ["lmstudio:zoo/owl-GGUF:Q4_0", "lmstudio:zoo/owl-GGUF:Q8_0"]
    [both] = found("lmstudio")
    assert both.files["owl-Q8_0.gguf"] == folder / "zoo/owl-GGUF/owl-Q8_0.GGUF"


def test_a_folder_of_a_tool_is_the_tools(home: Path, tmp_path: Path) -> None:
    OllamaStore(tmp_path / "big disk" / "models").add("owl:9m", {"model": b"x"})
    assert names(tmp_path / "big disk") == ["ollama:owl:9m"]
    lm_studio = fill(home / ".lmstudio" / "models", {"zoo/owl-GGUF/owl-Q8_0.gguf": b""})
    assert names(lm_studio) == ["lmstudio:zoo/owl-GGUF:Q8_0"]


def test_ollama_is_where_its_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    OllamaStore(tmp_path / "here").add("owl:9m", {"model": b"x"})
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "here"))
    assert names("Ollama") == ["ollama:owl:9m"]


def test_what_is_no_source_is_one_line(tmp_path: Path) -> None:
    for source in ("lmstudio", "llama.cpp", "nowhere", str(tmp_path / "none")):
        with pytest.raises(ModelNotFoundError) as raised:
            source_folders(source)
        assert "--from" in str(raised.value) and "\n" not in str(raised.value)
    os.mkdir(tmp_path / "hub")
    with pytest.raises(InvalidValueError, match="need no import"):
        source_folders(str(tmp_path / "hub"))


def test_a_folder_that_may_not_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str | Path) -> list[str]:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "closed"))
    monkeypatch.setattr("localspec.imports.sources.os.listdir", refuse)
    with pytest.raises(ModelNotFoundError, match="that you may not read") as raised:
        source_folders("ollama")
    assert str(tmp_path / "closed") in str(raised.value)
