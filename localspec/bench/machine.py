"""Machine: the hardware and the versions of a benchmark."""

import platform
import sys
from dataclasses import dataclass

import psutil

from localspec import __version__
from localspec.llama import library
from localspec.llama.devices import can_offload, devices
from localspec.utils.processor import processor_name

if sys.platform != "win32":
    import resource


@dataclass(frozen=True, slots=True)
class Machine:
    """A computer. memory: bytes. gpu: whether this build of llama.cpp can put layers on a GPU."""

    cpu: str
    cores: int | None
    logical_cores: int | None
    memory: int
    gpu: bool
    gpus: list[str]
    system: str
    versions: dict[str, str]


def this_machine() -> Machine:
    """This machine, without its name and that of its user."""
    return Machine(
        cpu=processor_name(),
        cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        memory=psutil.virtual_memory().total,
        gpu=can_offload(),
        gpus=[each.description for each in devices() if each.is_gpu],
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        versions={
            "localspec": __version__,
            "llama_cpp_python": library.version(),
            "python": platform.python_version(),
        },
    )


def peak_resident() -> int:
    """The most bytes of memory that this process has had in use, mapped files included."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
