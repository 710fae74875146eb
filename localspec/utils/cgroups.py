"""Cgroups: the groups of processes a Linux system limits together, as a container (version 2)."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def groups(root: Path = ROOT) -> Iterator[Path]:
    """The folder of this process's group, and of every group it is in: each may set a limit.

    root: of /proc and /sys.
    """
    lines = read(root / "proc/self/cgroup").splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    top = root / "sys/fs/cgroup"
    for folder in (top / own, *(top / own).parents):
        if folder.is_relative_to(top):
            yield folder


def read(file: Path) -> str:
    """What one of a group's files says, nothing where there is none."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
