"""Short answers behind long prompts in simulated time: a drafter that may read the end alone.

    python -m localspec.bench.experiments.long_prompts [--costs NAME ...] [--texts 16]

The policy is the real one, of one text at a time; what decodes take is read from a table, as in
`simulated_users`. Each text is behind a new prompt, of which the drafter has read nothing. Reads
all: it has to read the prompt before it drafts. May read the end: it may leave out all but the last
tokens, behind which its drafts are right less often. Both write the same texts, x plain decoding:
in one run, and each in a run of its own that knows what the runs before have kept.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from random import Random

import numpy as np

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import COSTS, FIRST, FURTHER, READING, drawn
from localspec.control.acceptance import NO_PRIOR, AcceptancePrior, DraftCounts
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import DrafterSeconds
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget
from localspec.drafters.text_part import TextPart
from localspec.forecast.rounds import Rounds, Writer
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits, backlog
from localspec.speculation.policy import Step

# How often drafts are right behind the whole prompt, and behind its end.
RATES = ((0.05, 0.05), (0.3, 0.29), (0.7, 0.68), (0.9, 0.88), (0.9, 0.36))
PROMPTS, TOKENS = (300, 2000), (24, 60, 200)
RUNS = 5
# With fewer drafted tokens, nothing is known of them.
_FEWEST = 8
_SAMPLER = Sampler(SamplingParams(), Noise(0))


class PromptReader:
    """A drafter with a prompt to read; right tokens are 1, wrong ones 0.

    rates: how often they are right behind all of the prompt, and behind its end. seconds: those
    spent on drafting so far. reading: those of the last draft in which it read.
    """

    name = "drafter"

    def __init__(self, rates: tuple[float, float], *, may_leave_out: bool) -> None:
        end = self._end if may_leave_out else None
        self.traits = Traits(backlog=self._backlog, end=end, computer=lambda: self.name)
        self.seconds = self.reading = 0.0
        self._rates = rates
        self.start(0, 0, 0)

    def start(self, prompt: int, tokens: int, seed: int) -> None:
        """Another text of so many tokens, behind a prompt of so many."""
        self._text, self._read, self._part = prompt, 0, TextPart()
        self._coming = [drawn(Random(seed), rate, tokens) for rate in self._rates]

    def begin(self, tokens: Sequence[int]) -> None:
        """Nothing to do: see `start`."""

    def propose(self, limit: Limit) -> Draft:
        """Read what it lacks, and propose tokens."""
        self.reading = READING * max(0, backlog(self, from_end=limit.from_end) - 2)
        self.seconds += self.reading
        self._part.choose(self._text, self._read, from_end=limit.from_end)
        self._part.is_unread = False
        self._read, tokens = self._part.size(self._text), list[int]()
        for right, margin in self._coming[bool(self._part.gap)][: limit.depth]:
            self.seconds += FURTHER if tokens else FIRST
            tokens.append(int(right))
            if limit.go_on and not limit.go_on(margin):
                break
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens; one of them it has not seen."""
        count = len(outcome.tokens)
        self._read += count - 1 if self._read == self._part.size(self._text) else 0
        self._text += count
        for coming in self._coming:
            del coming[:count]

    def _backlog(self) -> int:
        return self._part.backlog(self._text, self._read)

    def _end(self) -> int | None:
        return self._part.end(self._text, self._read)


class _Text(Writer):
    """The text of a drafter, of which every token is 1. left: how many are to come."""

    def __init__(self, policy: AdaptivePolicy, drafter: PromptReader, budget: RowBudget) -> None:
        super().__init__(policy, budget.new_share())
        self.drafter, self.left = drafter, 0

    @property
    def is_written(self) -> bool:
        """It is asked for only while tokens are left."""
        return True

    def limit(self) -> Limit:
        """As many tokens as are left."""
        return Limit(self.left, Prefix(0), _SAMPLER)

    def coming(self, count: int) -> Sequence[int]:
        """The right tokens."""
        return [1] * count

    def host_seconds(self, tokens: int) -> float:
        """None."""
        return 0.0

    def draft_seconds(self, texts: Sequence[int]) -> float:
        """Those of each token, and of reading."""
        reading, self.drafter.reading = self.drafter.reading, 0.0
        return reading + sum(FURTHER if number else FIRST for number in range(len(texts)))

    def commit(self, step: Step, accepted: int) -> None:
        """Tell the drafter of the step, also where it does not draft."""
        self.drafter.observe(Outcome(step.tokens, accepted))
        self.left -= len(step.tokens)


