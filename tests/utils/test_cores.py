"""Cores: the fast ones, as several processors tell of theirs."""

from pathlib import Path

import psutil
import pytest

from localspec.utils import cores
from localspec.utils.cores import performance_cores


def machine(
    monkeypatch: pytest.MonkeyPatch, processors: int, physical: int, platform: str = "linux"
) -> None:
    monkeypatch.setattr(cores.sys, "platform", platform)
    monkeypatch.setattr(cores, "allowed_cores", lambda: frozenset(range(processors)))
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: processors if logical else physical)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def pairs_of_hyperthreads(devices: Path, cores: int) -> None:
    for number in range(2 * cores):
        first = number - number % 2
        topology = devices / "system" / "cpu" / f"cpu{number}" / "topology"
        write(topology / "thread_siblings_list", f"{first}-{first + 1}")


def test_one_kind_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, 8, 4)
    pairs_of_hyperthreads(tmp_path, 4)
    assert performance_cores(tmp_path) == 4
    # A process that may use both threads of two of them.
    monkeypatch.setattr(cores, "allowed_cores", lambda: frozenset(range(4)))
    assert performance_cores(tmp_path) == 2


def test_two_kinds_of_intel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six fast cores of two threads each, and eight efficient ones."""
    machine(monkeypatch, 20, 14)
    pairs_of_hyperthreads(tmp_path, 6)
    write(tmp_path / "cpu_core" / "cpus", "0-11")
    write(tmp_path / "cpu_atom" / "cpus", "12-19")
    assert performance_cores(tmp_path) == 6
    # A process that may use two of the fast ones, one, or none.
    monkeypatch.setattr(cores, "allowed_cores", lambda: frozenset([0, 1, 3, 14, 15]))
    assert performance_cores(tmp_path) == 2
    monkeypatch.setattr(cores, "allowed_cores", lambda: frozenset([0, 13, 14, 15]))
    assert performance_cores(tmp_path) == 4
    monkeypatch.setattr(cores, "allowed_cores", lambda: frozenset([14, 15]))
    assert performance_cores(tmp_path) == 2


@pytest.mark.parametrize(
    ("capacities", "expected"),
    [
        ([1024, 900, 900, 900, 350, 350], 4),
        ([1024] * 6, 6),
        ([400, 400, 1024, 1024, 400, 400], 2),
        ([1024, 500, 500, 200, 200, 200], 6),
    ],
)
def test_kinds_of_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capacities: list[int], expected: int
) -> None:
    """The fastest core, those that are nearly as fast, and the small ones."""
    machine(monkeypatch, 6, 6)
    for number, each in enumerate(capacities):
        write(tmp_path / "system" / "cpu" / f"cpu{number}" / "cpu_capacity", str(each))
    assert performance_cores(tmp_path) == expected


@pytest.mark.parametrize(("told", "expected"), [("4", 4), (None, 10), ("?", 10)])
def test_a_mac(monkeypatch: pytest.MonkeyPatch, told: str | None, expected: int) -> None:
    machine(monkeypatch, 10, 10, "darwin")
    monkeypatch.setattr(cores, "sysctl", lambda _key: told)
    assert performance_cores() == expected


@pytest.mark.parametrize("listed", ["", "none", "0-", "x-3"])
def test_what_is_no_list_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str
) -> None:
    machine(monkeypatch, 4, 4)
    write(tmp_path / "cpu_core" / "cpus", listed)
    assert performance_cores(tmp_path) == 4


def test_this_machine_has_cores() -> None:
    assert 1 <= performance_cores() <= len(cores.allowed_cores())
