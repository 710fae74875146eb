"""What is stored and found damaged, or replaced by something else, never ends or blocks a run."""

import logging
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.damaged_files import raised_by, remove
from fuzz.caches import KINDS, file_of, past_texts, state

from localspec.utils.paths import cache_file, cache_folder
from localspec.utils.stored_json import store_json, stored, try_to_store

if sys.platform == "win32":
    pytest.skip("needs named pipes", allow_module_level=True)

COUNT = 25


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def model(tmp_path: Path, target_path: Path) -> Path:
    (tmp_path / "model.gguf").symlink_to(target_path)
    return tmp_path / "model.gguf"


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_raises_nothing_and_is_written_anew(
    kind: Callable[[Path], Callable[[], object]], home: Path, model: Path
) -> None:
    read = kind(model)
    file = file_of(home)
    written, good = file.read_bytes(), read()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert raised_by(read, file, written, COUNT) == {}
    # After each of them, what is made anew takes the place.
    for replace in (os.mkfifo, os.mkdir, lambda path: Path(path).write_bytes(b"[" * 100_000)):
        remove(file)
        replace(file)
        assert kind(model)() == good
        assert file.read_bytes() == written or kind in (state, past_texts)


@pytest.mark.parametrize("record", [b"[" * 100_000, b"9" * 5000, b"1e999", b"\xff", b"", b"{}"])
def test_what_is_ignored_is_said_once_and_named(
    record: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = cache_file("any", [])
    store_json(file, {})
    file.write_bytes(record)
    with caplog.at_level(logging.INFO, "localspec"):
        assert stored(file, lambda value: int(value["number"])) is None
    assert caplog.messages == [f"a damaged cache file is ignored, and written anew: {file}"]


def test_a_missing_file_is_nothing_to_speak_of(caplog: pytest.LogCaptureFixture) -> None:
    def parse(_: Any) -> None:
        raise AssertionError

    with caplog.at_level(logging.INFO, "localspec"):
        assert stored(cache_folder("none") / "x.json", parse) is None
    assert not caplog.messages


def test_that_nothing_can_be_kept_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "cache").touch()
    with caplog.at_level(logging.INFO, "localspec"):
        try_to_store(cache_file("costs", [1]), {})
        try_to_store(cache_file("rates", [1]), {})
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path / 'cache'} cannot be written (")
