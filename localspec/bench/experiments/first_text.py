"""The first text in simulated time: what it loses to later ones, and to plain decoding.

    python -m localspec.bench.experiments.first_text [--tokens 96] [--costs NAME ...]

The policy is the real one; what a decode takes is read from a table, as in `simulated_users`. Each
text is written many times with other draws, the same ones in each way. New: the first text of a
pair of which nothing is known but the usual acceptance rate. Warm: the fifth text of a run. Cold:
the first text of a run, with what another one kept after four texts. Misled: with what was kept of
a drafter that was useless where this one is good, or good where this one is useless. Costs said:
what the cost profile says of the time that further rows take, over the true one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import COSTS, User
from localspec.bench.experiments.simulated_users import SimulatedUsers, UserWriter, auto
from localspec.control.acceptance import NO_PRIOR, AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_profile import CostProfile

# Acceptance rates of the drafts, from useless to good.
RATES = (0.0, 0.05, 0.3, 0.5, 0.7, 0.9)
# What a kept cost profile says of the part of a pass that grows with its rows, over what is true.
ERRORS = (1.0, 0.3, 3.0)
# Texts before the warm one.
_BEFORE = 4


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens per second as ratios to plain decoding, as the module says."""

    new: float
    cold: float
    warm: float
    misled: float


def believed(costs: Mapping[int, float], error: float) -> dict[int, float]:
    """A wrong profile: what a pass takes beyond one row is `error` times what it is."""
    return {rows: 1 + (seconds - 1) * error for rows, seconds in costs.items()}


def speeds(
    costs: Mapping[int, float], rate: float, tokens: int, *, texts: int, error: float = 1.0
) -> Speeds:
    """The mean speed over many texts of so many tokens. error: as in `believed`."""
    other = 0.9 if rate < 0.5 else 0.05
    of_pair = partial(_Run, costs, tokens=tokens, error=error)
    seconds = [0.0] * 4
    for number in range(texts):
        seeds = range(number * _BEFORE, (number + 1) * _BEFORE)
        text = -1 - number
        runs = [
            of_pair(rate),
            of_pair(rate, kept=of_pair(rate).after(*seeds)),
            of_pair(rate).after(*seeds),
            of_pair(rate, kept=of_pair(other).after(*seeds)),
        ]
        each = [run.text(text) for run in runs]
        seconds = [sum(pair) for pair in zip(seconds, each, strict=True)]
    return Speeds(*(tokens * texts / each for each in seconds))


class _Run:
    """A run of a pair, which writes texts one after the other.

    costs, rate: the true ones. error: as in `believed`. kept: an earlier run, of which is known
    what the program keeps.
    """

    def __init__(
        self,
        costs: Mapping[int, float],
        rate: float,
        *,
        tokens: int,
        error: float,
        kept: "_Run | None" = None,
    ) -> None:
        self._tokens = tokens
        prior, profile = NO_PRIOR, CostProfile(believed(costs, error))
        if kept:
            prior, profile = kept.prior, profile.after(kept.writer.costs.passes)
        make = partial(auto, prior=prior)
        self._users = SimulatedUsers(costs, [User(rate)], make, believed=profile.expected)
        self.writer: UserWriter = self._users.writers[0]

    def text(self, seed: int) -> float:
        """Write a text; return its seconds. seed: of what is right in it."""
        writer = self.writer
        if writer.tokens:
            writer.policy.begin()
        writer.drafter.draw_text(Random(seed), self._tokens)
        began, end = self._users.seconds, writer.tokens + self._tokens
        while writer.tokens < end:
            writer.left = end - writer.tokens
            self._users.step()
        return self._users.seconds - began

    def after(self, *seeds: int) -> "_Run":
        """Write these texts first."""
        for seed in seeds:
            self.text(seed)
        return self

    @property
    def prior(self) -> AcceptancePrior:
        """What is kept of the drafts."""
        assert isinstance(self.writer.policy, AdaptivePolicy)
        [candidate] = self.writer.policy.candidates
        name, counts = candidate.drafter.name, candidate.counts
        return AcceptancePrior({name: counts.total.share}, {name: counts})


def main() -> None:
    """Print a row for each table of costs, acceptance rate and error of the costs."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=list(COSTS), metavar="NAME")
    options = parser.parse_args()
    table = Table(
        ("costs", "<7"),
        ("drafts right", "12.2f"),
        ("costs said", "10.1f"),
        ("new", "6.2f"),
        ("cold", "6.2f"),
        ("warm", "6.2f"),
        ("cold / warm", "11.2f"),
        ("misled", "6.2f"),
    )
    for name in options.costs:
        for rate in RATES:
            for error in ERRORS:
                found = speeds(COSTS[name], rate, options.tokens, texts=options.texts, error=error)
                ratio = found.cold / found.warm
                each = (found.new, found.cold, found.warm, ratio, found.misled)
                table.print_row(name, rate, error, *each)


if __name__ == "__main__":
    main()
