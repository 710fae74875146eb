"""Machine: what was measured on, and with which versions."""

import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil

from localspec import __version__
from localspec.llama import library


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
        cpu=_cpu(),
        cores=psutil.cpu_count(logical=False),
        logical_cores=psutil.cpu_count(),
        memory=psutil.virtual_memory().total,
        gpu=library.can_offload(),
        gpus=[each.description for each in library.devices() if "gpu" in each.kind],
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        versions={
            "localspec": __version__,
            "llama_cpp_python": library.version(),
            "python": platform.python_version(),
        },
    )


def _cpu() -> str:
    try:
        if sys.platform == "darwin":
            command = ["sysctl", "-n", "machdep.cpu.brand_string"]
            return subprocess.run(
                command, capture_output=True, text=True, check=True
            ).stdout.strip()
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        return next(named)
    except (OSError, subprocess.SubprocessError, StopIteration):
        return platform.processor() or platform.machine()
