"""Users: the expected speed of several texts that are written at the same time.

The answers are dealt out in groups, one answer to each user. A group's texts are asked for at once:
the target reads all prompts, then the texts are written side by side, each by a policy of its own
that keeps what it has learnt from group to group. Where one ends, the others go on without it. The
policies are the real ones, and drafters draft what they drafted, or would have drafted, at each
token. Plain decoding of as many users is simulated in the same way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

from localspec.control.acceptance import AcceptancePrior
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.base_costs import WIDEST
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.fixed_depth import FixedDepth
from localspec.control.row_budget import RowBudget, RowShare
from localspec.drafters.spec import AUTO
from localspec.engine.engine import Engine
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.confidence import ConfidenceInterval, ratio_interval
from localspec.forecast.model_free import fresh
from localspec.forecast.recorded_drafts import (
    DEEPEST_RECORD,
    ReplayedDrafter,
    drafts_of_text,
)
from localspec.forecast.rounds import Rounds
from localspec.forecast.scored_answers import ScoredAnswers
from localspec.forecast.simulation import Decodes, SimulatedWriter, cost_model
from localspec.forecast.timing import StepCosts, shared_decodes
from localspec.speculation.drafter import Drafter
from localspec.speculation.policy import Policy

PLAIN = "plain"
DEPTHS = range(1, DEEPEST_RECORD + 1)
# With fewer groups an interval would say nothing.
ENOUGH_GROUPS = 3

MakePolicy = Callable[[Sequence[Drafter], CostModel, RowShare], Policy]


@dataclass(frozen=True, slots=True)
class UsersForecast:
    """The forecast for one way of decoding with so many users who ask at the same time.

    drafter: `plain`, or `auto` for its drafters at any depth. depth: None where a policy chooses.
    groups: how many were simulated. tokens_per_second: of all users, from the request to the last
    token. each: the median of a user's, without the reading of prompts. speed_up: over plain
    decoding of as many users, of all of them; slowest: of the text in each group that gains least.
    acceptance: None without drafts.
    """

    users: int
    drafter: str
    depth: int | None
    groups: int
    tokens_per_second: float
    each: float
    speed_up: ConfidenceInterval
    slowest: ConfidenceInterval
    acceptance: float | None


@dataclass(frozen=True, slots=True)
class Group:
    """A group of texts that were written side by side.

    reading: seconds in which the target has read all prompts. ended: when each text was written,
    from the request on. tokens: of each. drafted, accepted: of all.
    """

    reading: float
    ended: Sequence[float]
    tokens: Sequence[int]
    drafted: int
    accepted: int

    @property
    def seconds(self) -> float:
        """From the request to the last token."""
        return max(self.ended)

    @property
    def speeds(self) -> list[float]:
        """Tokens per second of each text, behind the prompts."""
        pairs = zip(self.tokens, self.ended, strict=True)
        return [tokens / (ended - self.reading) for tokens, ended in pairs]


@dataclass(frozen=True, slots=True)
class World:
    """What is known of the texts and of the costs.

    drafters: those of `auto`; those that run a model are replayed. guesses: as in AcceptancePrior.
    shares_decodes: whether texts share decodes at all. unequal_apart: as in PassCosts. reading:
    seconds of the target for each token of a prompt. clock: as in SimulatedWriter.
    """

    answers: Sequence[RecordedAnswer]
    drafters: Sequence[Drafter]
    costs: StepCosts
    guesses: Mapping[str, float]
    shares_decodes: bool = True
    unequal_apart: bool = False
    reading: float = 0.0
    clock: Callable[[], float] = perf_counter

    def groups(self, users: int) -> list[range]:
        """The numbers of the answers in each whole group; those that are left over are in none."""
        whole = len(self.answers) // users
        return [range(users * number, users * (number + 1)) for number in range(whole)]

    def share_prompts(self, users: int) -> bool:
        """Whether a prompt is in several groups, which then tell less than others would."""
        groups = [{tuple(self.answers[one].prompt) for one in each} for each in self.groups(users)]
        return sum(map(len, groups)) > len(set().union(*groups))

    def drafters_of(self, numbers: Sequence[int]) -> list[Drafter]:
        """New drafters for the user who has these answers, in this order."""
        return [
            each.of_answers(numbers) if isinstance(each, ReplayedDrafter) else fresh(each)
            for each in self.drafters
        ]


def world_of(engine: Engine, scored: ScoredAnswers, costs: StepCosts, users: int) -> World:
    """What is known of up to so many users; a draft model drafts at every token for it.

    The users' drafters are those that were tried on the answers.
    """
    replayed = {each.name: each for each in scored.recorded}
    if model := scored.model:
        drawn = [[*each.drawn] for each in scored.scored if each.drawn is not None]
        pairs = zip(scored.answers, drawn, strict=True)
        drafts = [drafts_of_text(model, answer, each) for answer, each in pairs]
        replayed[model.name] = ReplayedDrafter(model, scored.answers, drafts)
        similar = shared_decodes(engine.drafter_set.sequences[model.name], scored.answers, users)
        known = costs.drafters[model.name]
        shared = DrafterCost(known.first, known.further, known.reading, similar)
        costs = replace(costs, drafters={**costs.drafters, model.name: shared})
    loaded = engine.slots.own.loaded
    return World(
        scored.answers,
        [replayed.get(each.name, each) for each in scored.drafters],
        costs,
        scored.rates,
        shares_decodes=loaded.never_shares is None,
        unequal_apart=loaded.target.context.splits_unequal,
        reading=_reading(scored.answers),
    )


def _reading(answers: Sequence[RecordedAnswer]) -> float:
    """Seconds of the target for each token of a prompt."""
    seconds = sum(each.stats.seconds.prompt for each in answers)
    return seconds / max(1, sum(each.stats.prompt_evaluated for each in answers))


def forecast_users(world: World, users: int) -> list[UsersForecast]:
    """Plain decoding, `auto`, and every fixed depth, the same for all users and steps.

    users: at most as many as there are answers.
    """
    plain, alike = simulate(world, users, fixed(0)), world.share_prompts(users)
    found = [_forecast(PLAIN, None, plain, plain, alike=alike)]
    if world.drafters:
        policies = [(None, auto(world.guesses)), *((depth, fixed(depth)) for depth in DEPTHS)]
        found += [
            _forecast(AUTO, depth, simulate(world, users, make), plain, alike=alike)
            for depth, make in policies
        ]
    return found


def best_depth(found: Sequence[UsersForecast]) -> list[UsersForecast]:
    """Those of one number of users, and of the fixed depths the fastest alone."""
    at_depths = [each for each in found if each.depth]
    best = max(at_depths, key=lambda each: each.speed_up.value, default=None)
    return [each for each in found if not each.depth or each is best]


def auto(guesses: Mapping[str, float]) -> MakePolicy:
    """The adaptive policy."""
    prior = AcceptancePrior(guesses)
    return lambda drafters, costs, share: AdaptivePolicy(drafters, costs, prior=prior, rows=share)


def fixed(depth: int) -> MakePolicy:
    """Every step drafts so many tokens; 0 is plain decoding."""
    widest = depth + 1 if depth else WIDEST
    return lambda drafters, costs, share: FixedDepth(
        drafters if depth else (), depth, rows=share, passes=costs.passes, widest=widest
    )


def simulate(world: World, users: int, make: MakePolicy) -> list[Group]:
    """Write all groups, one after the other."""
    budget, decodes, groups = RowBudget(), Decodes(world.costs), world.groups(users)
    writers = []
    for user in range(users):
        model = cost_model(world.costs, unequal_apart=world.unequal_apart)
        share = budget.new_share()
        policy = make(world.drafters_of([group[user] for group in groups]), model, share)
        writers.append(
            SimulatedWriter(policy, share, model, decodes, host=world.costs.host, clock=world.clock)
        )
    return [_write(world, writers, decodes, group) for group in groups]


def _write(
    world: World, writers: Sequence[SimulatedWriter], decodes: Decodes, numbers: Sequence[int]
) -> Group:
    answers = [world.answers[number] for number in numbers]
    for writer, answer in zip(writers, answers, strict=True):
        writer.begin(answer, cache=world if world.shares_decodes else writer)
    reading = world.reading * sum(len(each.prompt) for each in answers)
    Rounds(writers, decodes.seconds, unequal_apart=world.unequal_apart, seconds=reading).run()
    steps = [step for writer in writers for step in writer.steps]
    return Group(
        reading,
        [writer.ended for writer in writers],
        [len(each.tokens) for each in answers],
        sum(step.drafted for step in steps),
        sum(step.accepted for step in steps),
    )


def group_ratio(
    above: Sequence[float], below: Sequence[float], *, alike: bool = False
) -> ConfidenceInterval:
    """sum(above) / sum(below), which have an entry for each group. alike: if they share prompts."""
    if len(above) < ENOUGH_GROUPS or alike:
        return ConfidenceInterval(sum(above) / sum(below))
    return ratio_interval(above, below)


def _forecast(
    drafter: str, depth: int | None, groups: Sequence[Group], plain: Sequence[Group], *, alike: bool
) -> UsersForecast:
    """The forecast from one group after another. plain: the same ones in plain decoding."""
    seconds = [each.seconds for each in groups]
    slowest = [
        max(zip(before.ended, each.ended, strict=True), key=lambda pair: pair[1] / pair[0])
        for before, each in zip(plain, groups, strict=True)
    ]
    drafted = sum(each.drafted for each in groups)
    return UsersForecast(
        len(groups[0].tokens),
        drafter,
        depth,
        len(groups),
        sum(sum(each.tokens) for each in groups) / sum(seconds),
        median(speed for each in groups for speed in each.speeds),
        group_ratio([each.seconds for each in plain], seconds, alike=alike),
        group_ratio(
            [before for before, _ in slowest], [after for _, after in slowest], alike=alike
        ),
        sum(each.accepted for each in groups) / drafted if drafted else None,
    )
