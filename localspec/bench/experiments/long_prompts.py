"""Short answers behind long prompts in simulated time: a drafter that may read the end alone.

    python -m localspec.bench.experiments.long_prompts [--costs NAME ...] [--texts 16] [--users N]

The policies are the real ones, one per user; what decodes take is read from a table, as in
`simulated_users`. Each text is behind a new prompt, of which the drafter has read nothing; all
users begin theirs at once. Reads all: it has to read the prompt before it drafts. May read the end:
it may leave out all but the last tokens, behind which its drafts are right less often. Both write
the same texts, x plain decoding of as many users, up to the last token of all: in one run, and each
in a run of its own that knows what the runs before have kept.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from random import Random

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import (
    COSTS,
    FIRST,
    FURTHER,
    READING,
    drawn,
    part_of_decode,
    seconds_of_rows,
)
from localspec.control.acceptance import NO_PRIOR, AcceptancePrior, DraftCounts
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import DrafterSeconds
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget, RowShare
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
# Between the seeds of two users.
_OTHER_USER = 1000
_SAMPLER = Sampler(SamplingParams(), Noise(0))


class PromptReader:
    """A drafter with a prompt to read; right tokens are 1, wrong ones 0.

    rates: how often they are right behind all of the prompt, and behind its end. part: returns what
    it pays of a decode, which texts share. seconds: those spent on drafting so far. reading: those
    of the last draft in which it read.
    """

    name = "drafter"

    def __init__(
        self,
        rates: tuple[float, float],
        *,
        may_leave_out: bool,
        part: Callable[[], float] = lambda: 1.0,
    ) -> None:
        end = self._end if may_leave_out else None
        self._part_of_decode = part
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
            self.seconds += self._part_of_decode() * (FURTHER if tokens else FIRST)
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
    """The text of a user, of which every token is 1.

    costs: what the policy learns. decode: returns the seconds of a decode by its rows. left: how
    many tokens may follow the next one; -1 behind the end.
    """

    def __init__(
        self,
        policy: AdaptivePolicy,
        share: RowShare,
        drafter: PromptReader,
        costs: CostModel,
        decode: Callable[[int], float],
    ) -> None:
        super().__init__(policy, share)
        self.adaptive, self.drafter, self.costs, self.left = policy, drafter, costs, -1
        self._decode = decode

    def start(self, prompt: int, tokens: int, seed: int) -> None:
        """Begin a text of so many tokens."""
        self.drafter.start(prompt, tokens, seed)
        self.costs.passes.begin_text()
        self.share.begin(None)
        self.policy.begin()
        self.left = tokens - 1

    @property
    def is_written(self) -> bool:
        """Whether tokens are left."""
        return self.left >= 0

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
        return reading + sum(
            part_of_decode(self._decode, each) * (FURTHER if number else FIRST)
            for number, each in enumerate(texts)
        )

    def commit(self, step: Step, accepted: int) -> None:
        """Tell the drafter of the step, also where it does not draft."""
        self.drafter.observe(Outcome(step.tokens, accepted))
        self.left -= len(step.tokens)


class Run:
    """Texts that users write one after the other, all users at once.

    rates: as in PromptReader, of every user's drafter. kept: what runs before it have kept.
    """

    def __init__(
        self,
        costs: Mapping[int, float],
        rates: tuple[float, float],
        *,
        may_leave_out: bool,
        users: int = 1,
        kept: AcceptancePrior = NO_PRIOR,
    ) -> None:
        self._costs, self._rates, self._may_leave_out, self._kept = (
            costs,
            rates,
            may_leave_out,
            kept,
        )
        known = {name: each for name, each in kept.counts.items() if each.total.tried >= _FEWEST}
        shares = {name: each.total.share for name, each in known.items()}
        self._prior, self._budget = AcceptancePrior(shares, known), RowBudget()
        self._texts = [self._new_text() for _ in range(users)]
        self._rounds = Rounds(self._texts, self._decode)

    def _decode(self, rows: int) -> float:
        return seconds_of_rows(self._costs, rows)

    def _new_text(self) -> _Text:
        share = self._budget.new_share()
        drafter = PromptReader(
            self._rates,
            may_leave_out=self._may_leave_out,
            part=lambda: part_of_decode(self._decode, max(1, share.texts)),
        )
        cost = DrafterSeconds(FIRST, FURTHER, READING).cost(self._costs)
        costs = CostModel(PassCosts(self._costs), {drafter.name: cost})
        policy = AdaptivePolicy(
            [drafter], costs, prior=self._prior, clock=lambda: drafter.seconds, rows=share
        )
        return _Text(policy, share, drafter, costs, self._decode)

    def seconds(self, prompt: int, tokens: int, seed: int) -> float:
        """Let each user write a text; return the seconds per token, in plain decodes of all."""
        began = self._rounds.seconds
        for number, text in enumerate(self._texts):
            text.start(prompt, tokens, seed + _OTHER_USER * number)
        self._rounds.run()
        return (self._rounds.seconds - began) / tokens / self._decode(len(self._texts))

    @property
    def kept(self) -> AcceptancePrior:
        """What this run adds to what was kept."""
        counts = {name: deepcopy(each) for name, each in self._kept.counts.items()}
        for text in self._texts:
            for each in text.adaptive.all_candidates:
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
    users: int = 1,
) -> float:
    """Tokens per plain decode of texts that one run writes."""
    run = Run(costs, rates, may_leave_out=may_leave_out, users=users)
    return texts / sum(run.seconds(prompt, tokens, seed) for seed in range(texts))


def speed_in_runs(
    costs: Mapping[int, float],
    rates: tuple[float, float],
    prompt: int,
    tokens: int,
    *,
    may_leave_out: bool,
    users: int = 1,
) -> float:
    """Tokens per plain decode of texts that are each written by a run."""
    kept, seconds = NO_PRIOR, 0.0
    for seed in range(RUNS):
        run = Run(costs, rates, may_leave_out=may_leave_out, users=users, kept=kept)
        seconds += run.seconds(prompt, tokens, seed)
        kept = run.kept
    return RUNS / seconds


def main() -> None:
    """Print a row for each table of costs, acceptance rates, prompt and length of the answer."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=list(COSTS), metavar="NAME")
    parser.add_argument("--users", type=int, default=1, help="who write at once")
    options = parser.parse_args()
    users = options.users
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
                            speed_in_one_run(*cell, options.texts, may_leave_out=may, users=users)
                            for may in (False, True)
                        ),
                        *(
                            speed_in_runs(*cell, may_leave_out=may, users=users)
                            for may in (False, True)
                        ),
                    )


if __name__ == "__main__":
    main()
