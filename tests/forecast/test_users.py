"""Several users in simulated time: an oracle, and the loop and the drafts of a real engine."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
from fakes.prompts import PROMPTS
from fakes.pycode import load

from localspec.control.drafter_cost import DrafterCost
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import PassCosts
from localspec.drafters.model_free import MODEL_FREE
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine
from localspec.forecast.answers import RecordedAnswer
from localspec.forecast.confidence import ConfidenceInterval
from localspec.forecast.recorded_drafts import (
    DEEPEST_RECORD,
    RecordedDraft,
    ReplayedDrafter,
    drafts_of_text,
)
from localspec.forecast.scored_answers import ScoredAnswers, score_answers
from localspec.forecast.simulation import Simulation
from localspec.forecast.timing import StepCosts, shared_decodes
from localspec.forecast.users import (
    DEPTHS,
    Group,
    World,
    auto,
    best_depth,
    fixed,
    forecast_users,
    group_ratio,
    simulate,
    world_of,
)
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Traits
from localspec.speculation.passes import run
from localspec.speculation.policy import Step
from localspec.stats import Stats

SAMPLER = Sampler(SamplingParams(), Noise(0))
HOST, FIRST, FURTHER = 0.25, 0.2, 0.1
# One decode of the drafter for 1, 2, ... texts, in decodes for one.
SHARED = {1: 1.0, 2: 1.2, 3: 1.5, 4: 2.0}
COMPUTER = object()


@dataclass
class Named:
    """What a replayed drafter takes its name and its traits from."""

    traits: Traits
    name: str = "drafter"


def pass_seconds(rows: int) -> float:
    return 1 + 0.1 * (rows - 1)


def costs(**more: Any) -> StepCosts:
    passes = {rows: pass_seconds(rows) for rows in range(1, 33)}
    drafter = DrafterCost(FIRST, FURTHER, 0.0, SHARED)
    return replace(StepCosts(passes, 0.0, HOST, {"drafter": drafter}), **more)


def answer(number: int, tokens: int) -> RecordedAnswer:
    return RecordedAnswer([1000 + number] * 3, list(range(tokens)), tokens, SAMPLER, Stats())


def world(rights: Sequence[Sequence[int]], *, unread: bool = False, **more: Any) -> World:
    """Texts, by how many tokens of the draft at each of their tokens are right.

    unread: whether the drafter has the prompts to read, which takes no time.
    """
    answers = [answer(number, len(right)) for number, right in enumerate(rights)]
    drafts = [
        [
            RecordedDraft([*range(place, place + run), *[-1] * 20], [])
            for place, run in enumerate(right)
        ]
        for right in rights
    ]
    named = Named(Traits(computer=lambda: COMPUTER, backlog=(lambda: 0) if unread else None))
    drafter = ReplayedDrafter(named, answers, drafts)  # type: ignore[arg-type]
    own: dict[str, Any] = {"costs": costs(), "guesses": {}, "clock": lambda: 0.0, **more}
    return World(answers, [drafter], **own)


def runs_of(rng: random.Random, tokens: int) -> list[int]:
    """How many tokens are right at each token, of drafts that share their ends."""
    found: list[int] = []
    while len(found) < tokens:
        run = rng.choice([0, 0, 1, 2, 5])
        found += range(run, -1, -1)
    return [min(run, tokens - place) for place, run in enumerate(found[:tokens])]


# The rounds.


def test_in_plain_decoding_the_rest_goes_on_without_a_text_that_has_ended() -> None:
    [group] = simulate(world([[0] * 2, [0] * 5]), 2, fixed(0))
    both, alone = pass_seconds(2) + 2 * HOST, pass_seconds(1) + HOST
    assert group.ended == pytest.approx([2 * both, 2 * both + 3 * alone])
    assert (group.tokens, group.drafted) == ([2, 5], 0)


def test_texts_share_the_seconds_of_their_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their rows: policies learn from their part what a step costs."""
    shares = []

    def learn(_: FixedDepth, step: Step) -> None:
        shares.append((step.width, step.share))

    monkeypatch.setattr(FixedDepth, "learn", learn)
    simulate(world([[2] * 3, [0] * 3]), 2, fixed(2))
    both = pass_seconds(6) / 6
    assert shares[:2] == [(3, pytest.approx(3 * both)), (3, pytest.approx(3 * both))]
    assert shares[2:] == [(2, pytest.approx(pass_seconds(2))), (1, pytest.approx(1.0))]


