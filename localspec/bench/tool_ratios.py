"""Tool ratios: the speed of ours over that of llama.cpp's tool, and whether it is known by now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from localspec.bench.geometric_mean import mean_or_none
from localspec.bench.grouped import grouped
from localspec.forecast.confidence import ConfidenceInterval

# How far from the mean the ends of its interval may be, and the rounds that are always done: in
# the second one the contenders come in reverse order.
PRECISION = 0.05
LEAST_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A measured answer. contender: our configuration or the tool's drafts, by name.

    task: index of the prompt. round: from 0. seconds: of the whole answer, its prompt included.
    writing: seconds of that without the prompt, and what a drafter of the tool does with it; ours
    includes the latter. passed: the tokens that needed a pass meanwhile: one less than all in ours,
    where the prompt's last pass gives the first. drafted, accepted: as the contender counts them.
    """

    contender: str
    is_ours: bool
    task: int
    round: int
    tokens: int
    seconds: float
    writing: float
    passed: int
    drafted: int
    accepted: int

    @property
    def tokens_per_second(self) -> float:
        """The speed of the whole answer."""
        return self.tokens / self.seconds

    @property
    def writing_speed(self) -> float:
        """Tokens per second of the written part; an answer of one token has next to none."""
        return self.passed / self.writing if self.writing else 0.0


def _whole(run: ToolRun) -> float:
    return run.tokens_per_second


def speeds_of(runs: Sequence[ToolRun]) -> dict[str, list[float]]:
    """Tokens per second of each contender, run by run."""
    by_name = grouped(runs, lambda run: run.contender)
    return {name: [run.tokens_per_second for run in own] for name, own in by_name.items()}


def clearly_behind(runs: Sequence[ToolRun]) -> set[str]:
    """The drafts that were slower on a prompt, each time, than the fastest ones ever were there.

    runs: all of that prompt. Nothing is said of drafts that ran once.
    """
    speeds = speeds_of([run for run in runs if not run.is_ours])
    often = {name: own for name, own in speeds.items() if len(own) >= LEAST_ROUNDS}
    if not often:
        return set()
    least = min(max(often.values(), key=median))
    return {name for name, own in often.items() if max(own) < least}


def ratios_to(
    runs: Sequence[ToolRun], ours: str, speed: Callable[[ToolRun], float] = _whole
) -> dict[str, list[float]]:
    """For each of the tool's drafts, the speed of ours over theirs on one prompt.

    Ratios are those of runs in the same round: what slows the machine for a while slows both.
    """
    own = {run.round: speed(run) for run in runs if run.contender == ours}
    pairs = [run for run in runs if not run.is_ours and run.round in own and speed(run)]
    by_name = grouped(pairs, lambda run: run.contender)
    return {
        name: [own[run.round] / speed(run) for run in theirs] for name, theirs in by_name.items()
    }


def best_drafts(ratios: dict[str, list[float]]) -> str:
    """The drafts that came out best beside ours. ratios: of `ratios_to`, at least one."""
    return min(ratios, key=lambda name: median(ratios[name]))


def best_ratio(runs: Sequence[ToolRun], ours: str) -> ConfidenceInterval | None:
    """The speed of ours over that of the tool at its best on each prompt; None without any.

    Which drafts are the best is known afterwards only: that favours the tool.
    """
    by_task = grouped(runs, lambda run: run.task).values()
    found = [ratios for own in by_task if (ratios := ratios_to(own, ours))]
    return mean_or_none([ratios[best_drafts(ratios)] for ratios in found])


def deviation(ratio: ConfidenceInterval) -> float | None:
    """How far from the mean its interval reaches, as a share of it; None without an interval."""
    if ratio.low is None or ratio.high is None:
        return None
    return max(ratio.high - ratio.value, ratio.value - ratio.low) / ratio.value


def is_known(ratio: ConfidenceInterval | None) -> bool:
    """Whether the interval of a ratio is within PRECISION of it."""
    reach = deviation(ratio) if ratio else None
    return reach is not None and reach <= PRECISION
