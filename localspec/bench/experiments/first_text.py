"""The first text in simulated time: what it loses to later ones, and to plain decoding.

    python -m localspec.bench.experiments.first_text [--tokens 96] [--costs NAME ...]

The policy is the real one; what a decode takes is read from a table, as in `simulated_users`. Each
text is written by a user of its own, many times with other draws. New: the first text of a pair of
which nothing is known but the usual acceptance rate. Cold: the first text of a run, with the rate
that an earlier run kept. Warm: after four other texts of the same run. Costs said: what the kept
cost profile says of the time that further rows take, over the true one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import COSTS, SimulatedDrafter, User
from localspec.bench.experiments.simulated_users import SimulatedUsers
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.row_budget import RowShare
from localspec.speculation.policy import Policy

# Acceptance rates of the drafts, from useless to good.
RATES = (0.0, 0.05, 0.3, 0.5, 0.7, 0.9)
# What a kept cost profile says of the part of a pass that grows with its rows, over what is true.
ERRORS = (1.0, 0.3, 3.0)
_WARM_TEXTS = 4


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens per second as ratios to plain decoding, as the module says."""

    new: float
    cold: float
    warm: float


def believed(costs: Mapping[int, float], error: float) -> dict[int, float]:
    """A wrong profile: what a pass takes beyond one row is `error` times what it is."""
    return {rows: 1 + (seconds - 1) * error for rows, seconds in costs.items()}


def speeds(
    costs: Mapping[int, float], rate: float, tokens: int, *, texts: int, error: float = 1.0
) -> Speeds:
    """The mean speed over many texts of so many tokens. error: as in `believed`."""
    seconds = [0.0, 0.0, 0.0]
    for seed in range(texts):
        new, *_, warm = _seconds(costs, rate, tokens, seed=seed, error=error, texts=1 + _WARM_TEXTS)
        [cold] = _seconds(costs, rate, tokens, seed=seed, error=error, guess=rate)
        seconds = [sum(pair) for pair in zip(seconds, (new, cold, warm), strict=True)]
    return Speeds(*(tokens * texts / each for each in seconds))


def _seconds(
    costs: Mapping[int, float],
    rate: float,
    tokens: int,
    *,
    seed: int,
    error: float,
    texts: int = 1,
    guess: float | None = None,
) -> list[float]:
    """The seconds of texts of a pair, one after the other. guess: the rate that is kept."""

    def make(drafter: SimulatedDrafter, known: CostModel, rows: RowShare) -> Policy:
        guesses = {} if guess is None else {drafter.name: guess}
        return AdaptivePolicy(
            [drafter], known, guesses=guesses, clock=lambda: drafter.seconds, rows=rows
        )

    users = SimulatedUsers(costs, [User(rate)], make, believed=believed(costs, error), seed=seed)
    [writer] = users.writers
    found = []
    for number in range(texts):
        if number:
            writer.policy.begin()
        began, end = users.seconds, writer.tokens + tokens
        while writer.tokens < end:
            writer.left = end - writer.tokens
            users.step()
        found.append(users.seconds - began)
    return found


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
    )
    for name in options.costs:
        for rate in RATES:
            for error in ERRORS:
                found = speeds(COSTS[name], rate, options.tokens, texts=options.texts, error=error)
                ratio = found.cold / found.warm
                table.print_row(name, rate, error, found.new, found.cold, found.warm, ratio)


if __name__ == "__main__":
    main()
