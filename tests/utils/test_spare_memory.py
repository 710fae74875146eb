"""How much memory holds nothing of ours: files that were mapped and read are needed again."""

import mmap
import subprocess
import sys
from pathlib import Path

import pytest

from localspec.utils import host_memory as module
from localspec.utils.host_memory import host_memory, spare_memory

MIB = 2**20
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="it tells no mapped files apart")


class Free:
    """A machine on which so many bytes are free."""

    def __init__(self, available: int) -> None:
        self.available = available


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else on the machine changes what is free meanwhile."""
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: Free(8192 * MIB))
    monkeypatch.setattr(module, "group_folders", list)


@needs_linux
def test_a_file_that_was_mapped_and_read_is_not_spare(machine: None, tmp_path: Path) -> None:
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"\1" * (64 * MIB))
    before, free = spare_memory(), host_memory()
    with file.open("rb") as opened:
        weights = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    assert abs(spare_memory() - before) < 8 * MIB
    assert sum(weights[at] for at in range(0, len(weights), mmap.PAGESIZE)) > 0
    assert 56 * MIB < before - spare_memory() < 80 * MIB
    assert host_memory() == free
    weights.close()
    assert abs(spare_memory() - before) < 8 * MIB


def group(folder: Path, *, most: str, used: int, cached: int) -> Path:
    """The files of a control group."""
    folder.mkdir()
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\n")
    return folder


@pytest.mark.parametrize(
    ("cached", "read", "spare"),
    [
        (0, 0, 600),  # nothing is cached
        (100, 0, 700),  # the cache is of other files
        (300, 200, 700),  # two thirds of it are ours
        (300, 900, 600),  # the group that read them first counts the rest of ours
    ],
)
def test_within_a_container_only_the_cache_of_others_is_spare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cached: int, read: int, spare: int
) -> None:
    limited = group(tmp_path / "a", most=str(1000 * MIB), used=400 * MIB, cached=cached * MIB)
    free = group(tmp_path / "b", most="max", used=0, cached=0)
    monkeypatch.setattr(module, "group_folders", lambda: [free, limited])
    monkeypatch.setattr(module.psutil, "virtual_memory", lambda: Free(8192 * MIB))
    monkeypatch.setattr(module.psutil.Process, "memory_info", lambda _: Info(read * MIB))
    assert spare_memory() == spare * MIB
    assert host_memory() == (600 + cached) * MIB


class Info:
    """What a process uses."""

    def __init__(self, shared: int) -> None:
        self.shared, self.vms = shared, 0


@needs_linux
def test_a_limit_of_the_process_counts_mapped_files_once(tmp_path: Path) -> None:
    """In a process of its own, under a real limit."""
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"\1" * (64 * MIB))
    program = f"""
import mmap, resource
from localspec.utils.host_memory import spare_memory
import psutil
most = psutil.Process().memory_info().vms + {512 * MIB}
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(spare_memory())
with open({str(file)!r}, "rb") as opened:
    weights = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
print(spare_memory())
sum(weights[at] for at in range(0, len(weights), mmap.PAGESIZE))
print(spare_memory())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    before, mapped, read = map(int, ran.stdout.split())
    assert 448 * MIB < before <= 512 * MIB, ran.stderr
    assert abs(before - mapped - 64 * MIB) < 8 * MIB
    assert abs(mapped - read) < 8 * MIB, "its pages are taken off once"
