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
# With fewer fast cores than these, all cores count: one thread would be slower.
_FEWEST = 2


def performance_cores(devices: Path = _DEVICES) -> int:
    """The number of fast physical cores that this process may use; hyperthreads are no cores."""
    allowed = allowed_cores()
    physical = psutil.cpu_count(logical=False) or len(allowed)
    if sys.platform == "darwin":
        told = sysctl("hw.perflevel0.physicalcpu") or ""
        fast = int(told) if told.isdigit() else 0
    else:
        fast = len(_first_siblings(devices, _fast_processors(devices, allowed)))
    every = min(physical, len(_first_siblings(devices, allowed)))
    return min(every, fast) if fast >= _FEWEST else every


def _fast_processors(devices: Path, allowed: frozenset[int]) -> frozenset[int]:
    """The fast ones of these processors, by Linux; none where it tells nothing."""
    # Intel's two kinds are two devices.
    if listed := _read(devices / "cpu_core" / "cpus"):
        return _numbers(listed) & allowed
    files = {n: devices / "system" / "cpu" / f"cpu{n}" / "cpu_capacity" for n in allowed}
    capacities = {n: int(told) for n, file in files.items() if (told := _read(file)).isdigit()}
    least = _FAST * max(capacities.values(), default=0)
    return frozenset(number for number, each in capacities.items() if each >= least)


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
