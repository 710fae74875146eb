"""Control groups (version 2), with which Linux limits groups of processes, such as containers."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def group_folders(root: Path = ROOT) -> Iterator[Path]:
    """Yield the folder of this process's control group, then those of the groups around it.

    Each of them may set a limit. root: the folder that holds `proc` and `sys`.
    """
    lines = read_file(root / "proc/self/cgroup").splitlines()
    own = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if own is None:
        return
    top = root / "sys/fs/cgroup"
    for folder in (top / own, *(top / own).parents):
        if folder.is_relative_to(top):
            yield folder


def processor_limit(root: Path = ROOT) -> float | None:
    """Return the number of processors whose time this process gets; None where there is no limit.

    Which processors it may run on is another matter. root: the folder that holds `proc` and `sys`.
    """
    limits = []
    for folder in group_folders(root):
        quota, _, period = read_file(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def read_file(file: Path) -> str:
    """Return the text of one of a group's files, "" where there is none."""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
