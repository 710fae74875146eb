"""Tool summary: ours beside llama.cpp's tool, prompt by prompt and for each kind of its drafts."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from localspec.bench.configurations import PLAIN
from localspec.bench.geometric_mean import mean_of, mean_or_none
from localspec.bench.grouped import grouped
from localspec.bench.peer_program import PeerProgram
from localspec.bench.prompt_sets import Task
from localspec.bench.tool import TOOL
from localspec.bench.tool_ratios import (
    ToolRun,
    best_drafts,
    best_ratio,
    clearly_behind,
    ratios_to,
    speeds_of,
)
from localspec.forecast.confidence import ConfidenceInterval


@dataclass(frozen=True, slots=True)
class PromptBesideTool:
    """One prompt. plain, ours, tool: medians of tokens per second over rounds.

    best: the tool's drafts that came out best. ratio: ours over these, with an interval over
    rounds. writing: the same of the written part alone, with what a drafter of ours does with the
    prompt, and without what one of the tool does; None for answers of one token.
    """

    set: str
    number: int
    plain: float | None
    ours: float
    tool: float
    best: str
    ratio: ConfidenceInterval
    writing: ConfidenceInterval | None


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """The tool with one kind of drafts, at one depth, on all prompts.

    speed: tokens per second. ours: the speed of ours over it. runs: how often it ran. best_on: on
    how many prompts it came out best. behind_on: on how many it was clearly behind, and not
    repeated after that.
    """

    drafts: str
    runs: int
    speed: ConfidenceInterval
    ours: ConfidenceInterval
    best_on: int
    behind_on: int
    acceptance_rate: float | None


@dataclass(frozen=True, slots=True)
class BesideTool:
    """Ours and the tool on the same prompts, by turns.

    program, version: the tool's. same_sources: whether it was compiled from the sources of our
    library; None if that is not known. ours: the configuration that is held against it. rounds: how
    many were done. best_each: the speed of ours over that of the tool with the best drafts of each
    prompt. best_one: the same for the kind of drafts that is best for all prompts, which is
    `best_one_drafts`. writing: that of the written part alone, as in PromptBesideTool.
    """

    program: str
    version: str
    same_sources: bool | None
    ours: str
    rounds: int
    prompts: list[PromptBesideTool]
    drafts: list[ToolSummary]
    best_each: ConfidenceInterval
    best_one: ConfidenceInterval
    best_one_drafts: str
    writing: ConfidenceInterval | None

    @property
    def lost(self) -> list[PromptBesideTool]:
        """The prompts on which ours is slower, and the interval leaves no doubt."""
        return [each for each in self.prompts if each.ratio.high and each.ratio.high < 1]


def summarise_beside_tool(
    runs: Sequence[ToolRun], tasks: Sequence[Task], program: PeerProgram, ours: str
) -> BesideTool | None:
    """The figures of runs; None where nothing can be compared yet."""
    by_task = grouped(runs, lambda run: run.task)
    ratios = {task: ratios_to(own, ours) for task, own in by_task.items()}
    ratios = {task: own for task, own in ratios.items() if own}
    each = best_ratio(runs, ours)
    if each is None:
        return None
    behind = {task: clearly_behind(by_task[task]) for task in ratios}
    names = dict.fromkeys(name for own in ratios.values() for name in own)
    drafts = [_drafts(name, runs, ratios, behind) for name in names]
    # Drafts that failed on a prompt are not the best for all.
    whole = [one for one in drafts if all(one.drafts in own for own in ratios.values())] or drafts
    best = min(whole, key=lambda one: one.ours.value)
    prompts = [_prompt(tasks[task], by_task[task], own, ours) for task, own in ratios.items()]
    return BesideTool(
        program=TOOL,
        version=program.version,
        same_sources=program.same_sources,
        ours=ours,
        rounds=1 + max(run.round for run in runs),
        prompts=prompts,
        drafts=drafts,
        best_each=each,
        best_one=best.ours,
        best_one_drafts=best.drafts,
        writing=_of_prompts([prompt.writing for prompt in prompts]),
    )


def _of_prompts(ratios: Sequence[ConfidenceInterval | None]) -> ConfidenceInterval | None:
    """The mean of the ratios of prompts, with an interval over prompts."""
    return mean_or_none([[each.value] for each in ratios if each])


def _prompt(
    task: Task, runs: Sequence[ToolRun], ratios: dict[str, list[float]], ours: str
) -> PromptBesideTool:
    speeds, best = speeds_of(runs), best_drafts(ratios)
    writing = ratios_to(runs, ours, lambda run: run.writing_speed).get(best, [])
    return PromptBesideTool(
        set=task.set,
        number=task.number,
        plain=median(speeds[PLAIN]) if PLAIN in speeds else None,
        ours=median(speeds[ours]),
        tool=median(speeds[best]),
        best=best,
        ratio=mean_of([ratios[best]]),
        writing=mean_or_none([writing]),
    )


def _drafts(
    name: str,
    runs: Sequence[ToolRun],
    ratios: dict[int, dict[str, list[float]]],
    behind: dict[int, set[str]],
) -> ToolSummary:
    own = [run for run in runs if run.contender == name]
    by_task = grouped(own, lambda run: run.task).values()
    drafted = sum(run.drafted for run in own)
    return ToolSummary(
        drafts=name,
        runs=len(own),
        speed=mean_of([[run.tokens_per_second for run in each] for each in by_task]),
        ours=mean_of([each[name] for each in ratios.values() if name in each]),
        best_on=sum(best_drafts(each) == name for each in ratios.values()),
        behind_on=sum(name in each for each in behind.values()),
        acceptance_rate=sum(run.accepted for run in own) / drafted if drafted else None,
    )
