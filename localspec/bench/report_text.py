"""Report text: a report as lines and table cells, for the terminal and for the page."""

from collections.abc import Iterator, Sequence

from localspec.bench.report import BenchmarkReport, Conditions, Footprint, MeasuredModel
from localspec.bench.summary import Summary
from localspec.forecast.confidence import ConfidenceInterval
from localspec.llama.placement import ON_PROCESSOR
from localspec.utils.busy_cores import busy_line
from localspec.utils.format import counted

_GIB, _MIB = 2**30, 2**20
_PHASES = ("draft", "verify", "host")
COLUMNS = ("prompts", "drafter", "tok/s", "x plain", "accept", "tok/step", *_PHASES, "same text")
LEGEND = (
    "x plain: geometric mean [95 % interval over prompts] · draft, verify, host: shares of the time"
)


def facts(report: BenchmarkReport) -> list[str]:
    """What was measured and where, a line each: models, conditions, memory and machine."""
    # Servers are processes of their own.
    memory = [] if report.served else [_peak_memory(report)]
    busy = busy_line(report.busy_cores)
    lines = [_models(report), _conditions(report), *memory, _machine(report), busy]
    return [line for line in lines if line]


def cells(summary: Summary) -> tuple[str, ...]:
    """The text of each of the COLUMNS."""
    speed = summary.tokens_per_second.value
    rate = summary.acceptance_rate
    return (
        summary.set,
        summary.configuration,
        speed_text(speed),
        with_interval(summary.ratio) if summary.ratio else "-",
        "-" if rate is None else f"{rate:.0%}",
        f"{summary.tokens_per_step:.2f}",
        *(f"{summary.share(phase):.0%}" for phase in _PHASES),
        _same_text(summary),
    )


def prompt_lines(rows: Sequence[Summary]) -> Iterator[str]:
    """Yield how quickly prompts are read, and when the first token comes. rows: of the report.

    The last rows are those on all prompts.
    """
    found = [row for row in rows if row.set == rows[-1].set]
    speeds = [speed for row in found if (speed := row.prompt_tokens_per_second)]
    first = [
        f"{row.configuration} {row.first_token:.2f} s"
        for row in found
        if row.first_token is not None
    ]
    if speeds and first:
        read = f"prompts are read at {speed_text(speeds[0])} tok/s"
        yield f"{read} · first token after: {', '.join(first)}"


def speed_text(tokens_per_second: float) -> str:
    """A speed with three digits or more."""
    return f"{tokens_per_second:.{1 if tokens_per_second < 100 else 0}f}"


def with_interval(mean: ConfidenceInterval) -> str:
    """A mean and its interval, where they differ."""
    value = f"{mean.value:.2f}"
    if mean.low is None or mean.high is None or mean.low == mean.high:
        return value
    return f"{value} [{mean.low:.2f}, {mean.high:.2f}]"


def _same_text(summary: Summary) -> str:
    if not summary.compared:
        return "-"
    same, compared = summary.same, summary.compared
    return "yes" if same == compared else f"{same} of {compared}"


def _models(report: BenchmarkReport) -> str:
    drafters = [f"drafter {_model(used)}" for used in report.draft_models]
    return " · ".join([f"target {_model(report.target)}", *drafters])


def _model(used: MeasuredModel) -> str:
    return f"{used.file.stem} ({_footprint(used.memory)})"


def _footprint(memory: Footprint) -> str:
    cache = "" if memory.cache is None else f" + cache {_size(memory.cache)}"
    return f"weights {_size(memory.weights)}{cache}"


def _conditions(report: BenchmarkReport) -> str:
    its = report.conditions
    sets = ", ".join(f"{name} ({count})" for name, count in its.prompts.items())
    parts = [
        f"prompts: {sets}",
        f"{counted(its.tokens, 'token')} each, {counted(its.rounds, 'round')}",
        f"rule {its.rule}, temperature {its.temperature:g}, seed {its.seed}",
        ", ".join(f"{name} {value}" for name, value in its.sampling.items()),
        f"context {its.context}",
        _cache(its),
        its.rope,
        f"LoRA {', '.join(its.adapters)}" if its.adapters else "",
        "reproducible" if its.reproducible else "",
    ]
    return " · ".join(part for part in parts if part)


def _cache(its: Conditions) -> str:
    """What is unusual about the caches and what reads them."""
    types = [("KV cache", its.kv_type), ("the drafter's KV cache", its.drafter_kv_type)]
    parts = [f"{what} {kind}" for what, kind in types if kind != "f16"]
    # `reproducible` implies that it is off.
    if its.flash_attention is not None and not its.reproducible:
        parts.append(f"flash attention {'on' if its.flash_attention else 'off'}")
    return ", ".join([*parts, *([f"ubatch {its.ubatch}"] if its.ubatch else [])])


def _peak_memory(report: BenchmarkReport) -> str:
    main = "main " if report.machine.gpu else ""
    peak = _size(report.peak_resident)
    return f"peak {main}memory of the process, all loaded side by side: {peak}"


def _machine(report: BenchmarkReport) -> str:
    machine, its = report.machine, report.conditions
    cores = "" if machine.cores is None else f"{machine.cores} cores, "
    parts = [
        machine.cpu,
        f"{cores}{counted(its.threads, 'thread')} used",
        f"{_size(machine.memory)} memory",
        _gpu(report),
        machine.system,
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
    ]
    return " · ".join(parts)


def _gpu(report: BenchmarkReport) -> str:
    name = ", ".join(report.machine.gpus) or ("GPU" if report.machine.gpu else "no GPU")
    usual = not report.machine.gpu and report.conditions.placement == ON_PROCESSOR.in_words
    return name if usual else f"{name}: {report.conditions.placement}"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.1f} MiB"
