"""Summary: what the runs of each contender on each prompt set come to."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.bench.configurations import PLAIN
from localspec.bench.median import Median
from localspec.bench.prompt_sets import Task
from localspec.bench.runner import Run
from localspec.stats import Stats

ALL = "all"


@dataclass(frozen=True, slots=True)
class Row:
    """One contender on one prompt set, or on all of them.

    ratio: of its speed to that of plain decoding, in the same round on the same prompt.
    seconds: of generation, by who took them: draft, verify and host.
    accepted_lengths: entry i: in how many steps i drafted tokens were accepted.
    widths: how many passes there were of so many rows.
    compared, same: texts set beside those of plain decoding, and those that were equal.
    """

    set: str
    contender: str
    runs: int
    tokens: int
    steps: int
    tokens_per_second: Median
    ratio: Median | None
    acceptance_rate: float | None
    tokens_per_step: float
    seconds: dict[str, float]
    accepted_lengths: list[int]
    widths: dict[int, int]
    compared: int
    same: int

    def share(self, phase: str) -> float:
        """Of the seconds, what this phase took."""
        return self.seconds[phase] / sum(self.seconds.values())


def summarised(runs: Sequence[Run], tasks: Sequence[Task]) -> list[Row]:
    """A row for each set and contender, in the order they came; with several sets, all of them."""
    plain = {(run.task, run.round): run for run in runs if run.contender == PLAIN}
    sets = list(dict.fromkeys(tasks[run.task].set for run in runs))
    names = list(dict.fromkeys(run.contender for run in runs))
    rows = []
    for set_ in [*sets, ALL] if len(sets) > 1 else sets:
        of_set = [run for run in runs if set_ in (ALL, tasks[run.task].set)]
        for name in names:
            if own := [run for run in of_set if run.contender == name]:
                rows.append(_row(set_, name, own, plain))
    return rows


def _row(set_: str, name: str, runs: list[Run], plain: dict[tuple[int, int], Run]) -> Row:
    speeds: dict[int, list[float]] = {run.task: [] for run in runs}
    ratios: dict[int, list[float]] = {run.task: [] for run in runs}
    compared = same = 0
    for run in runs:
        speeds[run.task].append(speed(run))
        partner = plain.get((run.task, run.round))
        if partner:
            ratios[run.task].append(speed(run) / speed(partner))
            compared += 1
            same += run.token_ids == partner.token_ids
    all_stats = [run.stats for run in runs]
    drafted, accepted = (_sum(all_stats, what) for what in ("drafted", "accepted"))
    tokens, steps = _sum(all_stats, "generated_tokens"), _sum(all_stats, "steps")
    return Row(
        set=set_,
        contender=name,
        runs=len(runs),
        tokens=tokens,
        steps=steps,
        tokens_per_second=Median.of(list(speeds.values())),
        ratio=Median.of(list(ratios.values())) if compared else None,
        acceptance_rate=accepted / drafted if drafted else None,
        tokens_per_step=tokens / steps,
        seconds={
            phase: sum(getattr(stats.seconds, phase) for stats in all_stats)
            for phase in ("draft", "verify", "host")
        },
        accepted_lengths=accepted_lengths(all_stats),
        widths=counted(stats.widths for stats in all_stats),
        compared=compared,
        same=same,
    )


def speed(run: Run) -> float:
    """Tokens per second."""
    return run.stats.generated_tokens / run.stats.seconds.generate


def counted(widths: Iterable[Sequence[int]]) -> dict[int, int]:
    """How many passes there were of so many rows."""
    return dict(sorted(Counter(width for each in widths for width in each).items()))


def accepted_lengths(all_stats: Sequence[Stats]) -> list[int]:
    """Entry i: in how many steps i drafted tokens became text, 0 without a draft too."""
    deepest = max(len(stats.accepted_per_position) for stats in all_stats)
    # How many steps accepted at least 0, 1, 2, ... tokens.
    at_least = [_sum(all_stats, "steps"), *[0] * (deepest + 1)]
    for stats in all_stats:
        for position, count in enumerate(stats.accepted_per_position, start=1):
            at_least[position] += count
    return [at_least[i] - at_least[i + 1] for i in range(deepest + 1)]


def _sum(all_stats: Sequence[Stats], what: str) -> int:
    return sum(getattr(stats, what) for stats in all_stats)