def test_a_step_takes_the_time_to_decide_and_to_learn_and_drafts_take_what_their_costs_say() -> (
    None
):
    """A draft takes what its costs say. Here each look at the clock takes a second."""
    rights = [[2] * 3]
    [still] = simulate(world(rights), 1, fixed(2))
    [timed] = simulate(world(rights, clock=count().__next__), 1, fixed(2))
    deciding, learning = 2, 1
    assert timed.seconds - still.seconds == pytest.approx(deciding + learning)


def test_prompts_are_read_first() -> None:
    [group] = simulate(world([[0]] * 2, reading=0.5), 2, fixed(0))
    assert group.reading == 0.5 * 6
    assert group.seconds == pytest.approx(3 + pass_seconds(2) + 2 * HOST)
    assert group.speeds == pytest.approx([1 / (pass_seconds(2) + 2 * HOST)] * 2)


def test_a_change_of_rows_costs_once_for_all() -> None:
    plain, switching = (
        simulate(world([[0] * 2, [0] * 5], costs=costs(switch=switch)), 2, fixed(0))[0]
        for switch in (0.0, 0.5)
    )
    assert switching.seconds == pytest.approx(plain.seconds + 2 * 0.5)


def oracle(rights: Sequence[Sequence[int]], depth: int) -> list[float]:
    """When each text is written, by sums over the rounds."""
    done, ended, now = [0] * len(rights), [0.0] * len(rights), 0.0
    while any(at < len(right) for at, right in zip(done, rights, strict=True)):
        active = [number for number, right in enumerate(rights) if done[number] < len(right)]
        drafts = {
            # The first step does not wait for a drafter that has the prompt to read.
            number: min(depth, len(rights[number]) - done[number] - 1) if done[number] else 0
            for number in active
        }
        for place in range(depth):
            if sharing := sum(length > place for length in drafts.values()):
                now += SHARED[sharing] * (FURTHER if place else FIRST)
        now += pass_seconds(sum(1 + length for length in drafts.values()))
        for number, length in drafts.items():
            tokens = 1 + min(length, rights[number][done[number]])
            done[number] += tokens
            now += tokens * HOST
        for number in active:
            ended[number] = now
    return ended


@pytest.mark.parametrize("users", [1, 2, 4])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_fixed_depth_takes_what_an_oracle_says(users: int, depth: int) -> None:
    rng = random.Random(users)
    for _ in range(10):
        rights = [runs_of(rng, rng.randrange(1, 30)) for _ in range(users)]
        [group] = simulate(world(rights, unread=True), users, fixed(depth))
        assert group.ended == pytest.approx(oracle(rights, depth))


def test_where_texts_share_nothing_each_waits_for_the_others() -> None:
    [apart] = simulate(world([[0] * 4] * 3, shares_decodes=False), 3, fixed(0))
    assert apart.seconds == pytest.approx(12 * (pass_seconds(1) + HOST))
    right = [list(range(7, -1, -1))]
    [apart], [alone] = (
        simulate(world(texts, shares_decodes=False), len(texts), fixed(3))
        for texts in (right * 3, right)
    )
    assert apart.seconds == pytest.approx(3 * alone.seconds)


