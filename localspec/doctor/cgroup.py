"""Cgroup: how much of a Linux machine's time this process gets, as in a container (version 2)."""

from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def processors(root: Path = _ROOT) -> float | None:
    """Of how many processors it gets the time; None where nothing limits it. root: of /proc, /sys.

    (Which processors it may run on at all is another matter.)
    """
    limits = []
    for folder in _groups(root):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _groups(root: Path) -> Iterator[Path]:
    """The folder of this process's group, and of every group it is in: each may set a limit."""
    lines = _read(root / "proc/self/cgroup").splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    top = root / "sys/fs/cgroup"
    for folder in (top / own, *(top / own).parents):
        if folder.is_relative_to(top):
            yield folder


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
