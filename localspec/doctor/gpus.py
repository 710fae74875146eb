"""GPUs of this machine, found in the system's files, not through llama.cpp."""

import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
# Windows' class of display adapters, in its registry: each has a key there, and an id that begins
# with `PCI\VEN_1002`.
_ADAPTERS = r"SYSTEM\CurrentControlSet\Control\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
_VENDOR = re.compile(r"PCI\\VEN_([0-9A-F]{4})", re.IGNORECASE)


def gpus(root: Path = _ROOT) -> list[Gpu]:
    """Return the GPUs found, each kind once, the most useful first.

    root: the folder that holds `dev` and `sys`.
    """
    every = (*_nvidia(root), *_apple(), *_on_the_bus(root), *_of_windows())
    found = {gpu.name: gpu for gpu in every}
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


def _of_windows() -> list[Gpu]:
    if sys.platform == "win32":
        import winreg

        return in_registry(winreg)
    return []


def in_registry(winreg: Any) -> list[Gpu]:
    """Return the GPUs in Windows' registry. winreg: Python's module."""
    found = []
    with suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _ADAPTERS) as adapters:
        for number in range(winreg.QueryInfoKey(adapters)[0]):
            # One of the keys may not be read by users.
            with (
                suppress(OSError),
                winreg.OpenKey(adapters, winreg.EnumKey(adapters, number)) as adapter,
            ):
                device, _type = winreg.QueryValueEx(adapter, "MatchingDeviceId")
                vendor = _VENDOR.match(str(device))
                gpu = _BY_VENDOR.get(f"0x{vendor[1].lower()}") if vendor else None
                found += [gpu] if gpu else []
    return found
