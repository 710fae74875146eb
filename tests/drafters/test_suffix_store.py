"""PastTexts: bounded, private, deletable, and never the cause of a crash."""

import os
import stat
import sys
from pathlib import Path
from zlib import crc32

import platformdirs
import pytest
from fakes.past_texts import add, loaded
from fakes.processes import started_at_once

from localspec.drafters import suffix_store
from localspec.drafters.drawn_from import DrawnFrom
from localspec.drafters.suffix_store import PastTexts, clear_all, default_folder
from localspec.errors import InvalidValueError

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX's")


def test_kept_texts_are_loaded_the_oldest_first(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path / "new" / "folder")
    assert loaded(store) == []
    add(store, [1, 2, 3])
    add(store, [])
    add(store, range(4, 6))
    add(store, [0, 2**31 - 1])
    again = PastTexts("v", tmp_path / "new" / "folder")
    assert loaded(again) == [[1, 2, 3], [4, 5], [0, 2**31 - 1]]
    assert store.problem is None and again.problem is None


def test_a_text_replaces_texts_that_it_continues(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path)
    for text in ([1, 2], [3], [1, 2, 3], [1, 2, 3], [1, 3]):
        add(store, text)
    assert loaded(store) == [[3], [1, 2, 3], [1, 3]]


def test_each_vocabulary_has_its_own(tmp_path: Path) -> None:
    one, other = PastTexts("../a:b", tmp_path), PastTexts("b", tmp_path)
    add(one, [1])
    add(other, [2])
    assert (loaded(one), loaded(other)) == ([[1]], [[2]])
    assert one.path.parent == tmp_path
    one.clear()
    assert (loaded(one), loaded(other)) == ([], [[2]])


def test_the_oldest_tokens_are_dropped_first(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path, max_tokens=6)
    for text in ([1, 2, 3], [4, 5], [6, 7]):
        add(store, text)
    assert loaded(store) == [[2, 3], [4, 5], [6, 7]]
    add(store, range(10, 20))
    assert loaded(store) == [[14, 15, 16, 17, 18, 19]]
    assert loaded(PastTexts("v", tmp_path, max_tokens=2)) == [[18, 19]]


def test_the_file_is_at_most_max_bytes_long(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path, max_bytes=100)
    for i in range(30):
        add(store, [i])
        add(store, [i, i, i])
        assert 80 < store.path.stat().st_size <= 100 or i < 4
    assert loaded(store)[-1] == [29, 29, 29]
    add(store, range(100))
    assert loaded(store) == [[*range(82, 100)]] or store.path.stat().st_size <= 100


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"something else",
        lambda data: data[:-2],
        lambda data: data[:-4],
        lambda data: data + b"\0\0\0\0",
        lambda data: data[:-6] + bytes([data[-6] ^ 1]) + data[-5:],
        lambda data: data[:10],
    ],
)
def test_a_broken_file_is_set_aside(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    store = PastTexts("v", tmp_path)
    add(store, [1, 2, 3])
    broken = damage(store.path.read_bytes())
    store.path.write_bytes(broken)
    assert loaded(store) == []
    assert store.problem and store.path.name in store.problem and "\n" not in store.problem
    assert store.path.with_suffix(".broken").read_bytes() == broken
    add(store, [4])
    assert loaded(PastTexts("v", tmp_path)) == [[4]]


def write_file(store: PastTexts, version: int, body: bytes) -> None:
    """A file with the right checksum."""
    store.folder.mkdir(exist_ok=True)
    first_line = f"localspec past texts {version}\n".encode()
    store.path.write_bytes(first_line + crc32(body).to_bytes(4, "little") + body)


def numbers(*entries: int) -> bytes:
    return b"".join(entry.to_bytes(4, "little", signed=True) for entry in entries)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("entries", "odd"), [([1, 2], 0), ([-2, -1], 0), ([1, -7, -1], 0), ([], 3)]
)
def test_impossible_entries_are_not_loaded(
    tmp_path: Path, version: int, entries: list[int], odd: int
) -> None:
    """Even if the checksum is right, no negative token may reach a drafter."""
    body = numbers(*entries) + bytes(odd)
    if version == 2:
        body = numbers(len(entries)) + body + b"".join(DrawnFrom().columns())
    store = PastTexts("v", tmp_path)
    write_file(store, version, body)
    assert loaded(store) == []
    assert store.problem


