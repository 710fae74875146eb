"""Device: where torch trains, how fast its floats are there, and whether a drafter fits."""

import gc
from collections.abc import Sequence

import torch
from torch import nn

from localspec.errors import InvalidValueError
from localspec.utils.host_memory import host_memory

AUTO = "auto"
DEVICES = (AUTO, "cuda", "mps", "cpu")
# Functions of torch.cpu that tell whether a processor computes 16-bit floats.
_INSTRUCTIONS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
# What Metal and CUDA's libraries say, for which torch has no error of its own; and what it says of
# main memory, and of a GPU that it was not compiled for.
_NO_MEMORY = ("out of memory", "alloc_failed")
_NO_MAIN_MEMORY = ("defaultcpuallocator",)
_NO_KERNEL = ("no kernel image", "invalid device function")
# What a batch takes beside the weights where nothing is trained, roughly.
_WEIGHT, _BATCH_BYTES = 4, 1 << 30


def choose_device(name: str) -> torch.device:
    """The device of this name; `auto` takes a GPU where torch sees one.

    Raises InvalidValueError for a device that is not here.
    """
    if name not in DEVICES:
        raise InvalidValueError(f"device is {name!r}; it is one of {', '.join(DEVICES)}")
    here = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == AUTO:
        return torch.device(next(each for each, found in here.items() if found))
    if not here[name]:
        raise InvalidValueError(
            f"device is {name}, and torch {torch.__version__} sees none here; name cpu, or install "
            "torch for your GPU"
        )
    return torch.device(name)


def use_threads(count: int | None) -> None:
    """Train with so many threads of the processor; None: as many as torch takes."""
    if count is not None:
        torch.set_num_threads(count)


def described(device: torch.device) -> str:
    """The device in a few words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return "the GPU (Metal)" if device.type == "mps" else f"{torch.get_num_threads()} CPU threads"


def low_precision(device: torch.device) -> bool:
    """Whether 16-bit floats (bfloat16) are computed by the hardware."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        # Without these instructions, 16-bit floats are emulated, and slower than 32-bit ones.
        asked = (getattr(torch.cpu, name, None) for name in _INSTRUCTIONS)
        return any(supported() for supported in asked if supported)
    return False


def with_room(drafter: nn.Module, device: torch.device) -> torch.device:
    """The device, or the processor if a drafter that is not trained does not fit there."""
    weights = sum(weight.numel() for weight in drafter.parameters())
    free = free_bytes(device)
    fits = free is None or _BATCH_BYTES + _WEIGHT * weights <= free
    return device if fits else torch.device("cpu")


def free_bytes(device: torch.device) -> int | None:
    """The free memory of a GPU, what torch keeps for later included; None for the processor."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + kept
    if device.type == "mps":
        # It computes in main memory, of which the system lets it have a part.
        taken = torch.mps.driver_allocated_memory()
        kept = taken - torch.mps.current_allocated_memory()
        free = torch.mps.recommended_max_memory() - taken
        return max(0, int(min(free, host_memory()) + kept))
    return None


def give_back_memory() -> None:
    """Give back the memory that torch keeps for tensors to come."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has computed what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if device.type == "mps":
        torch.mps.synchronize()


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether it says that a device's memory is too small."""
    return isinstance(error, torch.OutOfMemoryError) or _says(error, _NO_MEMORY)


def is_out_of_main_memory(error: RuntimeError) -> bool:
    """Whether it says that main memory is too small."""
    return _says(error, _NO_MAIN_MEMORY)


def is_not_computed(error: RuntimeError) -> bool:
    """Whether it says that torch cannot compute something on a device."""
    return isinstance(error, NotImplementedError) or _says(error, _NO_KERNEL)


def _says(error: RuntimeError, phrases: Sequence[str]) -> bool:
    said = str(error).lower()
    return any(each in said for each in phrases)
