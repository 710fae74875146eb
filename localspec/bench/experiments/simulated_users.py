"""Several users in simulated time: plain decoding, `auto`, and the best fixed depth for all.

    python -m localspec.bench.experiments.simulated_users [--tokens 1500] [--costs NAME ...]
        [--change SECONDS] [--host SECONDS]

The policies are the real ones, one per user. All users are in each round: they decide and draft,
one decode computes the passes of all, and every policy learns. What a decode takes is read from a
table of seconds by rows, so nothing depends on this machine's clock. Whether a drafted token is
right is drawn at random, with each user's own rate; the draws are the same in every way of writing.

Speeds are ratios to plain decoding of as many users: of all users together, and of the user that
gains least. Best fixed: the best of several depths, the same for every user and step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import (
    COSTS,
    FIRST,
    FURTHER,
    MIXES,
    READING,
    SimulatedDrafter,
    User,
    seconds_of_rows,
)
from localspec.control.acceptance import NO_PRIOR, AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import DrafterSeconds
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget, RowShare
from localspec.control.width_changes import PARTS, EqualPasses
from localspec.forecast.rounds import Rounds, Writer
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.policy import Policy, Step

USERS = (1, 2, 4, 8)
DEPTHS = (1, 2, 3, 4, 6, 8, 12)
_SAMPLER = Sampler(SamplingParams(), Noise(0))


class UserWriter(Writer):
    """A user's text, of which every token is 1.

    drafter: the user's. costs: what the policy learns. host: seconds of each step outside the
    models. asking: of each decision, unless the text rests. tokens, left: how many there are so
    far, and how many may follow.
    """

    def __init__(
        self,
        policy: Policy,
        drafter: SimulatedDrafter,
        costs: CostModel,
        share: RowShare,
        *,
        host: float = 0.0,
        asking: float = 0.0,
    ) -> None:
        super().__init__(policy, share)
        self.drafter, self.costs = drafter, costs
        self.tokens, self.left = 0, 1001
        self._host, self._asking = host, asking

    @property
    def is_written(self) -> bool:
        """It has no end."""
        return True

    def decide(self) -> None:
        """Decide, which takes time unless the text rests."""
        super().decide()
        self.deciding = self._asking if self.share.asked else 0.0

    def limit(self) -> Limit:
        """As many tokens as are left."""
        return Limit(self.left - 1, Prefix(0), _SAMPLER)

    def coming(self, count: int) -> Sequence[int]:
        """The right tokens."""
        return [1] * count

    def host_seconds(self, tokens: int) -> float:
        """As many in each step."""
        return self._host

    def draft_seconds(self, texts: Sequence[int]) -> float:
        """Those that the drafter has, with its reading; copies take no time."""
        reading, self.drafter.reading = self.drafter.reading, 0.0
        return self.drafter.seconds_of(texts) + reading

    def commit(self, step: Step, accepted: int) -> None:
        """Tell the drafter of the step, also where it does not draft by its policy."""
        self.drafter.observe(Outcome(step.tokens, accepted))
        self.tokens += len(step.tokens)


MakePolicy = Callable[[SimulatedDrafter, CostModel, RowShare], Policy]


@dataclass
class SimulatedUsers:
    """Users who write at the same time, round by round.

    make: makes the policy of a user of its drafter, its costs and its share. unequal_apart: as in
    PassCosts. equal_work: whether the same tokens are right for all users. seed: of what is right.
    believed: the costs that policies begin with; None: the true ones. shared_drafting: whether a
    decode of the drafter for several texts takes longer than for one by as many times as one of the
    target; else by as many times as there are texts. change: seconds that it costs when the rows of
    decodes change (see WidthChanges). knows_change: whether policies know of that. host: seconds of
    each step outside the models. asking: of each decision, unless the text rests.
    """

    costs: Mapping[int, float]
    users: Sequence[User]
    make: MakePolicy
    unequal_apart: bool = False
    equal_work: bool = False
    seed: int = 0
    believed: Mapping[int, float] | None = None
    shared_drafting: bool = True
    change: float = 0.0
    knows_change: bool = True
    host: float = 0.0
    asking: float = 0.0
    rounds: Rounds = field(init=False)
    writers: list[UserWriter] = field(init=False, default_factory=list)
    _equal: EqualPasses = field(init=False, default_factory=EqualPasses)

    def __post_init__(self) -> None:
        budget = RowBudget()
        for number, user in enumerate(self.users):
            random = Random(self.seed + (0 if self.equal_work else number))
            decode = self._seconds if self.shared_drafting else float
            share = budget.new_share()
            drafter = SimulatedDrafter(user, random, decode, share)
            passes = self.believed or self.costs
            first, further = (0.0, 0.0) if user.copies else (FIRST, FURTHER)
            alone = DrafterSeconds(first, further, READING)
            costs = CostModel(
                PassCosts(
                    passes,
                    unequal_apart=self.unequal_apart,
                    change=self.change if self.knows_change else 0.0,
                ),
                {drafter.name: alone.cost(passes)},
            )
            policy = self.make(drafter, costs, share)
            policy.begin()
            host, asking = self.host, self.asking
            writer = UserWriter(policy, drafter, costs, share, host=host, asking=asking)
            self.writers.append(writer)
        self.rounds = Rounds(self.writers, self._decode, unequal_apart=self.unequal_apart)

    @property
    def seconds(self) -> float:
        """The simulated time so far."""
        return self.rounds.seconds

    def run(self, tokens: int) -> "SimulatedUsers":
        """Go on until each user has so many tokens on average."""
        while sum(each.tokens for each in self.writers) < tokens * len(self.writers):
            self.step()
        return self

    def step(self) -> None:
        """One round."""
        self.rounds.step()

    def begin_texts(self) -> None:
        """All users begin another text, behind a prompt: its decodes had other rows."""
        self._equal = EqualPasses()
        for writer in self.writers:
            writer.costs.passes.begin_text()
            writer.policy.begin()

    def _decode(self, rows: int) -> float:
        """Seconds of the next decode."""
        before = self._equal.add(rows)
        part = PARTS[before] if before < len(PARTS) else 0.0
        return self._seconds(rows) + part * self.change

    def _seconds(self, rows: int) -> float:
        """Seconds of a decode whose rows have not changed."""
        return seconds_of_rows(self.costs, rows)


def plain(_drafter: SimulatedDrafter, _costs: CostModel, _rows: RowShare) -> Policy:
    """Plain decoding."""
    return FixedDepth((), 0)


def fixed(depth: int) -> MakePolicy:
    """Every step drafts so many tokens."""
    return lambda drafter, _costs, _rows: FixedDepth([drafter], depth)


def auto(
    drafter: SimulatedDrafter,
    costs: CostModel,
    rows: RowShare,
    prior: AcceptancePrior = NO_PRIOR,
) -> AdaptivePolicy:
    """The adaptive policy. prior: what is known of the drafter."""
    return AdaptivePolicy([drafter], costs, prior=prior, clock=lambda: drafter.seconds, rows=rows)


@dataclass(frozen=True, slots=True)
class Speeds:
    """Tokens per second of all users together, and of each."""

    total: float
    each: Sequence[float]

    @classmethod
    def of(cls, done: SimulatedUsers) -> "Speeds":
        """The speeds of a simulation."""
        each = [writer.tokens / done.seconds for writer in done.writers]
        return cls(sum(each), each)


def simulate_users(
    costs: Mapping[int, float],
    mix: Sequence[User],
    users: int,
    make: MakePolicy,
    tokens: int,
    *,
    unequal_apart: bool = False,
    change: float = 0.0,
    host: float = 0.0,
) -> Speeds:
    """The speeds of so many users, who each write so many tokens on average."""
    chosen = [mix[number % len(mix)] for number in range(users)]
    simulated = SimulatedUsers(costs, chosen, make, unequal_apart, change=change, host=host)
    return Speeds.of(simulated.run(tokens))


def main() -> None:
    """Print a row for each table of costs, mix and number of users."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=list(COSTS), metavar="NAME")
    parser.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES), metavar="NAME")
    parser.add_argument("--apart", action="store_true", help="unequal passes share no decode")
    parser.add_argument("--change", type=float, default=0.0, help="of the rows, in plain passes")
    parser.add_argument("--host", type=float, default=0.0, help="of each step, in plain passes")
    options = parser.parse_args()
    table = Table(
        ("costs", "<7"),
        ("drafts", "<8"),
        ("users", "5d"),
        ("auto", "6.2f"),
        ("best fixed", "10.2f"),
        ("depth", "5d"),
        ("slowest user", "12.2f"),
    )
    for name in options.costs:
        for mix in options.mixes:
            for users in USERS:

                def speeds(
                    make: MakePolicy, name: str = name, mix: str = mix, users: int = users
                ) -> Speeds:
                    return simulate_users(
                        COSTS[name],
                        MIXES[mix],
                        users,
                        make,
                        options.tokens,
                        unequal_apart=options.apart,
                        change=options.change,
                        host=options.host,
                    )

                before, after = speeds(plain), speeds(auto)
                best, depth = max((speeds(fixed(depth)).total, depth) for depth in DEPTHS)
                gains = [a / b for a, b in zip(after.each, before.each, strict=True)]
                table.print_row(
                    name,
                    mix,
                    users,
                    after.total / before.total,
                    best / before.total,
                    depth,
                    min(gains),
                )


if __name__ == "__main__":
    main()
