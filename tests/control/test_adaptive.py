"""The controller in worlds of known costs: what it gains, and what it can never lose."""

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from fakes.world import CURVES, MARGIN_OF, Clock, Copier, Talker, World
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import candidate as candidate_module
from localspec.control.adaptive import Explanation
from localspec.control.loss_budget import LossBudget
from localspec.speculation.policy import Step

ALLOWANCE, SLACK = LossBudget.ALLOWANCE, LossBudget.OVERDRAFT + LossBudget.MOST


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(candidate_module, "perf_counter", clock)
    return clock


def coin(chance: float, seed: int = 0) -> Callable[[], bool]:
    rng = random.Random(seed)
    return lambda: rng.random() < chance


def tokens_per_second(steps: Iterator[tuple[Step, float]]) -> float:
    done = list(steps)
    return sum(len(step.tokens) for step, _ in done) / done[-1][1]


def best_fixed(curve: str, chance: float, first: float, further: float) -> float:
    """Tokens per second of the best fixed depth, worked out."""
    rates = [1.0]
    for depth in range(1, 16):
        expected = sum(chance**i for i in range(depth + 1))
        rates.append(expected / (CURVES[curve][depth + 1] + first + (depth - 1) * further))
    return max(rates)


# What it gains.


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.7, 0.9, 0.98])
def test_it_is_as_good_as_the_best_fixed_depth(curve: str, chance: float, clock: Clock) -> None:
    talker = Talker(clock, coin(chance))
    world = World(clock, curve)
    rate = tokens_per_second(world.steps(world.controller(talker), 4000))
    assert rate > 0.95 * best_fixed(curve, chance, talker.first, talker.further)


def test_confidence_beats_every_fixed_depth(clock: Clock) -> None:
    """Half of the tokens are hard, and the drafter knows which."""
    talker = Talker(clock, coin(0.75), telling=lambda right: MARGIN_OF[right])
    world = World(clock, "cpu")
    rate = tokens_per_second(world.steps(world.controller(talker), 4000))
    assert rate > 1.1 * best_fixed("cpu", 0.75, talker.first, talker.further)


def test_what_is_free_and_always_right_is_used_at_once(clock: Clock) -> None:
    world = World(clock, "gpu")
    controller = world.controller(Copier(lambda: 31, lambda: True))
    assert tokens_per_second(world.steps(controller, 2000)) > 8


def test_of_two_the_better_is_chosen_step_by_step(clock: Clock) -> None:
    """The copier now and then has a long and right copy; the talker is always middling."""
    rng = random.Random(3)
    copier = Copier(lambda: 8 if rng.random() < 0.3 else 0, lambda: True)
    world = World(clock, "cpu")
    both = world.controller(copier, Talker(clock, coin(0.7)))
    together = tokens_per_second(world.steps(both, 4000))
    clock.now = 0.0
    alone = tokens_per_second(world.steps(world.controller(Talker(clock, coin(0.7))), 4000))
    assert together > 1.15 * alone


def test_a_draft_between_two_stairs_is_padded_to_the_next(clock: Clock) -> None:
    world = World(clock, "stairs")
    widths = world.controller()._passes
    assert [widths.padded(n) for n in (1, 2, 3, 4, 6, 8)] == [1, 4, 4, 4, 8, 8]
    assert widths.seconds(2) == widths.seconds(4) == pytest.approx(1.7)


def test_fewer_are_verified_than_drafted_where_that_is_cheaper(clock: Clock) -> None:
    """A token of which the drafter, once it is drawn, is not at all sure, is left out."""
    answers = itertools.cycle([True, True, False])
    talker = Talker(clock, lambda: next(answers), telling=lambda right: MARGIN_OF[right])
    world = World(clock, "moe")
    controller = world.controller(talker)
    kept = [(len(s.drafted), s.verified) for s, _ in itertools.islice(world.steps(controller), 99)]
    assert any(verified < drafted for drafted, verified in kept)


# What it can never lose.