def test_where_unequal_passes_share_nothing_only_equal_ones_do() -> None:
    rights = [[5, 4, 3, 2, 1, 0]] * 2
    together, apart = (
        simulate(world(rights, unequal_apart=each), 2, fixed(3))[0] for each in (False, True)
    )
    assert together.seconds == pytest.approx(apart.seconds)
    rights = [[5, 4, 3, 2, 1, 0], [0, 0]]
    together, apart = (
        simulate(world(rights, unequal_apart=each), 2, fixed(3))[0] for each in (False, True)
    )
    # Three drafted tokens beside one, then one beside none: the texts have no room for more.
    lost = pass_seconds(4) + pass_seconds(2) - pass_seconds(6)
    lost += pass_seconds(2) + pass_seconds(1) - pass_seconds(3)
    assert apart.seconds - together.seconds == pytest.approx(lost)


def test_policies_keep_what_they_learn_from_group_to_group() -> None:
    rights = [[0] * 30] * 8
    groups = simulate(world(rights, guesses={"drafter": 0.9}), 2, auto({"drafter": 0.9}))
    drafted = [each.drafted for each in groups]
    assert len(groups) == 4 and drafted[0] > drafted[-1]


# The forecast.


def test_texts_whose_drafts_are_right_gain_most_at_the_deepest() -> None:
    """Rows and drafts at no cost: what is drafted is all that counts."""
    free = costs(
        passes={rows: 1.0 for rows in range(1, 33)},
        drafters={"drafter": DrafterCost(1e-6, 1e-6, 0.0, SHARED)},
        host=0.0,
    )
    rights = [list(range(71, -1, -1))] * 6
    plain, adaptive, best = best_depth(forecast_users(world(rights, costs=free), 2))
    assert (plain.drafter, plain.speed_up.value, plain.acceptance) == ("plain", 1.0, None)
    assert best.depth == max(DEPTHS) and best.speed_up.value == pytest.approx(9, rel=0.01)
    assert adaptive.depth is None and adaptive.speed_up.value > 4
    assert adaptive.groups == 3 and adaptive.speed_up.low is not None


def test_the_slowest_text_is_the_one_that_gains_least() -> None:
    rights = [list(range(39, -1, -1)), [0] * 40]
    plain, _, best = best_depth(forecast_users(world(rights), 2))
    assert plain.slowest == plain.speed_up == ConfidenceInterval(1.0)
    [before], [after] = (simulate(world(rights), 2, fixed(each)) for each in (0, best.depth or 0))
    assert best.slowest.value == pytest.approx(before.ended[1] / after.ended[1])
    assert best.speed_up.value == pytest.approx(before.seconds / after.seconds)
    assert best.tokens_per_second == pytest.approx(80 / after.seconds)


def test_an_interval_takes_three_groups() -> None:
    assert group_ratio([2.0, 3.0], [1.0, 1.0]) == ConfidenceInterval(2.5)
    three = group_ratio([2.0, 3.0, 4.0], [1.0, 1.0, 1.0])
    assert three.value == 3 and three.low is not None and three.low < 3


def test_groups_that_share_prompts_have_no_interval() -> None:
    known = world([[0] * 4] * 6)
    assert forecast_users(known, 2)[0].speed_up.low == 1
    known.answers[4].prompt[:] = known.answers[0].prompt
    assert forecast_users(known, 2)[0].speed_up == ConfidenceInterval(1.0)


def test_without_drafters_there_is_only_plain_decoding() -> None:
    known = world([[0] * 4] * 2)
    found = forecast_users(replace(known, drafters=[]), 2)
    assert [each.drafter for each in found] == ["plain"]


def test_left_over_texts_are_in_no_group() -> None:
    assert world([[0]] * 7).groups(3) == [range(3), range(3, 6)]


# A real engine.


SETTINGS: GenerationOptions = {"max_tokens": 24, "temperature": 0.8, "seed": 5}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with load(threads=1, context=512, flash_attention=True) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def scored(engine: Engine) -> ScoredAnswers:
    with engine.slots.own.new_context(GenerationConfig.of(**SETTINGS)) as context:
        return score_answers(engine, context, PROMPTS[:2], SETTINGS)


def real_costs(name: str) -> StepCosts:
    free = {each: DrafterCost(first=0.001) for each in MODEL_FREE}
    return costs(drafters={**free, name: DrafterCost(0.04, 0.04, 0.001, SHARED)}, host=0.1)


