"""Report: everything that a benchmark found out, for tables, pages and programs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from localspec.bench.bound import Bound
from localspec.bench.configurations import LoadedConfiguration, LoadedSweep
from localspec.bench.machine import Machine, peak_resident, this_machine
from localspec.bench.peer_sampling import unusual_members
from localspec.bench.prompt_sets import Task, prompts_hash
from localspec.bench.runner import Run
from localspec.bench.served_summary import ServedSummary
from localspec.bench.summary import Summary, passes_by_width, summarise
from localspec.bench.tool_summary import BesideTool
from localspec.bench.users import UsersRun
from localspec.bench.users_summary import UsersSummary, summarise_users
from localspec.control.base_costs import WIDEST
from localspec.generation_config import GenerationConfig
from localspec.gguf.facts import facts_of
from localspec.gguf.reader import read_header
from localspec.llama.devices import devices
from localspec.llama.model import Model
from localspec.llama.placement import DEFAULT, ON_PROCESSOR
from localspec.loading.config import RuntimeConfig
from localspec.memory.estimate import cache_bytes
from localspec.speculation.rules import rule_named


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was the same for all configurations.

    threads: of the target, fewer than usual on a busy machine. prompts: how many of each set;
    prompts_hash: of all their texts. placement: where target and draft models are, in words.
    rope: how rotations are scaled, in words. adapters: of the target, each with its scale.
    sampling: as in `unusual_members`. The others are those of RuntimeConfig and of
    GenerationConfig.
    """

    tokens: int
    rounds: int
    seed: int
    rule: str
    temperature: float
    context: int
    threads: int
    gpu_layers: int | None
    placement: str
    reproducible: bool
    prompts: dict[str, int]
    prompts_hash: str
    kv_type: str = "f16"
    drafter_kv_type: str = "f16"
    flash_attention: bool | None = None
    ubatch: int | None = None
    rope: str = ""
    adapters: list[str] = field(default_factory=list)
    sampling: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        sweep: LoadedSweep,
        runtime: RuntimeConfig,
        settings: GenerationConfig,
        rounds: int,
        tasks: Sequence[Task],
    ) -> "Conditions":
        """The conditions of texts with these settings on a sweep."""
        params = sweep.plain.slots.own.loaded.params(settings)
        return cls(
            tokens=settings.max_tokens,
            rounds=rounds,
            seed=settings.seed,
            rule=settings.rule,
            temperature=params.temperature,
            context=sweep.plain.context,
            threads=sweep.plain.threads,
            gpu_layers=runtime.placement.gpu_layers,
            placement=_placement(runtime),
            reproducible=runtime.reproducible,
            prompts=dict(Counter(task.set for task in tasks)),
            prompts_hash=prompts_hash(tasks),
            kv_type=runtime.kv_type,
            drafter_kv_type=runtime.drafter_kv_type,
            flash_attention=runtime.flash,
            ubatch=runtime.ubatch,
            rope=runtime.rope_in_words,
            adapters=[str(each) for each in runtime.loras],
            sampling=unusual_members(params),
        )


def _placement(runtime: RuntimeConfig) -> str:
    """Where the models are, in words: by default on GPUs only where there are any."""
    if runtime.placement == DEFAULT and not any(each.is_gpu for each in devices()):
        runtime = replace(runtime, placement=ON_PROCESSOR)
    return runtime.placement_in_words


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of a model's weights and of one cache; cache: None where the file does not tell."""

    weights: int
    cache: int | None


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """A model that took part, and its memory."""

    file: Path
    memory: Footprint


@dataclass(frozen=True, slots=True)
class PassSummary:
    """What the target's passes cost, as one configuration learnt while it ran.

    seconds: of passes of 1, 2, ... rows, padded where that is faster. by: the configuration. used:
    how many passes of each width it made.
    """

    seconds: list[float]
    used: dict[int, int]
    by: str