class Run:
    """Texts that are written one after the other. kept: what runs before it have kept."""

    def __init__(
        self,
        costs: Mapping[int, float],
        rates: tuple[float, float],
        *,
        may_leave_out: bool,
        kept: AcceptancePrior = NO_PRIOR,
    ) -> None:
        self._drafter = drafter = PromptReader(rates, may_leave_out=may_leave_out)
        self._kept = kept
        known = {name: each for name, each in kept.counts.items() if each.total.tried >= _FEWEST}
        shares = {name: each.total.share for name, each in known.items()}
        cost = DrafterSeconds(FIRST, FURTHER, READING).cost(costs)
        self._costs = CostModel(PassCosts(costs), {drafter.name: cost})
        self._policy = AdaptivePolicy(
            [drafter],
            self._costs,
            prior=AcceptancePrior(shares, known),
            clock=lambda: drafter.seconds,
        )
        self._text = _Text(self._policy, drafter, RowBudget())
        widths, seconds = list(costs), list(costs.values())
        self._rounds = Rounds([self._text], lambda rows: float(np.interp(rows, widths, seconds)))

    def seconds(self, prompt: int, tokens: int, seed: int) -> float:
        """Write a text; return its seconds per token, in plain passes."""
        self._drafter.start(prompt, tokens, seed)
        self._costs.passes.begin_text()
        self._policy.begin()
        began, self._text.left = self._rounds.seconds, tokens - 1
        while self._text.left >= 0:
            self._rounds.step()
        return (self._rounds.seconds - began) / tokens

    @property
    def kept(self) -> AcceptancePrior:
        """What this run adds to what was kept."""
        counts = {name: deepcopy(each) for name, each in self._kept.counts.items()}
        for each in self._policy.all_candidates:
            counts.setdefault(each.name, DraftCounts()).extend(each.counts)
        return AcceptancePrior({}, counts)


def speed_in_one_run(
    costs: Mapping[int, float],
    rates: tuple[float, float],
    prompt: int,
    tokens: int,
    texts: int,
    *,
    may_leave_out: bool,
) -> float:
    """Tokens per plain pass of texts that one run writes."""
    run = Run(costs, rates, may_leave_out=may_leave_out)
    return texts / sum(run.seconds(prompt, tokens, seed) for seed in range(texts))


def speed_in_runs(
    costs: Mapping[int, float],
    rates: tuple[float, float],
    prompt: int,
    tokens: int,
    *,
    may_leave_out: bool,
) -> float:
    """Tokens per plain pass of texts that are each written by a run."""
    kept, seconds = NO_PRIOR, 0.0
    for seed in range(RUNS):
        run = Run(costs, rates, may_leave_out=may_leave_out, kept=kept)
        seconds += run.seconds(prompt, tokens, seed)
        kept = run.kept
    return RUNS / seconds


def main() -> None:
    """Print a row for each table of costs, acceptance rates, prompt and length of the answer."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=list(COSTS), metavar="NAME")
    options = parser.parse_args()
    table = Table(
        ("costs", "<7"),
        ("right", "5.2f"),
        ("behind end", "10.2f"),
        ("prompt", "6d"),
        ("tokens", "6d"),
        ("reads all", "9.2f"),
        ("may read end", "12.2f"),
        ("runs: reads all", "15.2f"),
        ("may read end", "12.2f"),
    )
    for name in options.costs:
        for rates in RATES:
            for prompt in PROMPTS:
                for tokens in TOKENS:
                    cell = COSTS[name], rates, prompt, tokens
                    table.print_row(
                        name,
                        *rates,
                        prompt,
                        tokens,
                        *(
                            speed_in_one_run(*cell, options.texts, may_leave_out=may)
                            for may in (False, True)
                        ),
                        *(speed_in_runs(*cell, may_leave_out=may) for may in (False, True)),
                    )


if __name__ == "__main__":
    main()
