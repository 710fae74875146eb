"""Processor: its name, and what it can do in llama.cpp's words."""

import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# llama.cpp's name of a feature by Linux's.
_LINUX = {
    "pni": "SSE3",
    "ssse3": "SSSE3",
    "avx": "AVX",
    "avx2": "AVX2",
    "f16c": "F16C",
    "fma": "FMA",
    "bmi2": "BMI2",
    "avx_vnni": "AVX_VNNI",
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8",
    "asimd": "NEON",
    "asimddp": "DOTPROD",
    "i8mm": "MATMUL_INT8",
    "sve": "SVE",
}
# And by Apple's.
_APPLE = {
    "hw.optional.avx2_0": "AVX2",
    "hw.optional.neon": "NEON",
    "hw.optional.arm.FEAT_DotProd": "DOTPROD",
    "hw.optional.arm.FEAT_I8MM": "MATMUL_INT8",
}


def processor_signature() -> list[str]:
    """Return the name and the features: part of the keys of what depends on the processor."""
    return [processor_name(), *sorted(processor_features())]


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """Return the model's name, such as "AMD EPYC 9354"; the architecture where it is not told."""
    told = (
        sysctl("machdep.cpu.brand_string")
        if sys.platform == "darwin"
        else _value(cpuinfo, "model name")
    )
    return told or platform.processor() or platform.machine()


def processor_features(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """Return those features that llama.cpp has kernels for; none where the system tells none."""
    if sys.platform == "darwin":
        return frozenset(name for key, name in _APPLE.items() if sysctl(key) == "1")
    # Flags on x86, Features on Arm.
    flags = _value(cpuinfo, "flags") or _value(cpuinfo, "features") or ""
    return frozenset(_LINUX[flag] for flag in flags.split() if flag in _LINUX)


def _value(cpuinfo: Path, key: str) -> str | None:
    """Return the first value of a key; there is one per processor, all alike."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip().lower() == key), None)


@cache
def sysctl(key: str) -> str | None:
    """Return what Apple's system tells of a key; None if it tells nothing."""
    try:
        done = subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
