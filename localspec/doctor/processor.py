"""Processor: what it can do, named as llama.cpp names it."""

import subprocess
import sys
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
# llama.cpp's name by Linux's.
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


def features(cpuinfo: Path = _CPUINFO) -> frozenset[str]:
    """What can be told; nothing where the system does not tell."""
    if sys.platform == "darwin":
        return frozenset(name for key, name in _APPLE.items() if _sysctl(key) == "1")
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    # Flags on x86, Features on Arm; one line per processor, all alike.
    flags = next(
        (
            line.partition(":")[2]
            for line in lines
            if line.lower().startswith(("flags", "features"))
        ),
        "",
    )
    return frozenset(_LINUX[flag] for flag in flags.split() if flag in _LINUX)


def _sysctl(key: str) -> str | None:
    try:
        done = subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
