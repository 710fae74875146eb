"""What drawing tokens ahead gains where the drafter has a device of its own, in simulated time.

    python -m localspec.bench.experiments.drawing_ahead [--tokens 4000] [--slowdown 1.0]

One text is written by the real adaptive policy, with and without drawing ahead. What the target's
pass takes is read from a table of seconds by rows; a drafted token takes a share of a plain pass.
Whether a drafted token is right is drawn at random; the draws are the same in every way of writing.
While the target computes, the drafter draws as many tokens as the policy says; where its draft and
its guess of the next token are right, the others are ready for the next draft. A pass takes
`--slowdown` times as long meanwhile, or until the last token is drawn, if that is longer.

Speeds are ratios to plain decoding. ready: the share of drafted tokens that were drawn ahead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import COSTS, SimulatedDrafter, User
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.policy import Step

DRAFT_COSTS = (0.05, 0.1, 0.2)
RATES = (0.5, 0.7, 0.8, 0.9)
SEEDS = range(4)
_SAMPLER = Sampler(SamplingParams(), Noise(0))


class SimulatedAhead(SimulatedDrafter):
    """A simulated drafter that can draw tokens ahead.

    each: seconds of a drafted token. drawn: how many tokens it has drawn behind the text; before a
    proposal these are the ready ones. used: how many ready ones were in its proposals.
    """

    def __init__(self, rate: float, each: float, random: Random, *, ahead: bool) -> None:
        super().__init__(User(rate), random, lambda _rows: 1.0, RowBudget().new_share())
        self.each = each
        self.drawn = self.used = 0
        if ahead:
            self.traits = replace(self.traits, ready=lambda: self.drawn)

    def propose(self, limit: Limit) -> Draft:
        """Propose tokens; those that are ready take no time."""
        tokens, ready = list[int](), self.drawn
        while len(tokens) < limit.depth:
            self.seconds += self.each if len(tokens) >= ready else 0.0
            right, margin = self._at(len(tokens))
            tokens.append(int(right))
            if limit.go_on and not limit.go_on(margin):
                break
        self.drawn = max(ready, len(tokens))
        self.used += min(ready, len(tokens))
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens: what was drawn stays if all of them were guessed."""
        count = len(outcome.tokens)
        guessed = all(self._at(place)[0] for place in range(min(count, self.drawn)))
        stays = guessed and self.traits.ready is not None
        self.drawn = max(0, self.drawn - count) if stays else 0
        del self._coming[:count]

    def _at(self, place: int) -> tuple[bool, float]:
        while len(self._coming) <= place:
            self._coming.append(self.draw())
        return self._coming[place]


@dataclass
class SimulatedText:
    """A text that is written in simulated time.

    costs: seconds of the target's pass by rows. slowdown: as in Overlap, of the simulated machine.
    """

    drafter: SimulatedAhead
    costs: Mapping[int, float]
    slowdown: float = 1.0
    seconds: float = 0.0
    tokens: int = 0
    drafted: int = 0
    policy: AdaptivePolicy = field(init=False)

    def __post_init__(self) -> None:
        each = self.drafter.each
        costs = CostModel(
            PassCosts(self.costs), {self.drafter.name: DrafterCost(first=each, further=each)}
        )
        self.policy = AdaptivePolicy([self.drafter], costs, clock=lambda: self.drafter.seconds)
        self.policy.begin()

    def write(self, tokens: int) -> float:
        """Write so many tokens; return the tokens per second."""
        while self.tokens < tokens:
            self._step(tokens + 64)
        return self.tokens / self.seconds

    def _step(self, most: int) -> None:
        began, limit = self.drafter.seconds, Limit(most, Prefix(0), _SAMPLER)
        decision, draft = self.policy.decide(limit), NOTHING
        if decision.drafter:
            draft = self.drafter.propose(limit.to(decision.depth, decision.go_on))
        verified = draft.first(self.policy.keep(draft))
        drafting = self.drafter.seconds - began
        can = decision.drafter and self.drafter.traits.ready
        ahead = self.policy.ahead(verified) if can else 0
        self.drafter.drawn += ahead
        rows = self.policy.padded(len(verified) + 1)
        seconds = float(np.interp(rows, list(self.costs), list(self.costs.values())))
        if ahead:
            seconds = max(self.slowdown * seconds, ahead * self.drafter.each)
        committed = [1] * (1 + [*verified.tokens, 0].index(0))
        step = Step(
            draft.tokens,
            len(verified),
            rows,
            committed,
            seconds + drafting,
            drafting,
            decode_seconds=seconds,
            share=seconds,
            ahead=ahead,
        )
        self.policy.learn(step)
        self.drafter.observe(Outcome(committed, len(committed) - 1))
        self.seconds += seconds + drafting
        self.tokens += len(committed)
        self.drafted += len(verified)


def speed(
    rate: float, each: float, tokens: int, *, ahead: bool, slowdown: float = 1.0
) -> tuple[float, float]:
    """The tokens per second of several texts, and the share of drafted tokens that were ready."""
    texts = [
        SimulatedText(SimulatedAhead(rate, each, Random(seed), ahead=ahead), COSTS["GPU"], slowdown)
        for seed in SEEDS
    ]
    for text in texts:
        text.write(tokens)
    drafted = sum(text.drafted for text in texts)
    used = sum(text.drafter.used for text in texts)
    seconds = sum(text.seconds for text in texts)
    return sum(text.tokens for text in texts) / seconds, used / max(1, drafted)


def main() -> None:
    """Print a row for each cost of a drafted token and acceptance rate."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--tokens", type=int, default=4000, help="per text")
    parser.add_argument("--slowdown", type=float, default=1.0, help="of a pass, meanwhile")
    options = parser.parse_args()
    table = Table(
        ("draft", "5.2f"),
        ("right", "5.1f"),
        ("without", "7.2f"),
        ("ahead", "5.2f"),
        ("gain", "6.1%"),
        ("ready", "5.0%"),
    )
    for each in DRAFT_COSTS:
        for rate in RATES:
            without, _ = speed(rate, each, options.tokens, ahead=False)
            ahead, ready = speed(rate, each, options.tokens, ahead=True, slowdown=options.slowdown)
            table.print_row(each, rate, without, ahead, ahead / without - 1, ready)


if __name__ == "__main__":
    main()
