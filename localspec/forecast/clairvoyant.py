"""Clairvoyant: the least time in which any choice of drafters and depths could write an answer.

Who knows which tokens of each draft are right drafts these alone. Let r_d(s) be how many tokens of
drafter d's draft at token s of an answer of n tokens are right, C(w) the seconds of the fastest
pass of at least w rows, h those of the host per token, and D_d(k) those of a draft of k tokens.
From token s to the end the clairvoyant takes

    T(n) = 0
    T(s) = min over d and 0 <= k <= r_d(s) of  C(k + 1) + (k + 1) h + D_d(k) + T(s + k + 1)

and a drafter that has the prompt to read reads it if it drafts at all. This is a bound: what a
drafter must read of tokens that it did not draft, and new graphs for other widths, cost nothing.

A step of another policy at token s that commits c tokens in t seconds loses t + T(s + c) - T(s);
over an answer this adds up to all that the policy takes longer. It is negative only where a drafter
is right whose reading of the prompt the clairvoyant has saved: what that gains is part of what the
reading costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from localspec.control.base_costs import WIDEST
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.forecast.simulated_run import SimulatedStep
from localspec.forecast.timing import StepCosts

_Floats = NDArray[np.float64]
# The reasons of a loss, as people read them.
WRONG = "wrong drafts"
MISSED = "no draft where one was right"
SHORT = "drafts too short"
OTHER = "another drafter was better"
READING = "drafters reading"
SWITCHING = "passes of changing width"
DECIDING = "deciding"
UNEXPECTED = "other costs than learnt"


@dataclass(frozen=True, slots=True)
class KnownDrafts:
    """A drafter, and how far its drafts are right.

    cheap: as in Traits. right: (n,) how many tokens of its draft at each token of the answer are
    right, from the first on. reading: seconds to read the prompt.
    """

    cost: DrafterCost
    cheap: bool
    right: NDArray[np.int_]
    reading: float = 0.0

    def seconds(self, depth: int) -> float:
        """Seconds of a draft of `depth` tokens."""
        if not depth:
            return 0.0
        return self.cost.first if self.cheap else self.cost.of(depth)


def right_runs(right: Sequence[bool] | NDArray[np.bool_]) -> NDArray[np.int_]:
    """For each token, how many from it on are right in a row; (n,)."""
    found = np.zeros(len(right), np.int_)
    run = 0
    for place in reversed(range(len(right))):
        run = run + 1 if right[place] else 0
        found[place] = run
    return found


@dataclass(slots=True)
class Losses:
    """What a policy takes longer than the clairvoyant, in seconds by reason.

    least: the clairvoyant's seconds. seconds: the policy's own.
    """

    least: float = 0.0
    seconds: float = 0.0
    by_reason: dict[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The policy's speed, as a share of the clairvoyant's."""
        return self.least / self.seconds

    def add_all(self, other: "Losses") -> None:
        """Add those of another answer."""
        self.least += other.least
        self.seconds += other.seconds
        for reason, seconds in other.by_reason.items():
            self.add(reason, seconds)

    def add(self, reason: str, seconds: float) -> None:
        """Count a loss."""
        if seconds:
            self.by_reason[reason] = self.by_reason.get(reason, 0.0) + seconds


class Clairvoyant:
    """The least time to write one answer.

    count: its tokens. limit: the most it could have had. drafters: by name.
    """

    def __init__(
        self, count: int, limit: int, costs: StepCosts, drafters: Mapping[str, KnownDrafts]
    ) -> None:
        self._count, self._limit = count, limit
        self._passes = PassCosts(costs.passes)
        self._host = costs.host
        self._drafters = dict(drafters)
        reading = [name for name, each in drafters.items() if each.reading]
        plans = [
            self._plan({*names, *(drafters.keys() - {*reading})})
            for size in range(len(reading) + 1)
            for names in combinations(reading, size)
        ]
        # The least seconds from each token to the end, and the best drafter and depth there.
        self._seconds, self._choices, read = min(plans, key=lambda plan: plan[0][0] + plan[2])
        self.seconds = float(self._seconds[0]) + read

    def losses(self, steps: Sequence[SimulatedStep]) -> Losses:
        """Compare the steps of a policy over the answer."""
        found = Losses(self.seconds)
        # The prompt that the clairvoyant's drafters read counts as read by the policy's.
        found.add(READING, float(self._seconds[0]) - self.seconds)
        place = 0
        for step in steps:
            self._add(found, place, step)
            place += step.tokens
        return found

    def _plan(self, names: set[str]) -> tuple[_Floats, list[tuple[str | None, int]], float]:
        """The seconds and choices by token with some drafters, and the seconds of their reading."""
        seconds = np.zeros(self._count + 1)
        choices: list[tuple[str | None, int]] = [(None, 0)] * self._count
        used = [self._drafters[name] for name in sorted(names)]
        for place in reversed(range(self._count)):
            best = self._step_seconds(None, 0, 1) + seconds[place + 1]
            most = min(WIDEST - 1, self._limit - place - 1)
            for name, drafter in zip(sorted(names), used, strict=True):
                for depth in range(1, min(int(drafter.right[place]), most) + 1):
                    after = min(place + depth + 1, self._count)
                    own = self._step_seconds(name, depth, after - place)
                    if own + seconds[after] < best:
                        best = own + seconds[after]
                        choices[place] = name, depth
            seconds[place] = best
        return seconds, choices, sum(each.reading for each in used)

    def _step_seconds(self, name: str | None, depth: int, tokens: int) -> float:
        """Seconds of a step whose draft is right: its pass, its tokens, its draft."""
        draft = self._drafters[name].seconds(depth) if name else 0.0
        return self._passes.seconds(depth + 1) + tokens * self._host + draft

    def _add(self, found: Losses, place: int, step: SimulatedStep) -> None:
        best, depth = self._choices[place]
        right = self._step_seconds(
            step.drafter if step.accepted else None, step.accepted, step.tokens
        )
        found.seconds += step.seconds + step.deciding + step.unexpected
        found.add(DECIDING, step.deciding)
        found.add(UNEXPECTED, step.unexpected)
        found.add(SWITCHING, step.switching)
        found.add(READING, step.reading)
        found.add(WRONG, step.seconds - step.switching - step.reading - right)
        more = float(right + self._seconds[place + step.tokens] - self._seconds[place])
        reason = MISSED
        if step.accepted:
            too_short = step.drafter == best and step.accepted < depth
            reason = SHORT if too_short else OTHER if more > 0 else READING
        found.add(reason, more)
