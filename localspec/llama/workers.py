"""Workers: the processes on other machines to which this one has given layers."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.errors import WorkerError
from localspec.llama.rpc import required_function
from localspec.llama.rpc_server import require_known_version
from localspec.workers.address import Address
from localspec.workers.hello import require_version
from localspec.workers.link import Link

# The connected workers of this process, and their label by each name that the library has for them.
_connected: dict[Address, "Worker"] = {}
_labels: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that the library knows. devices: the library's pointers."""

    link: Link
    devices: tuple[int, ...]

    @property
    def label(self) -> str:
        """Its name in the memory plan: the address."""
        return str(self.link.address)

    def require(self) -> None:
        """Raise WorkerError if the worker is gone."""
        if self.link.lost is not None:
            raise WorkerError(
                f"the worker {self.label} is gone: {self.link.lost}; start it again, and load the "
                "model anew"
            )


def connect(addresses: Sequence[Address]) -> tuple[Worker, ...]:
    """Return workers by their addresses. Raises WorkerError and ModelLoadError."""
    return tuple(map(_worker, addresses))


def _worker(address: Address) -> Worker:
    require_known_version()
    known = _connected.get(address)
    if known and known.link.lost is None and known.link.is_connected:
        return known  # it serves this process, and would not answer another question
    require_version(address)
    if known and known.link.lost is None:
        return known
    # The library remembers by its address what it knows of a worker: one that came back is new.
    link = Link(address)
    worker = Worker(link, tuple(_devices(link.endpoint)))
    worker.require()
    _connected[address] = worker
    name = required_function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)
    for number, device in enumerate(worker.devices):
        _labels[(name(device) or b"").decode()] = worker.label
        _labels[f"RPC{number}[{link.endpoint}]"] = worker.label
    return worker


def _devices(endpoint: str) -> list[int]:
    """Return the devices of the worker at an endpoint; none if it is gone."""
    pointer = ctypes.c_void_p
    add = required_function("ggml_backend_rpc_add_server", pointer, ctypes.c_char_p)
    count = required_function("ggml_backend_reg_dev_count", ctypes.c_size_t, pointer)
    get = required_function("ggml_backend_reg_dev_get", pointer, pointer, ctypes.c_size_t)
    registry = add(endpoint.encode())
    return [get(registry, number) for number in range(count(registry))] if registry else []


def label(device: str) -> str:
    """Return the address of a worker by the library's name of its device; else that name."""
    return _labels.get(device, device)


def free_memory(workers: Sequence[Worker]) -> dict[str, int]:
    """Return the free bytes of each worker. Raises WorkerError."""
    found = {}
    for worker in workers:
        found[worker.label] = sum(map(_free, worker.devices))
        worker.require()
    return found


def _free(device: int) -> int:
    pointer, free, total = ctypes.c_void_p, ctypes.c_size_t(), ctypes.c_size_t()
    memory = required_function("ggml_backend_dev_memory", None, pointer, pointer, pointer)
    memory(device, ctypes.byref(free), ctypes.byref(total))
    return free.value
