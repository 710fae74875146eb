"""What a run of everything takes: a part of each test, and each part in some run."""

import subprocess
import sys
from pathlib import Path

import pytest
from fakes.share import VARIABLE, take_share

TESTS = """
import pytest

@pytest.fixture(scope="module", params="xyz")
def kind(request): pass

@pytest.mark.parametrize("at", range(10))
def test_of_ten(at): pass

@pytest.mark.parametrize("at", range(2))
def test_of_two(at): pass

def test_of_a_kind(kind): pass
def test_of_a_kind_again(kind): pass

def test_alone(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.slow
def test_slow_too(): pass
"""

HOOKS = """
from fakes.share import choose_share, describe, take_share

pytest_configure = choose_share
pytest_report_header = describe

def pytest_collection_modifyitems(items):
    items[:] = take_share(items)
"""


@pytest.fixture
def items(tmp_path: Path, request: pytest.FixtureRequest) -> list[pytest.Item]:
    module = tmp_path / "test_shared.py"
    module.write_text(TESTS)
    collector = pytest.Module.from_parent(request.session, path=module)
    return list(request.session.genitems(collector))


def test_each_test_is_in_a_share(items: list[pytest.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    shares = []
    for place in range(4):
        monkeypatch.setenv(VARIABLE, f"{place}/4")
        share = take_share(items)
        assert {item.name.split("[")[0] for item in share} >= {
            *("test_of_ten", "test_of_two", "test_of_a_kind", "test_of_a_kind_again", "test_alone")
        }
        # In the order in which they share fixtures.
        assert share == [item for item in items if item in share]
        # Tests of a kind are of the same kind, which is made once.
        kinds = {item.callspec.params["kind"] for item in share if "kind" in item.name}
        assert len(kinds) == 1
        shares.append({item.name for item in share})
    assert set.union(*shares) == {item.name for item in items}
    assert all(7 <= len(share) <= 8 for share in shares)
    assert {"test_slow", "test_slow_too"} & shares[0] != {"test_slow", "test_slow_too"} & shares[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), f"share: 0/4 of all variants (again with {VARIABLE}=0/4; all with `pytest tests`)"),
        (("tests",), "share: all tests"),
        (("tests/test_shared.py",), "share: all tests"),
        (("-k", "alone"), "share: all tests"),
        (("--lf",), "share: all tests"),
    ],
)
def test_what_is_named_runs_whole(
    tmp_path: Path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE)
    tests = Path(__file__).parent
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\ntestpaths = tests\npythonpath = {tests}\nmarkers = slow: takes long\n"
    )
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_shared.py").write_text(TESTS)
    (tmp_path / "tests/conftest.py").write_text(HOOKS)
    command = [sys.executable, "-m", "pytest", "-n", "2", *arguments]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said in found.stdout
    counts = {(): 8, ("-k", "alone"): 1}
    assert f"{counts.get(arguments, 21)} passed" in found.stdout
