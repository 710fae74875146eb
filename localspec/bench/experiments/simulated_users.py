"""Several users in simulated time: plain decoding, `auto`, and the best fixed depth for all.

    python -m localspec.bench.experiments.simulated_users [--tokens 1500] [--costs NAME ...]

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

import numpy as np

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.simulated_drafter import (
    COSTS,
    FIRST,
    FURTHER,
    MIXES,
    READING,
    SimulatedDrafter,
    User,
)
from localspec.control.acceptance import NO_PRIOR, AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.cost_profile import DrafterSeconds
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import WIDEST_DECODE, PassCosts
from localspec.control.row_budget import RowBudget, RowShare
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.policy import Policy, Step

USERS = (1, 2, 4, 8)
DEPTHS = (1, 2, 3, 4, 6, 8, 12)
_SAMPLER = Sampler(SamplingParams(), Noise(0))


@dataclass
class Writer:
    """A user's text: its policy, its drafter, the tokens so far, and those that are left.

    share: its part of the rows of all texts.
    """

    policy: Policy
    drafter: SimulatedDrafter
    share: RowShare
    tokens: int = 0
    left: int = 1001
    draft: Draft = NOTHING
    verified: int = 0
    drafting: float = 0.0

    def decide(self) -> None:
        """Decide about a draft, and draw it."""
        began = self.drafter.seconds
        limit = Limit(self.left - 1, Prefix(0), _SAMPLER)
        decision, self.draft = self.policy.decide(limit), NOTHING
        if decision.drafter:
            self.draft = decision.draft or self.drafter.propose(
                limit.to(decision.depth, decision.go_on)
            )
            self.draft = self.draft.first(decision.depth)
        self.verified = self.policy.keep(self.draft)
        self.drafting = self.drafter.seconds - began

    @property
    def rows(self) -> int:
        """The rows of its pass."""
        return self.verified + 1

    def learn(self, others: Sequence[int], padding: int, seconds: float) -> None:
        """Commit what is right. seconds: of the decode. padding: rows of padding in its pass."""
        right = self.draft.tokens[: self.verified]
        accepted = next((at for at, token in enumerate(right) if not token), self.verified)
        width = self.rows + padding
        share = seconds * width / (width + sum(others))
        step = Step(
            self.draft.tokens,
            self.verified,
            width,
            [1] * (accepted + 1),
            share + self.drafting,
            self.drafting,
            others=tuple(others),
            decode_seconds=seconds,
            share=share,
        )
        self.policy.learn(step)
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
    target; else by as many times as there are texts. seconds: the simulated time so far.
    """

    costs: Mapping[int, float]
    users: Sequence[User]
    make: MakePolicy
    unequal_apart: bool = False
    equal_work: bool = False
    seed: int = 0
    believed: Mapping[int, float] | None = None
    shared_drafting: bool = True
    seconds: float = 0.0
    writers: list[Writer] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        budget = RowBudget()
        for number, user in enumerate(self.users):
            random = Random(self.seed + (0 if self.equal_work else number))
            decode = self._seconds if self.shared_drafting else float
            drafter = SimulatedDrafter(user, random, decode)
            passes = self.believed or self.costs
            first, further = (0.0, 0.0) if user.copies else (FIRST, FURTHER)
            alone = DrafterSeconds(first, further, READING)
            costs = CostModel(
                PassCosts(passes, unequal_apart=self.unequal_apart),
                {drafter.name: alone.cost(passes)},
            )
            share = budget.new_share()
            policy = self.make(drafter, costs, share)
            policy.begin()
            self.writers.append(Writer(policy, drafter, share))

    def run(self, tokens: int) -> "SimulatedUsers":
        """Go on until each user has so many tokens on average."""
        while sum(each.tokens for each in self.writers) < tokens * len(self.writers):
            self.step()
        return self

    def step(self) -> None:
        """One round: all decide and draft, then their passes are computed."""
        for writer in self.writers:
            writer.decide()
        self._share_drafting()
        self.seconds += sum(writer.drafting for writer in self.writers)
        for members in self._decodes():
            self._decode(members)

    def _share_drafting(self) -> None:
        """Charge the drafts, of which the n-th tokens come from one decode of the drafter."""
        drafting = [each for each in self.writers if each.drafting > 0]
        lengths = sorted((len(each.draft) for each in drafting), reverse=True)
        # By the number of a token, how many texts draft so many.
        texts = [sum(each > at for each in lengths) for at in range(max(lengths, default=0))]
        for writer in drafting:
            writer.drafting = writer.drafter.seconds_of(texts[: len(writer.draft)])
            writer.drafting += writer.drafter.reading
            writer.drafter.reading = 0.0
        for writer in self.writers:
            writer.drafter.texts = writer.share.texts = max(1, len(drafting))

    def _seconds(self, rows: int) -> float:
        """Seconds of a decode, linear between the known numbers of rows and behind the last."""
        *_, (before, less), (last, most) = self.costs.items()
        if rows > last:
            return most + (most - less) * (rows - last) / (last - before)
        return float(np.interp(rows, list(self.costs), list(self.costs.values())))

    def _decodes(self) -> list[list[Writer]]:
        """The texts of each decode."""
        decodes: list[list[Writer]] = []
        for writer in self.writers:
            for members in decodes:
                total = sum(each.rows for each in members) + writer.rows
                equal = not self.unequal_apart or members[0].rows == writer.rows
                if equal and total <= WIDEST_DECODE:
                    members.append(writer)
                    break
            else:
                decodes.append([writer])
        return decodes

    def _decode(self, members: Sequence[Writer]) -> None:
        rows = [each.rows for each in members]
        total = sum(rows)
        # The last pass is padded, by its own policy.
        padding = 0 if self.unequal_apart else members[-1].policy.padded(total) - total
        seconds = self._seconds(total + padding)
        self.seconds += seconds
        for place, writer in enumerate(members):
            last = place == len(members) - 1
            others = [*rows[:place], *rows[place + 1 :]]
            if not last:
                others[-1] += padding
            writer.learn(others, padding if last else 0, seconds)


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


def simulate(
    costs: Mapping[int, float],
    mix: Sequence[User],
    users: int,
    make: MakePolicy,
    tokens: int,
    *,
    unequal_apart: bool = False,
) -> Speeds:
    """The speeds of so many users, who each write so many tokens on average."""
    chosen = [mix[number % len(mix)] for number in range(users)]
    return Speeds.of(SimulatedUsers(costs, chosen, make, unequal_apart).run(tokens))


def main() -> None:
    """Print a row for each table of costs, mix and number of users."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--costs", nargs="+", choices=COSTS, default=list(COSTS), metavar="NAME")
    parser.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES), metavar="NAME")
    parser.add_argument("--apart", action="store_true", help="unequal passes share no decode")
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
                    return simulate(
                        COSTS[name],
                        MIXES[mix],
                        users,
                        make,
                        options.tokens,
                        unequal_apart=options.apart,
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
