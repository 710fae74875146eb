"""StateStore: what a cache held goes on in another process, or is not believed at all."""

import json
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes.checked import KINDS, SLIDING, context_of, write_family
from fakes.processes import started_at_once

from localspec.engine import state_store
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.llama.state import State

posix = pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX's")
ORIGIN = {"model file": "abc", "version": ["1", 2], "flash attention": None}


def state_of(size: int, tokens: int = 3) -> State:
    rng = np.random.default_rng(size)
    return State(tuple(range(tokens)), rng.integers(0, 256, size, dtype=np.uint8))


def same(one: State, other: State) -> bool:
    return one.tokens == other.tokens and np.array_equal(one.data, other.data)


def file_of(store: StateStore) -> Path:
    (path,) = store.folder.glob("*.state")
    return path


def test_what_was_kept_comes_back(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "new" / "folder")
    assert store.load("key", ORIGIN) == {}
    # More than one chunk, and what is no multiple of it.
    states = {"target": state_of(3 * 2**20 + 5, 70_000), "drafter": state_of(0, 0)}
    store.save("key", ORIGIN, states)
    again = StateStore(tmp_path / "new" / "folder")
    loaded = again.load("key", ORIGIN)
    assert list(loaded) == ["target", "drafter"]
    assert all(same(loaded[name], state) for name, state in states.items())
    assert all(type(token) is int for token in loaded["target"].tokens)
    assert store.problem is None and again.problem is None


def test_texts_are_told_without_their_data(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    assert store.texts("key", ORIGIN) == {}
    store.save("key", ORIGIN, {"state": state_of(5000, 70), "mark": state_of(0, 3)})
    assert store.texts("key", ORIGIN) == {"state": [*range(70)], "mark": [0, 1, 2]}
    assert store.texts("key", {**ORIGIN, "version": 2}) == {} == store.texts("other", ORIGIN)
    whole = file_of(store).read_bytes()
    for length in range(0, len(whole), 50):
        file_of(store).write_bytes(whole[:length])
        found = store.texts("key", ORIGIN)
        assert found in ({}, {"state": [*range(70)]})


def test_a_key_goes_with_its_parts(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    keys = ["key", f"key{state_store.PART}one", f"key{state_store.PART}two", "key one"]
    for key in keys:
        store.save(key, ORIGIN, {"target": state_of(10)})
        os.utime(store._path(key), (1, 1))
    store.note_use("key")
    assert [store.used(key) > 1 for key in keys] == [True, True, True, False]
    store.remove("key")
    assert [store.has(key) for key in keys] == [False, False, False, True]
    assert store.used("key") == 0


def test_saving_that_is_given_up_changes_nothing(tmp_path: Path) -> None:
    asked = [0]

    def gives_up() -> str | None:
        asked[0] += 1
        return "it is late" if asked[0] > 3 else None

    store = StateStore(tmp_path, gives_up=gives_up)
    store.save("key", ORIGIN, {"target": state_of(10)})
    before = file_of(store).read_bytes()
    store.save("key", ORIGIN, {"target": state_of(5 * 2**20)})
    assert store.problem == "the state of 5.2 MB was not saved: it is late"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


def test_a_later_state_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(10), "drafter": state_of(11)})
    store.save("key", {**ORIGIN, "more": 1}, {"target": state_of(12)})
    loaded = store.load("key", {**ORIGIN, "more": 1})
    assert list(loaded) == ["target"] and same(loaded["target"], state_of(12))
    assert len(list(tmp_path.iterdir())) == 1


