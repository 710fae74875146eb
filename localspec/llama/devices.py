"""Devices: what this build of llama.cpp can compute on, and which processor features it uses."""

import ctypes
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import llama_cpp

from localspec.llama import unfit_gpus
from localspec.llama.library import symbol
from localspec.llama.placement import Placement

GPU, INTEGRATED_GPU = "gpu", "integrated gpu"
_KINDS = ("cpu", GPU, INTEGRATED_GPU, "accelerator")


def can_offload() -> bool:
    """Return whether this build can put layers on a GPU.

    llama.cpp says so of any build with RPC, too: then a GPU must be found.
    """
    if not llama_cpp.llama_supports_gpu_offload():
        return False
    return not llama_cpp.llama_supports_rpc() or any(each.is_gpu for each in devices())


def cpu_features() -> frozenset[str]:
    """Return the processor features that this build uses, as llama.cpp calls them (AVX2, ...)."""
    found, backend = set(), ""
    # One line: `CUDA : ARCHS = 890 | CPU : SSE3 = 1 | AVX2 = 1 | `
    for item in llama_cpp.llama_print_system_info().decode("utf-8", "replace").split("|"):
        named, _, setting = item.rpartition(" : ")
        backend = named.strip() or backend
        name, _, value = setting.partition("=")
        if backend == "CPU" and value.strip() == "1":
            found.add(name.strip())
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Device:
    """A processor or GPU that llama.cpp found.

    kind: cpu, gpu, integrated gpu, accelerator or other. free, total: its memory in bytes. card:
    its address in the machine; "" if that is unknown.
    """

    name: str
    description: str
    kind: str
    free: int
    total: int
    card: str = ""

    @property
    def backend(self) -> str:
        """What computes there, as its name says: CUDA, Vulkan."""
        return self.name.rstrip("0123456789")

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU, of its own or in the processor."""
        return self.kind in (GPU, INTEGRATED_GPU)

    @property
    def is_unified(self) -> bool:
        """Whether it computes in main memory, as GPUs in processors and Apple's own do."""
        is_apple = self.name.upper().startswith("MTL") and platform.machine() == "arm64"
        return self.kind == INTEGRATED_GPU or is_apple


def devices() -> list[Device]:
    """Return the devices that this build finds; none where the library has no functions for it."""
    return [device for device, _ in _found()]


def gpu_pointers() -> Mapping[str, int]:
    """Return the library's pointers to the GPUs of this machine, by their names."""
    return {device.name: pointer for device, pointer in _found() if device.is_gpu}


def usual_gpus() -> list[str]:
    """Return the names of the GPUs that models use: one in the processor only without others.

    Not those on which this build was found not to work, and each card once: a build with several
    backends finds it with each of them, and llama.cpp takes the first.
    """
    gpus = [device for device in devices() if device.is_gpu and not unfit_gpus.reason(device.name)]
    own = [device for device in gpus if device.kind == GPU]
    if not own:
        return [device.name for device in gpus if device.backend == gpus[0].backend]
    cards = {device.card or device.name: device.name for device in reversed(own)}
    return [device.name for device in own if device.name in cards.values()]


def names_of(placement: Placement) -> list[str]:
    """Return the names of the devices that get layers of a model, workers' addresses included."""
    return [] if placement.gpu_layers == 0 else _devices_of(placement)


def computes_on_gpu(placement: Placement) -> bool:
    """Return whether passes of a model may be computed on a GPU or on another machine.

    Without layers there a GPU still computes wide passes, unless it is no device of the model.
    """
    return bool(_devices_of(placement))


def captures_graphs(placement: Placement) -> bool:
    """Return whether a device of a model keeps its work on a pass as a whole: a CUDA graph.

    It is made anew where a pass has other rows than the one before. ROCm has such graphs too,
    Vulkan and Metal have none.
    """
    return any(name.upper().startswith(("CUDA", "ROCM")) for name in names_of(placement))


def _devices_of(placement: Placement) -> list[str]:
    """The names of a model's devices, whether they get layers or not."""
    return [*placement.rpc, *(usual_gpus() if placement.devices is None else placement.devices)]


def processor_pointers() -> list[int]:
    """Return the library's pointers to the processor."""
    return [pointer for device, pointer in _found() if device.kind == "cpu"]


class _Properties(ctypes.Structure):
    """`ggml_backend_dev_props`, with room for what a later one may have at its end."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("free", ctypes.c_size_t),
        ("total", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("card", ctypes.c_char_p),  # left as it is, NULL, by versions that lack it
        ("others", ctypes.c_byte * 256),
    )


def _found() -> Iterator[tuple[Device, int]]:
    """Yield the devices with the library's pointers to them."""
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    count = symbol("ggml_backend_dev_count", size)
    get = symbol("ggml_backend_dev_get", pointer, size)
    properties = symbol("ggml_backend_dev_get_props", None, pointer, pointer)
    if not (count and get and properties):
        return
    for device in map(get, range(count())):
        its = _Properties()
        properties(device, ctypes.byref(its))
        name, description, card = (
            (text or b"").decode("utf-8", "replace")
            for text in (its.name, its.description, its.card)
        )
        kind = _KINDS[its.kind] if its.kind < len(_KINDS) else "other"
        yield Device(name, description, kind, its.free, its.total, card), device