def test_adding_to_a_broken_file_starts_a_new_one(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path)
    store.path.write_bytes(b"nonsense")
    add(store, [5])
    assert loaded(store) == [[5]]
    assert store.problem and "it was renamed" in store.problem


def test_the_problem_says_why_nothing_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = PastTexts("v", tmp_path / "file")
    add(store, [1])
    said = f"past texts cannot be stored in {tmp_path / 'file'}: File exists"
    assert store.problem == said
    assert loaded(store) == []
    assert store.problem.startswith("past texts cannot be read")


def test_a_file_that_cannot_be_read_now_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PastTexts("v", tmp_path)
    add(store, [1])

    def fails(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(suffix_store, "read_regular", fails)
        add(store, [2])
    assert store.problem and "Input/output error" in store.problem
    assert loaded(store) == [[1]]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PastTexts("v", tmp_path)
    add(store, [1])
    before = {path.name for path in tmp_path.iterdir()}

    def fails(source: str, target: Path) -> None:
        assert stat.S_IMODE(Path(source).stat().st_mode) == 0o600 or sys.platform == "win32"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    add(store, [2])
    assert store.problem and "No space left" in store.problem
    assert {path.name for path in tmp_path.iterdir()} == before
    assert loaded(store) == [[1]]


@posix
def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path / "past")
    add(store, [1])
    add(store, [2])
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "past").iterdir()}
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE((tmp_path / "past").stat().st_mode) == 0o700


def test_clearing_leaves_no_token_behind(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path / "past")
    store.clear()
    clear_all(tmp_path / "past")
    for clear in (store.clear, lambda: clear_all(tmp_path / "past")):
        add(store, [1])
        store.path.with_suffix(".broken").write_bytes(b"old")
        (tmp_path / "past" / f"{store.path.stem}abc.tmp").write_bytes(b"torn")
        clear()
        assert [path.name for path in (tmp_path / "past").iterdir()] in ([".lock"], [])
        assert loaded(store) == []


def test_the_default_folder_is_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "cache" / "past"
    assert PastTexts("v").folder == default_folder()
    add(PastTexts("v"), [1])
    clear_all()
    assert loaded(PastTexts("v")) == []
    monkeypatch.setenv("LOCALSPEC_HOME", "")
    assert default_folder() == platformdirs.user_cache_path("localspec", appauthor=False) / "past"


WRITER = """
import sys
from pathlib import Path
from localspec.drafters.drawn_from import DrawnFrom, DrawnText
from localspec.drafters.suffix_store import PastTexts
store = PastTexts("v", Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for i in range(40):
    store.add(DrawnText([int(sys.argv[2]), i], DrawnFrom()))
    texts = PastTexts("v", Path(sys.argv[1])).load()
    assert [0, 0] in [text.tokens for text in texts]
assert store.problem is None, store.problem
"""


@posix
def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    add(PastTexts("v", tmp_path), [0, 0])
    writers = started_at_once(WRITER, str(tmp_path))
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    texts = loaded(PastTexts("v", tmp_path))
    assert sorted(map(tuple, texts)) == [
        (0, 0),
        *((name, i) for name in (1, 2) for i in range(40)),
    ]


def test_wrong_values_are_named(tmp_path: Path) -> None:
    for wrong in (-1, 2**31):
        with pytest.raises(InvalidValueError, match=f"token is {wrong}"):
            add(PastTexts("v", tmp_path), [1, wrong])
    with pytest.raises(InvalidValueError, match="max_tokens is 0"):
        PastTexts("v", tmp_path, max_tokens=0)
    with pytest.raises(InvalidValueError, match="max_bytes 50"):
        PastTexts("v", tmp_path, max_bytes=50)