def test_each_key_has_its_own(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    sizes = {"../a/b": 10, "b": 20, "": 30, "\N{SNOWMAN}": 40}
    for key, size in sizes.items():
        store.save(key, ORIGIN, {"target": state_of(size)})
    for key, size in sizes.items():
        assert same(store.load(key, ORIGIN)["target"], state_of(size))
    assert {path.parent for path in tmp_path.rglob("*.state")} == {tmp_path}
    store.remove("b")
    store.remove("never kept")
    assert store.load("b", ORIGIN) == {} and len(store.load("", ORIGIN)) == 1
    store.clear()
    assert not any(store.load(key, ORIGIN) for key in sizes)
    assert store.problem is None


@pytest.mark.parametrize(
    ("other", "which"),
    [
        ({**ORIGIN, "model file": "abd"}, "another model file"),
        ({**ORIGIN, "version": ["1", 3]}, "another version"),
        ({**ORIGIN, "flash attention": False}, "another flash attention"),
        ({**ORIGIN, "kv type": "f16"}, "another kv type"),
        ({"model file": "abc", "version": ["1", 2]}, "another flash attention"),
        (
            {**ORIGIN, "model file": "x", "flash attention": 1},
            "another model file and another flash attention",
        ),
    ],
)
def test_a_state_of_another_origin_is_not_given(
    tmp_path: Path, other: dict[str, object], which: str
) -> None:
    """And not deleted: the one who asked may go back."""
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(10)})
    assert store.load("key", other) == {}
    assert store.problem == f"the saved state is of {which}"
    assert len(store.load("key", ORIGIN)) == 1


def test_an_origin_may_hold_what_json_says_in_its_own_way(tmp_path: Path) -> None:
    origin = {"sizes": (1, 2), "nested": {"threads": 4, "none": None}}
    store = StateStore(tmp_path)
    store.save("key", origin, {"target": state_of(10)})
    assert len(store.load("key", origin)) == 1
    with pytest.raises(TypeError):
        store.save("key", {"file": object()}, {})


Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "empty": lambda data: b"",
    "something else": lambda data: b"something else" * 100,
    "only the first line": lambda data: data[:18],
    "half a header": lambda data: data[:60],
    "without its last byte": lambda data: data[:-1],
    "half": lambda data: data[: len(data) // 2],
    "with more behind": lambda data: data + b"\0",
    "a header as long as can be": lambda data: data[:18] + b"\xff" * 8 + data[26:],
    "a bit of the header": lambda data: data[:40] + bytes([data[40] ^ 4]) + data[41:],
    "a bit of a token": lambda data: flipped(data, 3000 + 8 + 4 + 8),
    "a bit of the data": lambda data: flipped(data, 1500),
    "a bit of a checksum": lambda data: flipped(data, 2),
}


def flipped(data: bytes, from_end: int) -> bytes:
    at = len(data) - from_end
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_said_and_deleted(tmp_path: Path, damage: str) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(3000), "drafter": state_of(8, 2)})
    whole = file_of(store).read_bytes()
    file_of(store).write_bytes(DAMAGES[damage](whole))
    assert store.load("key", ORIGIN) == {}
    assert store.problem == "the saved state is damaged; it was deleted"
    assert list(tmp_path.iterdir()) == []
    store.save("key", ORIGIN, {"target": state_of(10)})
    assert len(store.load("key", ORIGIN)) == 1


def test_no_bit_may_differ(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(40)})
    path = file_of(store)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, len(whole) - at))
        assert store.load("key", ORIGIN) == {}


def test_sizes_are_not_believed_before_the_file_is_that_long(tmp_path: Path) -> None:
    """A header may be whole and the file not: nothing is made room for then."""
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(10)})
    header = json.dumps({"origin": ORIGIN, "states": {"target": [3, 2**60]}}).encode()
    head = state_store._FRAME.pack(len(header), zlib.crc32(header)) + header
    file_of(store).write_bytes(state_store._FIRST_LINE + head + bytes(30))
    assert store.load("key", ORIGIN) == {}
    assert store.problem and "damaged" in store.problem


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(10)})
    path = file_of(store)
    path.write_bytes(path.read_bytes().replace(b"state 1\n", b"state 2\n"))
    assert store.load("key", ORIGIN) == {}
    assert store.problem == "the saved state is of another version of localspec"
    assert path.exists()


def aged(store: StateStore, key: str, seconds: int) -> Path:
    """Make what is kept for a key so old."""
    path = store._path(key)
    time = path.stat().st_mtime - seconds
    os.utime(path, (time, time))
    return path


