"""GPUs of this machine, found in the system's files, not through llama.cpp."""

import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A kind of GPU.

    cmake_args: what compiles llama.cpp for it. modest: it is little faster than the processor.
    """

    name: str
    cmake_args: str
    modest: bool = False


_NVIDIA = Gpu("an NVIDIA GPU", "-DGGML_CUDA=on")
_APPLE = Gpu("an Apple GPU", "-DGGML_METAL=on")
# The vendor's number on the PCI bus.
_BY_VENDOR = {
    "0x10de": _NVIDIA,
    "0x1002": Gpu("an AMD GPU", "-DGGML_VULKAN=on"),
    "0x8086": Gpu("an Intel GPU", "-DGGML_VULKAN=on", modest=True),
}


def gpus(root: Path = _ROOT) -> list[Gpu]:
    """Return the GPUs found, each kind once, the most useful first.

    root: the folder that holds `dev` and `sys`.
    """
    found = {gpu.name: gpu for gpu in (*_nvidia(root), *_apple(), *_on_the_bus(root))}
    return sorted(found.values(), key=lambda gpu: gpu.modest)


def _nvidia(root: Path) -> list[Gpu]:
    present = any((root / "dev").glob("nvidia[0-9]*")) or _smi_lists_one()
    return [_NVIDIA] if present else []


def _smi_lists_one() -> bool:
    """Ask the driver's tool, for Windows and WSL, where there are no device files.

    (That the tool is installed proves nothing.)
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        listed = subprocess.run([tool, "-L"], capture_output=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return b"GPU 0" in listed.stdout


def _apple() -> list[Gpu]:
    return [_APPLE] if sys.platform == "darwin" and platform.machine() == "arm64" else []


def _on_the_bus(root: Path) -> list[Gpu]:
    found = []
    for file in sorted((root / "sys/class/drm").glob("renderD*/device/vendor")):
        try:
            gpu = _BY_VENDOR.get(file.read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            continue
        found += [gpu] if gpu else []
    return found
