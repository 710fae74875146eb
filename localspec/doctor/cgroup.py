"""Cgroup: how much of a Linux machine's time this process gets, as in a container."""

from pathlib import Path

from localspec.utils.cgroups import ROOT, group_folders, read_file


def processors(root: Path = ROOT) -> float | None:
    """Of how many processors it gets the time; None where nothing limits it. root: of /proc, /sys.

    (Which processors it may run on at all is another matter.)
    """
    limits = []
    for folder in group_folders(root):
        quota, _, period = read_file(folder / "cpu.max").partition(" ")
        if quota.isdecimal() and period.isdecimal():
            limits.append(int(quota) / int(period))
    return min(limits, default=None)
