"""Engine: findings about llama.cpp as it is compiled here, from what a child process told."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from localspec.doctor.child import SIGNAL, Answer
from localspec.doctor.finding import Finding, error, note, ok, warning
from localspec.doctor.gpus import Gpu
from localspec.doctor.versions import rebuild
from localspec.utils.format import format_bytes

_NATIVE = "-DGGML_NATIVE=on"
_NO_AMX = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


def engine(answer: Answer, cpu: Collection[str], gpus: Sequence[Gpu]) -> list[Finding]:
    """All of them. cpu: what the processor can do, as llama.cpp calls it."""
    library = answer.facts.get("library")
    if library is None:
        return [_broken(answer.failure)]
    return [
        _features(library["cpu_features"], cpu),
        _gpu(library["can_offload"], library["devices"], gpus),
        *_lacking(library["missing"]),
        _trial(answer),
    ]


def _broken(failure: str | None) -> Finding:
    return error(
        "llama.cpp",
        f"it cannot be loaded: {failure or 'nothing was told'}",
        rebuild(_NATIVE),
        exit_code=5,
    )


def _features(compiled: Collection[str], cpu: Collection[str]) -> Finding:
    unused = sorted(set(cpu) - set(compiled))
    if unused:
        return warning(
            "processor",
            f"it has {', '.join(unused)}, which this build of llama.cpp does not use",
            rebuild(_NATIVE),
        )
    return ok("processor", f"llama.cpp is compiled with {', '.join(sorted(compiled))}")


def _gpu(can_offload: bool, devices: Sequence[Mapping[str, Any]], gpus: Sequence[Gpu]) -> Finding:
    found = [device for device in devices if "gpu" in device["kind"]]
    if found:
        return ok("gpu", " · ".join(map(_device, found)))
    present = ", ".join(gpu.name for gpu in gpus)
    if can_offload and gpus:
        return warning(
            "gpu",
            f"here is {present}, and llama.cpp, compiled for GPUs, finds none",
            f"check its driver, and what the build is for; {gpus[0].name}: "
            f"{rebuild(gpus[0].cmake_args)}",
        )
    if can_offload:
        return note("gpu", "llama.cpp is compiled for one, and finds none")
    useful = [gpu for gpu in gpus if not gpu.modest]
    if useful:
        return warning(
            "gpu",
            f"here is {present}, and llama.cpp is compiled without GPUs",
            rebuild(useful[0].cmake_args),
        )
    if gpus:
        remedy = rebuild(gpus[0].cmake_args)
        return note("gpu", f"here is {present}, and llama.cpp is compiled without GPUs", remedy)
    return ok("gpu", "none is here; models run on the processor")


def _device(device: Mapping[str, Any]) -> str:
    memory = f"{format_bytes(device['free'])} of {format_bytes(device['total'])} free"
    return f"{device['name']} ({device['description']}), {memory}"


def _lacking(missing: Mapping[str, Sequence[str]]) -> list[Finding]:
    return [
        note("llama.cpp", f"this build cannot be used for {use}: it lacks {', '.join(names)}")
        for use, names in missing.items()
    ]


def _rebuilt_sound(answer: Answer) -> str:
    """GCC before 13 leaves out what AMX instructions read, and the first of them ends the process.

    (The intrinsic that loads a tile's configuration does not say which memory it reads.)
    """
    features = answer.facts.get("library", {}).get("cpu_features", ())
    if not any(feature.startswith("AMX") for feature in features):
        return rebuild(_NATIVE)
    return f'CFLAGS="{_NO_AMX}" CXXFLAGS="{_NO_AMX}" {rebuild("")}, or use GCC 13 or newer'


def _trial(answer: Answer) -> Finding:
    """Whether the bundled pair gives the same text with and without drafts."""
    trial = answer.facts.get("trial")
    if trial is None:
        failure = answer.failure or "nothing was told"
        # A signal is llama.cpp's (mostly: compiled for another processor); the rest has a place.
        crashed = SIGNAL in failure
        remedy = _rebuilt_sound(answer) if crashed else "LOCALSPEC_DEBUG=1 localspec generate hello"
        return error("trial", f"the bundled pair does not run: {failure}", remedy, exit_code=5)
    if not trial["same"]:
        return error(
            "trial",
            "the bundled pair writes another text with drafts than without",
            "please report this, with what localspec doctor --json prints",
            exit_code=7,
        )
    return ok(
        "trial",
        f"the bundled pair writes the same {trial['tokens']} tokens with and without drafts "
        f"({trial['accepted']} accepted); plain decoding {trial['tokens_per_second']:.0f} tok/s",
    )