@dataclass(frozen=True, slots=True)
class BenchmarkReport:
    """A benchmark.

    draft_models: the drafters that are models. drafters: the names of all drafters, by
    configuration. left_out: as in LoadedSweep. costs: None if no configuration learns them.
    peak_resident: the most bytes of memory that the process had in use. interrupted: whether it was
    stopped before all was measured. users: the figures of several users at once, if these were
    measured; then there are no rows. served: those of servers with several users, likewise. tool:
    those beside llama.cpp's tool, likewise. bounds: what is left to gain, where `auto` took part.
    busy_cores: how many cores other programs used meanwhile, on average; None if that is not known.
    """

    machine: Machine
    conditions: Conditions
    target: MeasuredModel
    draft_models: list[MeasuredModel]
    drafters: dict[str, list[str]]
    left_out: list[str]
    rows: list[Summary]
    costs: PassSummary | None
    peak_resident: int
    interrupted: bool
    users: list[UsersSummary] = field(default_factory=list)
    served: list[ServedSummary] = field(default_factory=list)
    tool: BesideTool | None = None
    bounds: list[Bound] = field(default_factory=list)
    busy_cores: float | None = None

    @property
    def same_text(self) -> bool | None:
        """Whether all texts are what they must be; None if none could be compared.

        Those of rows are compared with plain decoding, those of several users with the texts alone.
        """
        rows: list[Summary | UsersSummary] = [*self.rows, *self.users]
        compared = sum(row.compared for row in rows)
        return all(row.same == row.compared for row in rows) if compared else None

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON, as cli/bench.schema.json describes it."""
        record = asdict(self) | {"bounds": [each.as_dict() for each in self.bounds]}
        for model in (record["target"], *record["draft_models"]):
            model["file"] = str(model["file"])
        for row in record["rows"]:
            row["contender"] = row.pop("configuration")
            row["widths"] = _with_text_keys(row["widths"])
        for row in (*record["users"], *record["served"]):
            row["contender"] = row.pop("configuration")
        if record["costs"]:
            record["costs"]["used"] = _with_text_keys(record["costs"]["used"])
        return {**record, "same_text": self.same_text}


def build_report(
    sweep: LoadedSweep,
    tasks: Sequence[Task],
    runs: Sequence[Run],
    conditions: Conditions,
    *,
    interrupted: bool,
    users: Sequence[UsersRun] = (),
    bounds: Sequence[Bound] = (),
    busy_cores: float | None = None,
) -> BenchmarkReport:
    """Summarise the runs; the engines must still be loaded."""
    loaded = sweep.configurations
    return BenchmarkReport(
        machine=this_machine(),
        conditions=conditions,
        target=_measured_model(sweep.plain.model, sweep.plain.context, conditions.kv_type),
        draft_models=_draft_models(loaded),
        drafters={each.name: each.engine.drafter_set.names for each in loaded},
        left_out=sweep.left_out,
        rows=summarise(runs, tasks, same_text=rule_named(conditions.rule).same_text),
        costs=_pass_summary(loaded, runs),
        peak_resident=peak_resident(),
        interrupted=interrupted,
        users=summarise_users(users),
        bounds=list(bounds),
        busy_cores=busy_cores,
    )


def _measured_model(model: Model, context: int, kv_type: str) -> MeasuredModel:
    cache = cache_bytes(read_header(model.path), context, kv_type)
    return MeasuredModel(model.path, Footprint(model.size, cache))


def drafter_footprint(file: Path) -> MeasuredModel:
    """A drafter that is loaded elsewhere; what its cache takes is not known."""
    return MeasuredModel(file, Footprint(facts_of(file).size, None))


def _draft_models(loaded: Sequence[LoadedConfiguration]) -> list[MeasuredModel]:
    members = [member for each in loaded for member in each.engine.drafter_set.members]
    caches = {
        each.sequence.model.path: (each.sequence, each.kv_type) for each in members if each.sequence
    }
    return [_measured_model(cache.model, cache.n_ctx, kind) for cache, kind in caches.values()]


def _pass_summary(loaded: Sequence[LoadedConfiguration], runs: Sequence[Run]) -> PassSummary | None:
    """Those of the last configuration that learns them, which is `auto` where it takes part."""
    for each in reversed(loaded):
        costs = each.engine.pass_costs
        if costs and each.configuration.depth is None:
            seconds = [costs.seconds(width) for width in range(1, WIDEST + 1)]
            own = [run.stats for run in runs if run.configuration == each.name]
            return PassSummary(seconds, passes_by_width(own), each.name)
    return None


def _with_text_keys(counts: dict[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in counts.items()}
