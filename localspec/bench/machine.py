"""Machine: what was measured on, and with which versions."""

import platform
from dataclasses import dataclass

import psutil

from localspec import __version__
from localspec.llama import library
from localspec.llama.devices import can_offload, devices
from localspec.utils.processor import processor_name


@dataclass(frozen=True, slots=True)
class Machine:
    """This one. memory: bytes. gpu: whether this build of llama.cpp can put layers on one."""

    cpu: str
    cores: int | None
    logical_cores: int | None
    memory: int
    gpu: bool
    gpus: list[str]
    system: str
    versions: dict[str, str]


def this_machine() -> Machine:
    """What it is made of; its name and its owner's are nobody's business."""
    return Machine(
        cpu=processor_name(),
        cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        memory=psutil.virtual_memory().total,
        gpu=can_offload(),
        gpus=[each.description for each in devices() if "gpu" in each.kind],
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        versions={
            "localspec": __version__,
            "llama_cpp_python": library.version(),
            "python": platform.python_version(),
        },
    )
