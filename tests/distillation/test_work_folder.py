"""Work folder: what is damaged is missing, and a full disk loses nothing."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from localspec.distillation import work_folder
from localspec.distillation.hashed_file import HashedFile
from localspec.distillation.work_folder import WorkFolder, clear_all
from localspec.errors import InvalidValueError, LocalspecError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))


def test_what_is_written_is_read() -> None:
    folder = WorkFolder(["a", 1])
    assert folder.read("x") is None and folder.size("x") is None
    folder.write("x", b"content")
    folder.write_json("y", {"a": [1, 2]})
    assert WorkFolder(["a", 1]).read("x") == b"content"
    assert folder.read_json("y") == {"a": [1, 2]}
    assert WorkFolder(["a", 2]).read("x") is None
    assert (folder.path / "x").stat().st_mode & 0o777 == 0o600
    folder.clear()
    assert folder.read("x") is None


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data[:9] + b"!" + data[10:]]
)
def test_a_damaged_file_is_missing(damage: object) -> None:
    folder = WorkFolder([1])
    folder.write("x", b"content")
    file = folder.path / "x"
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert folder.read("x") is None
    with folder.open("x") as found:
        assert found is None


def test_a_file_is_written_and_read_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = WorkFolder([1])
    with folder.open("x") as file:
        assert file is None
    folder.write_parts("x", lambda file: [file.write(b"%d," % number) for number in range(999)])
    content = b"".join(b"%d," % number for number in range(999))
    assert folder.read("x") == content
    with folder.open("x") as file:
        assert file and file.read() == content
        assert file.seek(-4, 2) == len(content) - 4 and file.read() == b"998,"
        assert file.seek(2) == file.tell() == 2 and file.read(4) == b"1,2,"

    def hidden(file: HashedFile) -> None:
        monkeypatch.setattr(file, "_file", None)
        file.error = OSError(errno.ENOSPC, "No space left on device")
        raise RuntimeError("unexpected pos 768 vs 662")

    with pytest.raises(LocalspecError, match="is full"):
        folder.write_parts("x", hidden)
    assert folder.read("x") == content


def test_two_processes_do_not_share_one(tmp_path: Path) -> None:
    with WorkFolder([1]).locked():
        with pytest.raises(InvalidValueError, match="another process"), WorkFolder([1]).locked():
            pass
        with WorkFolder([2]).locked():
            pass
    with WorkFolder([1]).locked():
        pass


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = WorkFolder([1])
    folder.write("x", b"old")

    @contextmanager
    def full(_file: Path) -> Iterator[BytesIO]:
        yield BytesIO()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(work_folder, "atomic_writer", full)
    with pytest.raises(LocalspecError, match=r"is full .* make room, and run .* --resume"):
        folder.write("x", b"new")
    assert folder.read("x") == b"old"


def test_forgetting_deletes_all() -> None:
    folder = WorkFolder([1])
    clear_all()
    folder.write("x", b"text")
    clear_all()
    assert not folder.path.exists()
