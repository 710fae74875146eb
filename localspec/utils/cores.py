"""Cores: how many of a processor's cores a pass should use.

The threads of a pass wait for the slowest of them. So on a processor with two kinds of cores only
the fast ones count, as in llama.cpp's own tools: a thread on a slow core holds up all others.
"""

import sys
from pathlib import Path

import psutil

from localspec.utils.busy_cores import allowed_cores
from localspec.utils.processor import sysctl

_DEVICES = Path("/sys/devices")
# An efficiency core has less than this part of the capacity of the fastest core.
_FAST = 0.6


def performance_cores(devices: Path = _DEVICES) -> int:
    """The number of fast physical cores that this process may use; hyperthreads are no cores."""
    allowed = allowed_cores()
    physical = min(psutil.cpu_count(logical=False) or len(allowed), len(allowed))
    if sys.platform == "darwin":
        told = sysctl("hw.perflevel0.physicalcpu") or ""
        fast = int(told) if told.isdigit() else 0
    else:
        fast = len(_first_siblings(devices, _fast_processors(devices) & allowed))
    return min(physical, fast) if fast else physical


def _fast_processors(devices: Path) -> frozenset[int]:
    """The numbers of the fast processors, by Linux; none where all are alike, or it is not told."""
    # Intel's two kinds are two devices.
    if listed := _read(devices / "cpu_core" / "cpus"):
        return _numbers(listed)
    capacities = {
        int(file.parent.name[3:]): int(told)
        for file in (devices / "system" / "cpu").glob("cpu[0-9]*/cpu_capacity")
        if (told := _read(file)).isdigit()
    }
    least = _FAST * max(capacities.values(), default=0)
    fast = frozenset(number for number, each in capacities.items() if each >= least)
    return fast if len(fast) < len(capacities) else frozenset()


def _first_siblings(devices: Path, processors: frozenset[int]) -> frozenset[int]:
    """One processor for each core that these processors are on."""
    firsts = set[int]()
    for number in processors:
        topology = devices / "system" / "cpu" / f"cpu{number}" / "topology"
        siblings = _numbers(_read(topology / "thread_siblings_list") or str(number))
        firsts.add(min(siblings & processors, default=number))
    return frozenset(firsts)


def _numbers(listed: str) -> frozenset[int]:
    """The numbers of a list as Linux writes it, such as 0-3,8; none if it is no list."""
    try:
        ends = [list(map(int, part.split("-"))) for part in listed.split(",") if part]
    except ValueError:
        return frozenset()
    return frozenset(number for each in ends for number in range(each[0], each[-1] + 1))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
