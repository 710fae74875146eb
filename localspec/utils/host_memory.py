"""Host memory: how many bytes of main memory this process can still use."""

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from localspec.utils.cgroups import group_folders, read_file

if sys.platform != "win32":
    import resource


def host_memory() -> int:
    """Return the free bytes of main memory, within the limits of the container and the process."""
    return min([psutil.virtual_memory().available, *_container(), *_process()])


def installed_memory() -> int:
    """Return the bytes of main memory, of the container where that has a limit."""
    limits = [read_file(group / "memory.max") for group in group_folders()]
    return min([psutil.virtual_memory().total, *(int(each) for each in limits if each.isdecimal())])


def spare_memory() -> int:
    """Return those free bytes that hold nothing of this process.

    Pages of files that it has mapped and read count as free, and weights among them are needed.
    """
    read_files = getattr(psutil.Process().memory_info(), "shared", 0)
    free = psutil.virtual_memory().available - read_files
    # A limit of the process counts mapped files as used already.
    return max(0, min([free, *_container(read_files), *_process()]))


def _container(read_files: int = 0) -> list[int]:
    """Return what is free within each limited control group of this process.

    read_files: bytes of files that are to stay in memory.
    """
    return [left for group in group_folders() if (left := _left(group, read_files)) is not None]


def _left(group: Path, read_files: int) -> int | None:
    try:
        most, used = int(read_file(group / "memory.max")), int(read_file(group / "memory.current"))
    except ValueError:
        return None  # "max", or no such file
    lines = read_file(group / "memory.stat").splitlines()
    stat: Mapping[str, str] = dict(line.split(maxsplit=1) for line in lines)
    # The cache of files is freed when memory is needed.
    return most - used + max(0, int(stat.get("inactive_file", 0)) - read_files)


def address_space() -> int | None:
    """Return how many bytes of addresses this process may have (`ulimit -v`); None: any number."""
    if sys.platform == "win32":
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if most == resource.RLIM_INFINITY else most


def _process() -> list[int]:
    """Return what is free within `ulimit -v`, if that is set."""
    most = address_space()
    return [] if most is None else [most - psutil.Process().memory_info().vms]