def test_the_oldest_files_go_first(tmp_path: Path) -> None:
    store = StateStore(tmp_path, max_bytes=3500)
    for age, key in ((30, "a"), (20, "b"), (10, "c")):
        store.save(key, ORIGIN, {"target": state_of(900)})
        aged(store, key, age)
    store.save("d", ORIGIN, {"target": state_of(900)})
    kept = [key for key in "abcd" if store.load(key, ORIGIN)]
    assert kept == ["b", "c", "d"]
    store.save("c", ORIGIN, {"target": state_of(3000)})
    assert [key for key in "abcd" if store.load(key, ORIGIN)] == ["c"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3500
    assert store.problem is None


def test_what_another_process_left_torn_goes_too(tmp_path: Path) -> None:
    store = StateStore(tmp_path, max_bytes=2000)
    (tmp_path / "0123.tmp").write_bytes(bytes(1500))
    os.utime(tmp_path / "0123.tmp", (1, 1))
    store.save("key", ORIGIN, {"target": state_of(900)})
    assert list(tmp_path.iterdir()) == [store._path("key")]
    torn = tmp_path / f"{store._path('key').stem}x.tmp"
    for delete in (lambda: store.remove("key"), store.clear):
        store.save("key", ORIGIN, {"target": state_of(9)})
        torn.write_bytes(b"torn")
        delete()
        assert list(tmp_path.iterdir()) == []


@posix
def test_what_a_killed_process_left_goes_with_the_next_save(tmp_path: Path) -> None:
    """It may be read, and the limit may be far."""
    script = """
import os, signal, sys
from pathlib import Path
import numpy as np
from localspec.engine.state_store import StateStore
from localspec.llama.state import State
killed = lambda: os.kill(os.getpid(), signal.SIGKILL)
store = StateStore(Path(sys.argv[1]), gives_up=killed)
store.save("other", {}, {"state": State((1,), np.zeros(9, np.uint8))})
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    assert left.suffix == ".tmp"
    of_the_living = tmp_path / f"0123abc.{os.getppid()}.tmp"
    of_the_living.write_bytes(b"begun")
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"state": state_of(10)})
    assert not left.exists() and of_the_living.exists()
    assert store.has("key")


def test_a_use_renews_no_unfinished_file(tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"state": state_of(10)})
    torn = tmp_path / f"{file_of(store).stem}x.tmp"
    torn.write_bytes(b"torn")
    for path in (torn, file_of(store)):
        os.utime(path, (1, 1))
    store.note_use("key")
    assert torn.stat().st_mtime == 1 < file_of(store).stat().st_mtime


def test_what_is_too_large_is_said_and_not_kept(tmp_path: Path) -> None:
    store = StateStore(tmp_path, max_bytes=2000)
    store.save("key", ORIGIN, {"target": state_of(900)})
    store.save("other", ORIGIN, {"target": state_of(1500), "drafter": state_of(500)})
    assert store.problem and store.problem.startswith("the state takes 2.")
    assert "more than 2.0 kB; it was not saved" in store.problem
    assert store.load("other", ORIGIN) == {} and len(store.load("key", ORIGIN)) == 1
    exact = file_of(store).stat().st_size
    for most, kept in ((exact, True), (exact - 1, False)):
        tight = StateStore(tmp_path / str(most), max_bytes=most)
        tight.save("key", ORIGIN, {"target": state_of(900)})
        assert bool(tight.load("key", ORIGIN)) is kept
    with pytest.raises(InvalidValueError, match="max_bytes is 0"):
        StateStore(tmp_path, max_bytes=0)


def test_where_nothing_can_be_kept_it_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = StateStore(tmp_path / "file")
    store.save("key", ORIGIN, {"target": state_of(9)})
    assert store.problem and store.problem.startswith("the state cannot be saved: ")
    assert store.load("key", ORIGIN) == {}
    assert store.problem.startswith("the saved state cannot be read: ")
    store.remove("key")
    store.clear()


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(90)})

    def fails(source: str, target: Path) -> None:
        assert Path(source).stat().st_size == target.stat().st_size + 1
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        if isinstance(error, OSError):
            store.save("key", ORIGIN, {"target": state_of(91)})
            assert store.problem and "No space left" in store.problem
        else:
            with pytest.raises(KeyboardInterrupt):
                store.save("key", ORIGIN, {"target": state_of(91)})
    assert list(tmp_path.iterdir()) == [store._path("key")]
    assert same(store.load("key", ORIGIN)["target"], state_of(90))


def test_what_cannot_be_deleted_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(9)})

    def fails(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", fails)
    store.remove("key")
    assert store.problem and store.problem.startswith("the saved state cannot be deleted: ")


def test_a_file_that_cannot_be_read_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = StateStore(tmp_path)
    store.save("key", ORIGIN, {"target": state_of(9)})

    def fails(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("localspec.engine.state_store.open_regular", fails)
        assert store.load("key", ORIGIN) == {}
    assert store.problem and "cannot be read: [Errno 13]" in store.problem
    assert len(store.load("key", ORIGIN)) == 1


@posix
def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    store = StateStore(tmp_path / "states")
    for size in (9, 10):
        store.save("key", ORIGIN, {"target": state_of(size)})
    assert stat.S_IMODE(file_of(store).stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_it_lies_in_the_cache_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    assert StateStore().folder == tmp_path / "cache" / "states"


WRITER = """
import sys
from pathlib import Path
import numpy as np
from localspec.engine.state_store import StateStore
from localspec.llama.state import State
folder, name = Path(sys.argv[1]), int(sys.argv[2])
store = StateStore(folder, max_bytes=10**8)
print("ready", flush=True)
sys.stdin.readline()
for i in range(30):
    store.save("key", {}, {"target": State((name, i), np.full(2_000_000 + name, name, np.uint8))})
assert store.problem is None, store.problem
"""


def test_two_processes_at_once_leave_one_of_theirs(tmp_path: Path) -> None:
    """Whoever reads meanwhile is given a whole one."""
    writers = started_at_once(WRITER, str(tmp_path))
    store, read = StateStore(tmp_path), list[State]()
    while any(writer.poll() is None for writer in writers):
        read += store.load("key", {}).values()
    for writer in writers:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    read += store.load("key", {}).values()
    assert store.problem is None and read
    for state in read:
        name = state.tokens[0]
        assert state.data.size == 2_000_000 + name and (state.data == name).all()
    assert read[-1].tokens[1] == 29
    assert list(tmp_path.iterdir()) == [store._path("key")]


# Real states.


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    families = {family for family, _, _ in KINDS.values()}
    return {family: write_family(folder / f"{family}.gguf", family) for family in families}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(paths: dict[str, Path], kind: str) -> Iterator[Model]:
    with Model(paths[KINDS[kind][0]], ON_PROCESSOR) as loaded:
        yield loaded


READER = """
import sys
from pathlib import Path
import numpy as np
from fakes.checked import context_of
from localspec.engine.state_store import StateStore
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
kind, model, folder = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
states = StateStore(folder).load("key", {"kind": kind})
with Model(model, ON_PROCESSOR) as loaded, context_of(loaded, kind) as context:
    assert context.restore(states["target"])
    row = context.extend([9])
    assert context.evaluated == 1 and len(context.tokens) == 301
    np.save(folder / "row.npy", row)
"""


def test_a_session_goes_on_in_another_process(model: Model, kind: str, tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with context_of(model, kind) as context:
        context.extend([3 + number % 250 for number in range(300)])
        store.save("key", {"kind": kind}, {"target": context.state()})
        expected = context.extend([9]).copy()
    with context_of(model, kind) as fresh:
        assert fresh.restore(store.load("key", {"kind": kind})["target"])
        row = fresh.extend([9])
        assert fresh.evaluated == 1
        np.testing.assert_allclose(row, expected, atol=1e-5)
        # What a window holds lies elsewhere in the cache then, and is added up in another order.
        assert model.sliding_window or np.array_equal(row, expected)
    tests = str(Path(__file__).parents[1])
    run = subprocess.run(
        [sys.executable, "-c", READER, kind, str(model.path), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([tests, str(Path(tests).parent)])},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    np.testing.assert_allclose(np.load(tmp_path / "row.npy"), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["llama", SLIDING, "qwen35"])
def test_what_is_damaged_never_reaches_the_library(model: Model, kind: str, tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with context_of(model, kind) as context:
        context.extend(list(range(20, 60)))
        store.save("key", {}, {"target": context.state()})
    whole = file_of(store).read_bytes()
    for at in np.random.default_rng(0).integers(100, len(whole), 40):
        store._path("key").write_bytes(flipped(whole, len(whole) - int(at)))
        assert store.load("key", {}) == {}
    store._path("key").write_bytes(whole)
    assert len(store.load("key", {})) == 1
