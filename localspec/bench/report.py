"""Report: everything a benchmark found out, for tables, pages and programs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.bench.configurations import Field, Lane
from localspec.bench.footprint import Footprint, footprint, peak_resident
from localspec.bench.machine import Machine, this_machine
from localspec.bench.prompt_sets import Task
from localspec.bench.runner import Run
from localspec.bench.summary import Row, counted, summarised
from localspec.control.cost_model import WIDEST
from localspec.llama.model import Model


@dataclass(frozen=True, slots=True)
class Conditions:
    """What was the same for all. threads: the target's. prompts: how many of each set."""

    tokens: int
    rounds: int
    seed: int
    rule: str
    temperature: float
    context: int
    threads: int
    gpu_layers: int | None
    reproducible: bool
    prompts: dict[str, int]


@dataclass(frozen=True, slots=True)
class ModelUsed:
    """A model and its memory. file: its path."""

    file: Path
    memory: Footprint


@dataclass(frozen=True, slots=True)
class Costs:
    """What the target's passes took, as learnt.

    seconds: of passes of 1, 2, ... rows, padded where that is quicker. used: how many passes of so
    many rows the contender `by` made.
    """

    seconds: list[float]
    used: dict[int, int]
    by: str


@dataclass(frozen=True, slots=True)
class Report:
    """A benchmark. draft_models: those that draft. drafters: all that draft, by contender.

    left_out: who could not take part and why. costs: None where nothing that learns took part.
    peak_resident: the most memory the process had in use, in bytes. interrupted: it was stopped
    before it had measured all.
    """

    machine: Machine
    conditions: Conditions
    target: ModelUsed
    draft_models: list[ModelUsed]
    drafters: dict[str, list[str]]
    left_out: list[str]
    rows: list[Row]
    costs: Costs | None
    peak_resident: int
    interrupted: bool

    @property
    def same_text(self) -> bool | None:
        """Whether all texts are those of plain decoding; None if none could be compared."""
        compared = sum(row.compared for row in self.rows)
        return all(row.same == row.compared for row in self.rows) if compared else None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; cli/bench.schema.json describes it."""
        record = asdict(self)
        for model in (record["target"], *record["draft_models"]):
            model["file"] = str(model["file"])
        for row in record["rows"]:
            row["widths"] = _with_text_keys(row["widths"])
        if record["costs"]:
            record["costs"]["used"] = _with_text_keys(record["costs"]["used"])
        return {**record, "same_text": self.same_text}


def report(
    field: Field,
    tasks: Sequence[Task],
    runs: Sequence[Run],
    conditions: Conditions,
    *,
    interrupted: bool,
) -> Report:
    """What these runs come to."""
    return Report(
        machine=this_machine(),
        conditions=conditions,
        target=_used(field.plain.model, field.plain.context),
        draft_models=_draft_models(field.lanes),
        drafters={lane.name: lane.engine.drafting.names for lane in field.lanes},
        left_out=field.left_out,
        rows=summarised(runs, tasks),
        costs=_costs(field.lanes, runs),
        peak_resident=peak_resident(),
        interrupted=interrupted,
    )


def _used(model: Model, context: int) -> ModelUsed:
    return ModelUsed(model.path, footprint(model.path, model.size, context))


def _draft_models(lanes: Sequence[Lane]) -> list[ModelUsed]:
    contexts = [lane.engine.drafting.context for lane in lanes]
    caches = {context.model.path: context for context in contexts if context}
    return [_used(context.model, context.n_ctx) for context in caches.values()]


def _costs(lanes: Sequence[Lane], runs: Sequence[Run]) -> Costs | None:
    """Of the last one that learns them: `auto`, where it takes part."""
    for lane in reversed(lanes):
        widths = lane.engine.widths
        if widths and lane.contender.depth is None:
            own = [run.stats.widths for run in runs if run.contender == lane.name]
            return Costs(
                [widths.seconds(width) for width in range(1, WIDEST + 1)],
                counted(own),
                lane.name,
            )
    return None


def _with_text_keys(counts: dict[int, int]) -> dict[str, int]:
    return {str(key): value for key, value in counts.items()}
