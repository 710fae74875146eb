"""Library findings: about llama.cpp as it is compiled here, from what its probe reported."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from localspec.doctor.finding import Finding, error, note, ok, warning
from localspec.doctor.gpus import Gpu
from localspec.doctor.probe import ProbeResult
from localspec.doctor.versions import rebuild
from localspec.utils.format import format_bytes

_PAIR = "trial"
_AMX = "AMX"
_NATIVE = "-DGGML_NATIVE=on"
_NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


def library_findings(
    probed: ProbeResult, cpu_features: Collection[str], gpus: Sequence[Gpu]
) -> list[Finding]:
    """Return all of them. cpu_features: of the processor, as llama.cpp calls them."""
    library = probed.facts.get("library")
    if library is None:
        return [_broken(probed.failure)]
    return [
        _features(library["cpu_features"], cpu_features),
        _gpu(library["gpu_backends"], library["devices"], gpus),
        *_lacking(library["missing"]),
        *_unfit_gpus(probed, gpus),
        *_extra_buffers(probed),
        _pair(probed),
        *_not_reproducible(probed),
    ]


def _broken(failure: str | None) -> Finding:
    return error(
        "llama.cpp",
        f"it cannot be loaded: {failure or 'nothing was told'}",
        rebuild(_NATIVE),
        exit_code=5,
    )


def _features(compiled: Collection[str], present: Collection[str]) -> Finding:
    unused = sorted(set(present) - set(compiled))
    if unused and all(feature.startswith(_AMX) for feature in unused):
        return note(
            "processor",
            f"it has {', '.join(unused)}, which this build of llama.cpp does not use",
            f"with GCC 13 or newer: {rebuild(_NATIVE)}",
        )
    if unused:
        return warning(
            "processor",
            f"it has {', '.join(unused)}, which this build of llama.cpp does not use",
            rebuild(_NATIVE),
        )
    return ok("processor", f"llama.cpp is compiled with {', '.join(sorted(compiled))}")


def _gpu(
    backends: Sequence[str], devices: Sequence[Mapping[str, Any]], gpus: Sequence[Gpu]
) -> Finding:
    found = [device for device in devices if "gpu" in device["kind"]]
    if found:
        return ok("gpu", " · ".join(map(_device, found)))
    present = ", ".join(gpu.name for gpu in gpus)
    if backends and gpus:
        return warning(
            "gpu",
            f"here is {present}, and llama.cpp, compiled with {', '.join(backends)}, finds none",
            f"check its driver, and for which GPUs the build is; {gpus[0].name}: "
            f"{rebuild(gpus[0].cmake_args)}",
        )
    if backends:
        return note("gpu", f"llama.cpp is compiled with {', '.join(backends)}, and finds none")
    useful = [gpu for gpu in gpus if not gpu.modest]
    if useful:
        return warning(
            "gpu",
            f"here is {present}, and llama.cpp is compiled without GPUs",
            f"{rebuild(useful[0].cmake_args)}; without a compiler, a prebuilt wheel of the wheel "
            "index in llama-cpp-python's README",
        )
    if gpus:
        remedy = rebuild(gpus[0].cmake_args)
        return note("gpu", f"here is {present}, and llama.cpp is compiled without GPUs", remedy)
    return ok("gpu", "none is here; models run on the processor")


def _device(device: Mapping[str, Any]) -> str:
    memory = f"{format_bytes(device['free'])} of {format_bytes(device['total'])} free"
    return f"{device['name']} ({device['description']}), {memory}"


def _unfit_gpus(probed: ProbeResult, gpus: Sequence[Gpu]) -> list[Finding]:
    """Say which GPUs were tried out and are not used, as far as the probe came."""
    compiled_for = rebuild(gpus[0].cmake_args if gpus else "")
    return [
        warning(
            "gpu",
            f"{name} is not used: {reason}",
            f"update its driver, or compile llama.cpp on this machine: {compiled_for}",
        )
        for name, reason in probed.facts.get("unfit_gpus", {}).items()
    ]


def _not_reproducible(probed: ProbeResult) -> list[Finding]:
    """Say so if no passes here have equal digits."""
    reason = probed.facts.get("pair", {}).get("not_reproducible")
    return [note(_PAIR, reason)] if reason else []


def _lacking(missing: Mapping[str, Sequence[str]]) -> list[Finding]:
    return [
        note(
            "llama.cpp",
            f"this build cannot be used for {use}: it lacks {', '.join(names)}",
            "localspec worker --build" if "RPC" in use else None,
        )
        for use, names in missing.items()
    ]


def _extra_buffers(probed: ProbeResult) -> list[Finding]:
    """Say so if models are loaded without extra buffer types, as far as the probe came."""
    cost = probed.facts.get("pair", {}).get("without_extra_buffers")
    if cost is None:
        return []
    return [
        warning(
            "llama.cpp",
            "this build crashes with weights rearranged for faster kernels (AMX, repacked); models "
            f"are loaded without: {cost}",
            _rebuild_without_crash(probed),
        )
    ]


def _rebuild_without_crash(probed: ProbeResult) -> str:
    """Return how to build a library whose kernels do not crash.

    GCC before 13 leaves out what AMX instructions read, and the first of them ends the process.
    (The intrinsic that loads a tile's configuration does not say which memory it reads.)
    """
    features = probed.facts.get("library", {}).get("cpu_features", ())
    if not any(feature.startswith(_AMX) for feature in features):
        return rebuild(_NATIVE)
    return f'CFLAGS="{_NO_AMX}" CXXFLAGS="{_NO_AMX}" {rebuild("")}, or use GCC 13 or newer'


def _remedy(probed: ProbeResult) -> str:
    """Return what to do where the bundled pair did not come to its end."""
    # A crash is llama.cpp's (mostly: compiled for another processor); an exception is ours.
    if probed.crashed:
        return _rebuild_without_crash(probed)
    if probed.timed_out:
        return (
            "localspec doctor, once more: the first texts on a GPU also compile its kernels; then "
            "localspec generate --device none hello"
        )
    return "LOCALSPEC_DEBUG=1 localspec generate hello"


def _pair(probed: ProbeResult) -> Finding:
    """Whether the bundled pair gives the same text with and without drafts."""
    pair = probed.facts.get("pair")
    if pair is None:
        failure = probed.failure or "nothing was told"
        text = f"the bundled pair does not run: {failure}"
        return error(_PAIR, text, _remedy(probed), exit_code=5)
    speed = f"plain decoding {pair['tokens_per_second']:.0f} tok/s"
    if pair.get("not_reproducible"):
        return ok(_PAIR, f"the bundled pair runs ({pair['accepted']} accepted); {speed}")
    if not pair["same"]:
        return error(
            _PAIR,
            "the bundled pair writes another text with drafts than without",
            "please report this, with what localspec doctor --json prints",
            exit_code=7,
        )
    return ok(
        _PAIR,
        f"the bundled pair writes the same {pair['tokens']} tokens with and without drafts "
        f"({pair['accepted']} accepted); {speed}",
    )