@settings(max_examples=60)
@given(
    curve=st.sampled_from(sorted(CURVES)),
    pattern=st.lists(st.booleans(), min_size=1, max_size=40),
    lies=st.booleans(),
    further=st.sampled_from([0.0, 0.05, 0.3, 1.5]),
)
def test_no_stretch_takes_much_longer_than_plain_decoding(
    curve: str, pattern: list[bool], lies: bool, further: float
) -> None:
    """Acceptance and confidence as an adversary wants them; times are as measured before."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidate_module, "perf_counter", clock)
        answers = itertools.cycle(pattern)
        talker = Talker(
            clock,
            lambda: next(answers),
            first=2 * further,
            further=further,
            telling=lambda right: MARGIN_OF[right != lies],
        )
        copier = Copier(lambda: 5, lambda: next(answers))
        world = World(clock, curve)
        assert worst_excess(world.steps(world.controller(copier, talker), 1500)) <= SLACK + 1e-6


def worst_excess(steps: Iterator[tuple[Step, float]]) -> float:
    """Over all stretches, the most time beyond (1 + ALLOWANCE) x that of plain decoding."""
    balance = lowest = worst = 0.0
    before = 0.0
    for step, now in steps:
        balance += (now - before) - (1 + ALLOWANCE) * len(step.tokens)
        worst = max(worst, balance - lowest)
        lowest = min(lowest, balance)
        before = now
    return worst


@pytest.mark.parametrize("curve", CURVES)
def test_a_hopeless_drafter_costs_next_to_nothing(curve: str, clock: Clock) -> None:
    world = World(clock, curve)
    rate = tokens_per_second(world.steps(world.controller(Talker(clock, coin(0.02))), 3000))
    assert rate > 0.97


@pytest.mark.parametrize("curve", CURVES)
def test_times_that_jump_about_do_not_unsettle_it(curve: str, clock: Clock) -> None:
    """One pass in ten takes three times as long, as on a machine with other things to do."""
    rng = random.Random(5)
    noise = (3.0 if rng.random() < 0.1 else rng.uniform(0.9, 1.1) for _ in itertools.count())
    world = World(clock, curve, noise=noise)
    rate = tokens_per_second(world.steps(world.controller(Talker(clock, coin(0.02))), 3000))
    assert rate > 0.95 / 1.2


def test_a_pass_that_turns_out_dearer_than_measured_ends_drafting(clock: Clock) -> None:
    """The profile was a GPU's, but passes cost what a MoE's do."""
    world = World(clock, "gpu")
    controller = world.controller(Talker(clock, coin(0.5)))
    world.curve = "moe"
    done = list(itertools.islice(world.steps(controller), 600))
    tokens = sum(len(step.tokens) for step, _ in done[100:])
    assert tokens / (done[-1][1] - done[99][1]) > 0.95


@pytest.mark.parametrize("when", [0, 1, 40])
def test_one_hiccup_of_the_machine_does_not_end_drafting(when: int, clock: Clock) -> None:
    """A pass that takes as long as a hundred, with a draft or without."""
    noise = (100.0 if step == when else 1.0 for step in itertools.count())
    world = World(clock, "gpu", noise=noise)
    steps = list(world.steps(world.controller(Talker(clock, coin(0.9))), 400))
    late = [step for step, _ in steps if step.seconds < 50][when + 5 :]
    assert sum(len(step.tokens) for step in late) > 2.5 * len(late)


# Trying again.


def test_a_drafter_that_becomes_good_is_found_out(clock: Clock) -> None:
    good = False
    talker = Talker(clock, lambda: good)
    world = World(clock, "gpu")
    steps = world.steps(world.controller(talker))
    for _ in range(500):
        next(steps)
    good = True
    lengths = [len(next(steps)[0].tokens) for _ in range(200)]
    assert sum(lengths[-20:]) > 60


def test_trials_become_rare(clock: Clock) -> None:
    world = World(clock, "cpu")
    controller = world.controller(Talker(clock, lambda: False))
    drafted = [bool(step.drafted) for step, _ in itertools.islice(world.steps(controller), 1000)]
    assert sum(drafted[500:]) <= 5
    assert any(drafted[500:])


def test_a_plain_step_is_taken_now_and_then(clock: Clock) -> None:
    world = World(clock, "gpu")
    controller = world.controller(Copier(lambda: 7, lambda: True))
    steps = [step for step, _ in itertools.islice(world.steps(controller), 600)]
    assert sum(not step.verified for step in steps) == 2


# Reading a long text first.


@pytest.mark.parametrize(("left", "reads"), [(40, False), (4000, True)])
def test_a_long_text_is_read_only_if_that_can_pay(left: int, reads: bool, clock: Clock) -> None:
    talker = Talker(clock, coin(0.8), backlog=2000)
    world = World(clock, "gpu")
    controller = world.controller(talker)
    assert any(step.drafted for step, _ in world.steps(controller, left)) is reads


@pytest.mark.parametrize(("slow", "reads"), [(1.0, False), (10.0, False), (1.0, True)])
def test_what_slows_the_target_slows_the_reading(slow: float, reads: bool, clock: Clock) -> None:
    """A longer text than the one costs were measured with: what can be saved is more, and so is
    what reading costs.
    """
    talker = Talker(clock, coin(0.8), backlog=2000)
    world = World(clock, "gpu", noise=iter(lambda: slow, None))
    controller = world.controller(talker)
    left = 1000 if reads else 60
    assert any(step.drafted for step, _ in world.steps(controller, left)) is reads


def test_curiosity_adds_up_over_short_texts(clock: Clock) -> None:
    """None of them alone is worth reading for a drafter of which little is hoped."""
    talker = Talker(clock, coin(0.97), first=0.3, further=0.25)
    world = World(clock, "moe")
    controller = world.controller(talker)
    drafted, took = [], []
    for _ in range(30):
        talker.backlog, began = 100, clock.now
        controller.begin()
        steps = [step for step, _ in world.steps(controller, 40)]
        drafted.append(any(step.drafted for step in steps))
        took.append(clock.now - began)
    first = drafted.index(True)
    assert 1 < first < 10 and all(drafted[first + 1 :])
    # At what the first guess promises, each step after that would have cost more than plain ones.
    assert all(each == 40 for each in took[:first]) and max(took[first:]) < 40


def test_no_reading_for_tokens_that_may_be_written_but_hardly_will(clock: Clock) -> None:
    """A chat allows an answer as long as the context; it seldom is."""
    talker = Talker(clock, coin(0.7), backlog=3000, each=0.03)
    controller = World(clock).controller(talker)
    World(clock).write(controller, 60, most=5000)
    assert clock.now == 60


def test_a_long_text_that_goes_on_is_read_after_all(clock: Clock) -> None:
    talker = Talker(clock, coin(0.9), backlog=3000, each=0.03)
    world = World(clock, "gpu")
    steps = list(world.steps(world.controller(talker), 4000))
    assert 50 < next(i for i, (step, _) in enumerate(steps) if step.drafted) < 200


@pytest.mark.parametrize("each", [0.01, 0.03, 0.05])
@pytest.mark.parametrize("chance", [0.1, 0.3])
def test_an_answer_that_was_hard_is_not_the_end_of_drafting(
    chance: float, each: float, clock: Clock
) -> None:
    """Every answer's text is one more that a drafter at rest has not read."""
    talker = Talker(clock, coin(chance), each=each)
    world = World(clock, "gpu")
    controller = world.controller(talker)
    world.write(controller, 250)
    talker.right, began = coin(0.9), clock.now
    for _ in range(5):
        talker.backlog += 30
        world.write(controller, 200)
    assert 5 * 200 / (clock.now - began) > 2.3


