"""Files that are replaced in one step, for their owner alone."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.utils.paths import (
    atomic_writer,
    cache_file,
    config_folder,
    data_folder,
    stat_signature,
    write_atomically,
)


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "new" / "settings.json"
    for text in ("first", "zweite ü"):
        write_atomically(file, text)
        assert file.read_text(encoding="utf-8") == text
        assert [*file.parent.iterdir()] == [file]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "settings.json"
    write_atomically(file, "secret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_exception_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_bytes(b"before")
    with pytest.raises(KeyboardInterrupt), atomic_writer(file, ".tmp") as temporary:
        temporary.write(b"half")
        [left] = [each for each in tmp_path.iterdir() if each != file]
        assert left.name.startswith("state") and left.suffix == ".tmp"
        raise KeyboardInterrupt
    assert file.read_bytes() == b"before"
    assert [*tmp_path.iterdir()] == [file]


def test_one_variable_moves_all_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert config_folder() == tmp_path
    assert data_folder("chats") == tmp_path / "data" / "chats"
    one, other = cache_file("costs", ["a", 1]), cache_file("costs", ["a", 2])
    assert one.parent == other.parent == tmp_path / "cache" / "costs"
    assert one != other and one == cache_file("costs", ["a", 1])


@pytest.mark.skipif(sys.platform != "linux", reason="the locale C has other letters elsewhere")
def test_a_typed_name_is_that_of_a_file_where_the_locale_is_c(tmp_path: Path) -> None:
    script = "from localspec.utils.paths import typed_path; open(typed_path('\\xe9'), 'x').close()"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=True)
    assert [each.name for each in tmp_path.iterdir()] == ["\xe9"]


def test_the_signature_tells_a_changed_file(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    before = stat_signature(file)
    assert stat_signature(file) == before
    os.utime(file, ns=(0, 1))
    touched = stat_signature(file)
    file.write_bytes(b"more")
    assert len({*map(tuple, (before, touched, stat_signature(file)))}) == 3
