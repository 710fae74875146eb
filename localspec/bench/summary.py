"""Summary: the figures of one configuration on one prompt set."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from localspec.bench.configurations import PLAIN
from localspec.bench.geometric_mean import mean_of, mean_or_none
from localspec.bench.prompt_sets import Task
from localspec.bench.runner import Run
from localspec.forecast.confidence import ConfidenceInterval
from localspec.stats import Stats

ALL = "all"


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one configuration on one prompt set, or on all of them (`all`).

    ratio: its speed over that of plain decoding on the same prompt in the same round.
    speeds, ratios: the figures behind `tokens_per_second` and `ratio`: of each prompt, by round.
    seconds: of generation, by phase: draft, verify and host.
    prompt_tokens_per_second: at which the target read the prompts. first_token: seconds until the
    first token, on average.
    accepted_lengths: entry i is the number of steps that accepted i drafted tokens.
    widths: the number of passes, by their rows.
    compared, same: how many texts were compared with those of plain decoding, and were equal; none
    of plain decoding itself, and none under a rule that does not keep the text.
    """

    set: str
    configuration: str
    runs: int
    tokens: int
    steps: int
    tokens_per_second: ConfidenceInterval
    ratio: ConfidenceInterval | None
    acceptance_rate: float | None
    tokens_per_step: float
    seconds: dict[str, float]
    accepted_lengths: list[int]
    widths: dict[int, int]
    compared: int
    same: int
    speeds: list[list[float]]
    ratios: list[list[float]]
    prompt_tokens_per_second: float | None
    first_token: float | None

    def share(self, phase: str) -> float:
        """The share of the seconds that this phase took."""
        return self.seconds[phase] / sum(self.seconds.values())


def summarise(
    runs: Sequence[Run], tasks: Sequence[Task], *, same_text: bool = True
) -> list[Summary]:
    """A summary for each set and configuration, in the order of the runs.

    With several sets, also for each configuration on all of them. same_text: as in Rule.
    """
    plain = {(run.task, run.round): run for run in runs if run.configuration == PLAIN}
    sets = list(dict.fromkeys(tasks[run.task].set for run in runs))
    names = list(dict.fromkeys(run.configuration for run in runs))
    summaries = []
    for set_ in [*sets, ALL] if len(sets) > 1 else sets:
        of_set = [run for run in runs if set_ in (ALL, tasks[run.task].set)]
        for name in names:
            if own := [run for run in of_set if run.configuration == name]:
                summaries.append(_summary(set_, name, own, plain, same_text=same_text))
    return summaries


def _summary(
    set_: str,
    name: str,
    runs: list[Run],
    plain: dict[tuple[int, int], Run],
    *,
    same_text: bool,
) -> Summary:
    speeds: dict[int, list[float]] = {run.task: [] for run in runs}
    ratios: dict[int, list[float]] = {run.task: [] for run in runs}
    compared = same = 0
    for run in runs:
        speeds[run.task].append(run.tokens_per_second)
        partner = plain.get((run.task, run.round))
        if partner:
            ratios[run.task].append(run.tokens_per_second / partner.tokens_per_second)
            if same_text and name != PLAIN:
                compared += 1
                same += run.token_ids == partner.token_ids
    all_stats = [run.stats for run in runs]
    drafted, accepted = _sum(all_stats, "drafted"), _sum(all_stats, "accepted")
    tokens, steps = _sum(all_stats, "generated_tokens"), _sum(all_stats, "steps")
    return Summary(
        set=set_,
        configuration=name,
        runs=len(runs),
        tokens=tokens,
        steps=steps,
        tokens_per_second=mean_of(list(speeds.values())),
        ratio=mean_or_none(list(ratios.values())),
        acceptance_rate=accepted / drafted if drafted else None,
        tokens_per_step=tokens / steps,
        seconds={
            phase: sum(getattr(stats.seconds, phase) for stats in all_stats)
            for phase in ("draft", "verify", "host")
        },
        accepted_lengths=accepted_lengths(all_stats),
        widths=passes_by_width(all_stats),
        compared=compared,
        same=same,
        speeds=list(speeds.values()),
        ratios=list(ratios.values()) if any(ratios.values()) else [],
        prompt_tokens_per_second=_prompt_speed(all_stats),
        first_token=_first_token(all_stats),
    )


def _prompt_speed(all_stats: Sequence[Stats]) -> float | None:
    read = _sum(all_stats, "prompt_evaluated")
    took = sum(stats.seconds.prompt for stats in all_stats)
    return read / took if read and took else None


def _first_token(all_stats: Sequence[Stats]) -> float | None:
    found = [stats.seconds.first_token for stats in all_stats]
    known = [seconds for seconds in found if seconds is not None]
    return fmean(known) if known else None


def passes_by_width(all_stats: Sequence[Stats]) -> dict[int, int]:
    """The number of passes, by their rows, in ascending order."""
    return dict(sorted(Counter(width for stats in all_stats for width in stats.widths).items()))


def accepted_lengths(all_stats: Sequence[Stats]) -> list[int]:
    """Entry i: the number of steps that accepted i drafted tokens; 0 in steps without a draft."""
    deepest = max(len(stats.accepted_per_position) for stats in all_stats)
    # How many steps accepted at least 0, 1, 2, ... tokens.
    at_least = [_sum(all_stats, "steps"), *[0] * (deepest + 1)]
    for stats in all_stats:
        for position, count in enumerate(stats.accepted_per_position, start=1):
            at_least[position] += count
    return [at_least[i] - at_least[i + 1] for i in range(deepest + 1)]


def _sum(all_stats: Sequence[Stats], count: str) -> int:
    return sum(getattr(stats, count) for stats in all_stats)
