"""Pairs that the user pulled: kept by several processes at once, and never lost to damage."""

import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from localspec.models.pulled_pairs import add_pulled, pulled_drafters
from localspec.utils.paths import data_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))


def add_all(target: Path, drafters: list[Path]) -> None:
    for each in drafters:
        add_pulled(target, each)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such lock")
def test_pulls_at_once_keep_each_others_pairs(tmp_path: Path) -> None:
    target = tmp_path / "owl.gguf"
    drafters = [[tmp_path / f"{who}-{number}.gguf" for number in range(40)] for who in "ab"]
    for each in (target, *drafters[0], *drafters[1]):
        each.touch()
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(add_all, [target] * 2, drafters))
    assert {*pulled_drafters(target)} == {*drafters[0], *drafters[1]}


def test_a_damaged_list_is_kept_aside(tmp_path: Path) -> None:
    target, drafter = tmp_path / "owl.gguf", tmp_path / "owlet.gguf"
    drafter.touch()
    file = data_folder("pairs") / "pulled.json"
    file.parent.mkdir(parents=True)
    file.write_text('[{"target": "mine"')
    assert add_pulled(target, drafter)
    assert pulled_drafters(target) == [drafter]
    assert (file.parent / "pulled.json.damaged").read_text() == '[{"target": "mine"'
