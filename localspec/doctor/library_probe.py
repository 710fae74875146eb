"""Library probe: reports what llama.cpp is here, and whether the bundled pair runs on it."""

import sys
from dataclasses import asdict
from typing import Any

from localspec.doctor.probe import report_facts
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationOptions
from localspec.llama import extra_buffers, library, rpc, unfit_gpus
from localspec.llama.devices import cpu_features, devices
from localspec.loading.config import RuntimeConfig, threads_for
from localspec.loading.gpu_check import check_gpus
from localspec.models.registry import bundled
from localspec.utils.host_memory import host_memory

_PROMPT = "How do I list files by size?"
_OPTIONS: GenerationOptions = {"max_tokens": 16, "seed": 6, "ignore_eos": True, "depth": 4}
_CONTEXT = 256
_LARGE_MODEL_BYTES = 2**60


def library_facts() -> dict[str, Any]:
    """Return what this build can do."""
    return {
        "version": library.version(),
        "cpu_features": sorted(cpu_features()),
        "gpu_backends": library.gpu_backends(),
        "devices": [asdict(device) for device in devices()],
        "missing": _missing(),
        "threads": threads_for(_LARGE_MODEL_BYTES),
        "memory": host_memory(),
    }


def _missing() -> dict[str, list[str]]:
    """Return the functions that this installation lacks, by what they would be needed for."""
    found = library.missing_functions()
    if rpc.is_available():
        found.pop(library.OTHER_MACHINES, None)
    return found


def pair_facts() -> dict[str, Any]:
    """Decode with the bundled pair, with and without drafts, in passes of equal digits.

    Where none have equal digits, in any passes: then the texts may differ.
    """
    try:
        return {**_pair_facts(reproducible=True), "not_reproducible": None}
    except InvalidValueError as error:
        return {**_pair_facts(reproducible=False), "not_reproducible": str(error)}


def _pair_facts(*, reproducible: bool) -> dict[str, Any]:
    # Behind what is reported of the library: an engine needs huggingface_hub too.
    from localspec.engine.engine import load

    # By its files: a models.toml that cannot be used is no fault of llama.cpp.
    target, drafter = bundled()
    with load(target, ["suffix", drafter], context=_CONTEXT, reproducible=reproducible) as engine:
        drafted = engine.generate(_PROMPT, **_OPTIONS)
        drafters = engine.drafter_set.names
    with load(target, "none", context=_CONTEXT, reproducible=reproducible) as engine:
        plain = engine.generate(_PROMPT, **_OPTIONS)
    return {
        "tokens": len(plain.token_ids),
        "same": plain.token_ids == drafted.token_ids,
        "accepted": drafted.stats.accepted,
        "drafters": drafters,
        "tokens_per_second": plain.stats.tokens_per_second,
        "without_extra_buffers": extra_buffers.cost(),
    }


def main() -> None:
    """Report both."""
    report_facts("library", library_facts())
    check_gpus(RuntimeConfig(), again=True)
    report_facts("unfit_gpus", unfit_gpus.reasons())
    report_facts("pair", pair_facts())


if __name__ == "__main__":
    try:
        main()
    except LocalspecError as error:
        sys.exit(str(error))
