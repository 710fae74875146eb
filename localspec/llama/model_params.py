"""Model parameters: what the library is told before it loads a model."""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import llama_cpp

from localspec.errors import InvalidValueError
from localspec.llama import extra_buffers, unfit_gpus
from localspec.llama.devices import can_offload, gpu_pointers, usual_gpus
from localspec.llama.library import required_symbol
from localspec.llama.placement import LOAD_MODES, SPLIT_MODES, Placement, is_address
from localspec.llama.workers import Worker, connect
from localspec.workers.address import parse_address

_SPLIT_MODES = dict(
    zip(
        SPLIT_MODES,
        (llama_cpp.LLAMA_SPLIT_MODE_LAYER, llama_cpp.LLAMA_SPLIT_MODE_ROW),
        strict=True,
    )
)
_LOAD_MODES = dict(
    zip(
        LOAD_MODES,
        (
            llama_cpp.LLAMA_LOAD_MODE_AUTO,
            llama_cpp.LLAMA_LOAD_MODE_NONE,
            llama_cpp.LLAMA_LOAD_MODE_MMAP,
            llama_cpp.LLAMA_LOAD_MODE_MLOCK,
            llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK,
            llama_cpp.LLAMA_LOAD_MODE_DIRECT_IO,
        ),
        strict=True,
    )
)


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Parameters of a model.

    values: the library's structure. workers: the machines that get layers. is_offloaded: whether
    layers are on a GPU or a worker. kept: arrays that must live as long as `values`.
    """

    values: Any
    workers: Sequence[Worker]
    is_offloaded: bool
    kept: list[Any] = field(default_factory=list)


class _Override(ctypes.Structure):
    """llama_model_tensor_buft_override: where the tensors are whose names fit a pattern."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def model_params(
    placement: Placement, *, mtp: bool = False, load_mode: str = LOAD_MODES[0]
) -> ModelParams:
    """Return the parameters for loading a model; the arguments are those of Model.

    Raises InvalidValueError for a device that is not here, WorkerError and ModelLoadError.
    """
    values = llama_cpp.llama_model_default_params()
    workers = connect(placement.workers)
    devices = _devices(placement, workers)
    offloads = can_offload() if devices is None else any(devices.values())
    all_layers = -1 if offloads else 0
    values.n_gpu_layers = all_layers if placement.gpu_layers is None else placement.gpu_layers
    is_split = _is_split(placement, devices)
    values.split_mode = _SPLIT_MODES[placement.split_mode if is_split else SPLIT_MODES[0]]
    values.use_extra_bufts = extra_buffers.usable()
    values.load_mtp = mtp
    values.load_mode = _LOAD_MODES[load_mode]
    params = ModelParams(values, workers, offloads and placement.gpu_layers != 0)
    if devices is not None:
        pointers = [pointer for each in devices.values() for pointer in each]
        array = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, None)
        params.kept.append(array)
        values.devices = ctypes.cast(array, ctypes.c_void_p)
        if placement.tensor_split and is_split:
            split = (ctypes.c_float * llama_cpp.llama_max_devices())(*_shares(placement, devices))
            params.kept.append(split)
            values.tensor_split = split
    if pattern := placement.experts_pattern:
        what = "experts on the processor"
        processor = required_symbol("ggml_backend_cpu_buffer_type", what, ctypes.c_void_p)
        overrides = (_Override * 2)(_Override(pattern.encode(), processor()), _Override())
        params.kept.append(overrides)
        values.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    return params


def _is_split(placement: Placement, devices: Mapping[str, Sequence[int]] | None) -> bool:
    """Whether several devices share a model as the user wants it. devices: as of `_devices`.

    With one device there is nothing to share, and the library refuses rows of most devices. A
    worker may have several.
    """
    if placement.gpu_layers == 0:
        return False
    named = placement.split_mode != SPLIT_MODES[0] or bool(placement.tensor_split)
    count = len(usual_gpus()) if devices is None else sum(map(len, devices.values()))
    return named and count > 1


def _devices(placement: Placement, workers: Sequence[Worker]) -> Mapping[str, Sequence[int]] | None:
    """Return the library's pointers to the devices, by the name that the user has for them.

    None leaves the choice to the library.
    """
    is_usual = placement.devices is None and not workers and not placement.tensor_split
    if is_usual and not unfit_gpus.reasons():
        return None
    by_address = {worker.link.address: worker.devices for worker in workers}
    names = usual_gpus() if placement.devices is None else placement.devices
    gpus = gpu_pointers()
    return {
        name: by_address[parse_address(name)]
        if name in placement.rpc or is_address(name)
        else _gpu(name, gpus)
        for name in [*placement.rpc, *names]
    }


def require_devices(placement: Placement) -> None:
    """Raises InvalidValueError for a device that is not here, before anything is loaded on it."""
    gpus = gpu_pointers()
    for name in placement.devices or ():
        if not is_address(name):
            _gpu(name, gpus)


def _gpu(name: str, gpus: Mapping[str, int]) -> Sequence[int]:
    for gpu, pointer in gpus.items():
        if gpu.lower() == name.lower():
            return [pointer]
    here = f"here are {', '.join(gpus)}" if gpus else "this build of llama.cpp finds no GPU"
    raise InvalidValueError(
        f"device {name!r:.80} is not here; {here}; a worker is named HOST:PORT, and none is the "
        "processor"
    )


def _shares(placement: Placement, devices: Mapping[str, Sequence[int]]) -> list[float]:
    """Return the share of each of the library's devices: a worker may have several."""
    shares = placement.tensor_split
    if len(shares) != len(devices):
        names = ", ".join(devices) or "none"
        raise InvalidValueError(
            f"tensor_split has {len(shares)} shares; name one for each device: {names}"
        )
    return [
        share / len(pointers)
        for share, pointers in zip(shares, devices.values(), strict=True)
        for _ in pointers
    ]
