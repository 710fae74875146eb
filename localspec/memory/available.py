"""Free memory: how many bytes this process can still allocate on each device."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import psutil

from localspec.llama.devices import INTEGRATED_GPU, Device, devices, usual_gpus
from localspec.llama.placement import DEFAULT, Placement, is_address
from localspec.llama.workers import connect
from localspec.llama.workers import free_memory as worker_memory
from localspec.utils.format import format_bytes
from localspec.utils.host_memory import host_memory
from localspec.utils.option_names import option

# llama.cpp's name for the processor and its main memory.
HOST = "CPU"
# A request for this many times the free memory is refused without asking the library.
HOPELESS = 8
_MIB = 2**20
# Kept free for vocabularies, the tables of drafters, and the interpreter.
_HOST_RESERVE = 96 * _MIB
# Kept free for a GPU's driver and its libraries.
GPU_RESERVE = 512 * _MIB


@dataclass(frozen=True, slots=True)
class Shortage:
    """A device that lacks memory, with the bytes that are needed and free there.

    sharing: the GPUs that use the same memory as well, if that is main memory.
    """

    device: str
    needed: int
    free: int
    sharing: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "" if self.device == HOST else f" on {self.device}"
        if self.sharing:
            where = f" of main memory, {' and '.join(self.sharing)} included"
        needed, free = format_bytes(self.needed), format_bytes(self.free)
        return f"would need {needed}{where}, and {free} are free"


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """The free bytes of each device, by its name.

    unified: the GPUs that compute in main memory: what they use is missing there. lends: whether
    the system lends them more than is free there, as macOS does.
    """

    by_device: Mapping[str, int]
    unified: frozenset[str] = frozenset()
    lends: bool = False

    @property
    def total(self) -> int:
        """The bytes that are free in all."""
        others = (size for device, size in self.by_device.items() if device not in self._sharing)
        return self._shared + sum(others)

    @property
    def has_devices(self) -> bool:
        """Whether there is more than main memory."""
        return self.by_device.keys() != {HOST}

    def shortage(self, needed: Mapping[str, int]) -> Shortage | None:
        """Return what lacks the most where so many bytes are needed by device; None if all fits."""
        found = [
            Shortage(device, size, self.by_device[device])
            for device, size in needed.items()
            if device in self.by_device
        ]
        if self.unified:
            both = sum(needed.get(device, 0) for device in self._sharing)
            found.append(Shortage(HOST, both, self._shared, tuple(sorted(self.unified))))
        worst = max(found, key=lambda each: each.needed - each.free, default=None)
        return worst if worst and worst.needed > worst.free else None

    def crowding(self, needed: Mapping[str, int]) -> str | None:
        """Say in one line what other programs must give up; None if nothing.

        A system that lends GPUs more than is free makes room when it is used.
        """
        both, free = sum(needed.get(device, 0) for device in self._sharing), self.by_device[HOST]
        if not self.lends or both <= free:
            return None
        return (
            f"{format_bytes(both)} of main memory are needed, and {format_bytes(free)} are free: "
            "what other programs hold is moved to the disk, which takes time; close some of them, "
            f"or pass a smaller {option('context')}"
        )

    def less(self, reserve: int) -> "FreeMemory":
        """The same with so many bytes less on GPUs, or in main memory if that is all there is."""
        spared = {HOST} if self.spares_main_memory else set[str]()
        left = {
            device: size if device in spared else max(0, size - reserve)
            for device, size in self.by_device.items()
        }
        return replace(self, by_device=left)

    def freest_gpu(self, devices: Iterable[str]) -> str | None:
        """The GPU of this machine among these devices with the most free; None without any."""
        names = {name.lower() for name in devices if not is_address(name)}
        gpus = [name for name in self.by_device if name != HOST and name.lower() in names]
        return max(gpus, key=self.by_device.__getitem__, default=None)

    @property
    def spares_main_memory(self) -> bool:
        """Whether what is not used on GPUs is used in main memory."""
        return self.has_devices and not self.unified

    @property
    def _sharing(self) -> frozenset[str]:
        return self.unified | {HOST}

    @property
    def _shared(self) -> int:
        """The bytes that are free in main memory, by what the system or the largest GPU says."""
        return max(self.by_device.get(device, 0) for device in self._sharing)


def free_memory(*placements: Placement) -> FreeMemory:
    """Return the free bytes by device, less a reserve.

    placements: whose devices count; without any, main memory and all GPUs. A worker is called by
    its address. Raises WorkerError if one cannot be used.
    """
    free = {HOST: max(0, host_memory() - _HOST_RESERVE)}
    unified, lends = set[str](), False
    gpus = {device.name: device for device in devices() if device.is_gpu and device.total}
    for placement in placements or (DEFAULT,):
        names = usual_gpus() if placement.gpus is None else placement.gpus
        named = [gpus[name] for name in gpus if name.lower() in map(str.lower, names)]
        free |= {gpu.name: max(0, _free_on(gpu, free[HOST])) for gpu in named}
        unified |= {gpu.name for gpu in named if gpu.is_unified}
        # Of one in the processor, no more than that counts as free.
        lends |= any(gpu.is_unified and gpu.kind != INTEGRATED_GPU for gpu in named)
        workers = worker_memory(connect(placement.workers))
        free |= {name: max(0, size - GPU_RESERVE) for name, size in workers.items()}
    return FreeMemory(free, frozenset(unified), lends)


def _free_on(gpu: Device, host: int) -> int:
    """Return the free bytes of a GPU, less a reserve. host: those of main memory."""
    free = gpu.free - GPU_RESERVE
    if gpu.kind != INTEGRATED_GPU:
        return free
    # It computes in main memory, but for what the system never sees of it.
    return min(free, host + max(0, gpu.total - psutil.virtual_memory().total))
