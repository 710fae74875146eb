"""Facts: what was measured and where, a line each."""

from localspec.bench.footprint import Footprint
from localspec.bench.report import ModelUsed, Report

_GIB, _MIB = 2**30, 2**20


def models_line(report: Report) -> str:
    """The models and what they take in memory."""
    drafters = [f"drafter {_model(used)}" for used in report.draft_models]
    return " · ".join([f"target {_model(report.target)}", *drafters])


def conditions_line(report: Report) -> str:
    """What was the same for all."""
    its = report.conditions
    sets = ", ".join(f"{name} ({count})" for name, count in its.prompts.items())
    parts = [
        f"prompts: {sets}",
        f"{its.tokens} tokens each, {_rounds(its.rounds)}",
        f"rule {its.rule}, temperature {its.temperature:g}, seed {its.seed}",
        f"context {its.context}",
        "reproducible" if its.reproducible else "",
    ]
    return " · ".join(part for part in parts if part)


def machine_line(report: Report) -> str:
    """The machine, how much of it was used, and versions."""
    machine, its = report.machine, report.conditions
    cores = "" if machine.cores is None else f"{machine.cores} cores, "
    parts = [
        machine.cpu,
        f"{cores}{its.threads} {'thread' if its.threads == 1 else 'threads'} used",
        f"{size(machine.memory)} memory",
        _gpu(report),
        machine.system,
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
    ]
    return " · ".join(parts)


def memory_line(report: Report) -> str:
    """What the process took in all."""
    peak = size(report.peak_resident)
    main = "main " if report.machine.gpu else ""
    return f"peak {main}memory of the process, all loaded side by side: {peak}"


def size(count: int) -> str:
    """Bytes, in words."""
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.1f} MiB"


def _model(used: ModelUsed) -> str:
    return f"{used.file.stem} ({_memory(used.memory)})"


def _memory(memory: Footprint) -> str:
    cache = "" if memory.cache is None else f" + cache {size(memory.cache)}"
    return f"weights {size(memory.weights)}{cache}"


def _gpu(report: Report) -> str:
    if not report.machine.gpu:
        return "no GPU"
    name = ", ".join(report.machine.gpus) or "GPU"
    layers = report.conditions.gpu_layers
    return f"{name}: all layers" if layers in (None, -1) else f"{name}: {layers} layers"


def _rounds(rounds: int) -> str:
    return "1 round" if rounds == 1 else f"{rounds} rounds"
