"""Free memory: how many bytes this process can still allocate on each device."""

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from localspec.llama.devices import INTEGRATED_GPU, Device, devices, usual_gpus
from localspec.llama.placement import DEFAULT, Placement
from localspec.llama.workers import connect
from localspec.llama.workers import free_memory as worker_memory
from localspec.utils.cgroups import group_folders, read_file
from localspec.utils.format import format_bytes

if sys.platform != "win32":
    import resource

# llama.cpp's name for the processor and its main memory.
HOST = "CPU"
_MIB = 2**20
# Kept free for vocabularies, the tables of drafters, and the interpreter.
_HOST_RESERVE = 96 * _MIB
# Kept free for a GPU's driver and its libraries.
_GPU_RESERVE = 512 * _MIB


def free_memory(*placements: Placement) -> dict[str, int]:
    """Return the free bytes by device, less a reserve.

    placements: whose devices count; without any, main memory and all GPUs. A worker is called by
    its address. Raises WorkerError if one cannot be used.
    """
    free = {HOST: max(0, host_memory() - _HOST_RESERVE)}
    gpus = {device.name: device for device in devices() if device.is_gpu and device.total}
    for placement in placements or (DEFAULT,):
        names = usual_gpus() if placement.gpus is None else placement.gpus
        free |= {
            name: max(0, _free_on(gpu, free[HOST]))
            for name, gpu in gpus.items()
            if name.lower() in map(str.lower, names)
        }
        workers = worker_memory(connect(placement.workers))
        free |= {name: max(0, size - _GPU_RESERVE) for name, size in workers.items()}
    return free


def _free_on(gpu: Device, host: int) -> int:
    """Return the free bytes of a GPU, less a reserve. host: those of main memory."""
    free = gpu.free - _GPU_RESERVE
    if gpu.kind != INTEGRATED_GPU:
        return free
    # It computes in main memory, but for what the system never sees of it.
    return min(free, host + max(0, gpu.total - psutil.virtual_memory().total))


def lacking(needed: Mapping[str, int], free: Mapping[str, int]) -> tuple[str, int] | None:
    """Return the device that lacks the most bytes, and the bytes needed there, if one does."""
    short = [
        (size - free[device], device)
        for device, size in needed.items()
        if size > free.get(device, size)
    ]
    if not short:
        return None
    _, device = max(short)
    return device, needed[device]


def shortage_text(device: str, needed: int, free: Mapping[str, int]) -> str:
    """Return how much is needed on a device, and how much is free there, in words."""
    of = "" if device == HOST else f" on {device}"
    return f"would need {format_bytes(needed)}{of}, and {format_bytes(free[device])} are free"


def host_memory() -> int:
    """Return the free bytes of main memory, within the limits of the container and the process."""
    return min([psutil.virtual_memory().available, *_container(), *_process()])


def _container() -> list[int]:
    """Return what is free within each limited control group of this process."""
    return [left for group in group_folders() if (left := _left(group)) is not None]


def _left(group: Path) -> int | None:
    try:
        most, used = int(read_file(group / "memory.max")), int(read_file(group / "memory.current"))
    except ValueError:
        return None  # "max", or no such file
    lines = read_file(group / "memory.stat").splitlines()
    stat: Mapping[str, str] = dict(line.split(maxsplit=1) for line in lines)
    # The cache of files is freed when memory is needed.
    return most - used + int(stat.get("inactive_file", 0))


def _process() -> list[int]:
    """Return what is free within `ulimit -v`, if that is set."""
    if sys.platform == "win32":
        return []
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return []
    return [most - psutil.Process().memory_info().vms]
