"""Free memory: how much this process may still take, of each device."""

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from localspec.llama import library
from localspec.utils.cgroups import group_folders, read_file

if sys.platform != "win32":
    import resource

# What llama.cpp calls the processor.
HOST = "CPU"
_MIB = 2**20
# Left to what comes with a model: its vocabulary, the drafters' own tables, the interpreter.
_HOST_RESERVE = 96 * _MIB
# Left to what a GPU's driver and its libraries take for themselves.
_GPU_RESERVE = 512 * _MIB


def free_memory(*, gpu_layers: int | None = None) -> dict[str, int]:
    """Free bytes by device, less a reserve; gpu_layers as in RuntimeConfig."""
    free = {HOST: max(0, host_memory() - _HOST_RESERVE)}
    if gpu_layers != 0 and library.can_offload():
        free |= {
            device.name: max(0, device.free - _GPU_RESERVE)
            for device in library.devices()
            if device.kind in ("gpu", "integrated gpu") and device.total
        }
    return free


def host_memory() -> int:
    """Bytes of main memory that can be had: of the machine, the container and the process."""
    return min([psutil.virtual_memory().available, *_container(), *_process()])


def _container() -> list[int]:
    """What the control groups of this process leave it; nothing where there is no limit."""
    return [left for group in group_folders() if (left := _left(group)) is not None]


def _left(group: Path) -> int | None:
    try:
        most, used = int(read_file(group / "memory.max")), int(read_file(group / "memory.current"))
    except ValueError:
        return None  # "max", or no such file
    lines = read_file(group / "memory.stat").splitlines()
    stat: Mapping[str, str] = dict(line.split(maxsplit=1) for line in lines)
    # What is cached of files is given back when it is needed.
    return most - used + int(stat.get("inactive_file", 0))


def _process() -> list[int]:
    """What `ulimit -v` leaves it."""
    if sys.platform == "win32":
        return []
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return []
    return [most - psutil.Process().memory_info().vms]