@pytest.mark.parametrize("each", [0.01, 0.03, 0.05])
def test_a_drafter_that_is_never_right_costs_little_over_many_answers(
    each: float, clock: Clock
) -> None:
    talker = Talker(clock, coin(0.1), each=each)
    world = World(clock)
    controller = world.controller(talker)
    for _ in range(15):
        talker.backlog += 30
        world.write(controller, 200)
    assert 15 * 200 / clock.now > 0.96


@pytest.mark.parametrize("each", [0.03, 0.05, 0.1])
@pytest.mark.parametrize("curve", CURVES)
def test_catching_up_is_on_the_account(curve: str, each: float, clock: Clock) -> None:
    talker = Talker(clock, coin(0.1), each=each)
    world = World(clock, curve)
    world.write(world.controller(talker), 3000)
    assert clock.now <= (1 + ALLOWANCE) * 3000 + SLACK


# Estimates that are wrong are found out.


def test_a_drafter_without_hope_may_have_some_later(clock: Clock) -> None:
    talker = Talker(clock, lambda: False)
    world = World(clock, "gpu")
    controller = world.controller(talker)
    world.write(controller, 4000)
    talker.right = coin(0.9)
    steps = [step for step, _ in world.steps(controller, 3000)]
    assert sum(bool(step.drafted) for step in steps[-100:]) > 90


@pytest.mark.parametrize("believed", [0.5, 1.0])
def test_what_a_further_token_takes_is_looked_at(believed: float, clock: Clock) -> None:
    talker = Talker(clock, coin(0.9))
    world = World(clock, "gpu")
    controller = world.controller(talker)
    controller.candidates[0].cost.further = believed
    assert tokens_per_second(world.steps(controller, 2000)) > 2.5


# What it says.


def test_every_step_is_explained(clock: Clock) -> None:
    said: list[Explanation] = []
    world = World(clock, "gpu")
    controller = world.controller(Talker(clock, coin(0.8)), explain=said.append)
    steps = list(world.steps(controller, 200))
    assert len(said) == len(steps)
    for decision, (step, _) in zip(said, steps, strict=True):
        assert (decision.drafter is None) == (not step.drafted)
    drafting = [decision for decision in said if decision.drafter]
    assert all(each.rate > each.plain_rate for each in drafting if each.reason == "promises most")


def test_nothing_is_drafted_beyond_the_deepest(clock: Clock) -> None:
    world = World(clock, "gpu")
    controller = world.controller(Talker(clock, lambda: True), deepest=3)
    assert max(len(step.drafted) for step, _ in world.steps(controller, 300)) == 3


def test_what_drafts_make_a_plain_pass_evaluate_again_is_a_price_of_drafting(clock: Clock) -> None:
    """It is no news of what plain decoding costs, but the loss_budget pays for it."""
    world = World(clock, next(iter(CURVES)))
    controller = world.controller(Talker(clock, coin(0.5)))
    plain, allowed = controller._passes.seconds(1), controller.loss_budget.available(1.0)
    for _ in range(12):
        controller.learn(Step((), 0, 1, (5,), 1.5 * plain, 0.0, again=3))
    assert controller._passes.seconds(1) == plain
    assert controller.loss_budget.available(1.0) < allowed