def test_recorded_drafts_are_those_of_the_drafter_at_each_token(scored: ScoredAnswers) -> None:
    model, text = scored.model, scored.answers[0]
    assert model and scored.scored[0].drawn is not None
    recorded = drafts_of_text(model, text, [*scored.scored[0].drawn])
    assert len(recorded) == len(text.tokens)
    for place, each in enumerate(recorded):
        before, seen = text.text[: len(text.prompt) + place], list[float]()
        model.begin(before)
        limit = Limit(3, text.sampler.prefix(before), text.sampler)
        drawn = drawn_by(model, limit, seen)
        assert drawn.tokens == [*each.tokens[:3]]
        assert seen == pytest.approx(each.confidences[:3], abs=0.05)


def drawn_by(model: Any, limit: Limit, seen: list[float]) -> Draft:
    def go_on(confidence: float) -> bool:
        seen.append(confidence)
        return True

    return run(model.passes(limit.to(limit.depth, go_on)))


def test_one_user_takes_the_steps_of_the_simulation_with_the_real_drafter(
    engine: Engine, scored: ScoredAnswers
) -> None:
    assert scored.model
    known = real_costs(scored.model.name)
    drafters = [Suffix(max_replaced=0), scored.model]
    real = Simulation(drafters, known, {}, clock=lambda: 0.0)
    steps = []
    for each in scored.answers:
        engine.drafter_set.sequences[scored.model.name].truncate(0)
        steps.append(real.run(each))
    made = world_of(engine, scored, known, 2)
    groups = simulate(timeless(made, known), 1, auto({}))
    for group, each in zip(groups, steps, strict=True):
        assert group.drafted == sum(step.drafted for step in each)
        assert group.accepted == sum(step.accepted for step in each)
        assert group.ended[0] - group.reading == pytest.approx(sum(step.seconds for step in each))


def timeless(given: World, known: StepCosts) -> World:
    """The same world at known costs, whose policies take no time and know nothing."""
    return replace(given, costs=known, guesses={}, clock=lambda: 0.0)


def test_beside_others_a_fixed_depth_takes_the_steps_of_a_real_text(
    engine: Engine, scored: ScoredAnswers
) -> None:
    assert scored.model
    known = real_costs(scored.model.name)
    made = timeless(world_of(engine, scored, known, 2), known)
    [group] = simulate(made, 2, fixed(3))
    real = []
    for number, each in enumerate(scored.answers):
        # In the forecast nothing is remembered of other texts, and the prompt is not read yet.
        engine.drafter_set.drafters[0].__init__()  # type: ignore[misc]
        engine.drafter_set.sequences[scored.model.name].truncate(0)
        settings: GenerationOptions = {**SETTINGS, "seed": 5 + number, "depth": 3}
        real.append(engine.generate(each.prompt, **settings).stats)
    assert group.drafted == sum(each.drafted for each in real)
    assert group.accepted == sum(each.accepted for each in real)


def test_decodes_for_several_texts_are_measured(engine: Engine, scored: ScoredAnswers) -> None:
    assert scored.model
    sequence = engine.drafter_set.sequences[scored.model.name]
    found = shared_decodes(sequence, scored.answers, 5)
    assert [*found] == [1, 2, 3, 4, 5] and min(found.values()) > 0
    assert [*shared_decodes(sequence, scored.answers, 1)] == [1]


def test_the_world_of_an_engine(engine: Engine, scored: ScoredAnswers) -> None:
    assert scored.model
    made = world_of(engine, scored, real_costs(scored.model.name), 2)
    assert made.shares_decodes and not made.unequal_apart and made.reading > 0
    assert [each.name for each in made.drafters] == ["suffix", scored.model.name]
    similar = made.costs.drafters[scored.model.name].similar
    assert PassCosts(similar, pads=False).seconds(2) > 0
    [group] = simulate(made, 2, auto(made.guesses))
    assert isinstance(group, Group) and group.seconds > 0
    assert max(DEPTHS) == DEEPEST_RECORD
