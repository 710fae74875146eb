"""The adaptive policy on simulated machines: its gain, and the bound on its loss."""

import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from fakes.machine import CURVES, MARGIN_OF, CheapDrafter, CostlyDrafter, FakeClock, Machine
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.explanation import Explanation
from localspec.control.loss_budget import LossBudget
from localspec.speculation.policy import Step
from localspec.stats import Stats

ALLOWANCE, SLACK = LossBudget.ALLOWANCE, LossBudget.OVERDRAFT + LossBudget.MAX_BALANCE


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def coin(chance: float, seed: int = 0) -> Callable[[], bool]:
    rng = random.Random(seed)
    return lambda: rng.random() < chance


def tokens_per_second(steps: Iterator[tuple[Step, float]]) -> float:
    done = list(steps)
    return sum(len(step.tokens) for step, _ in done) / done[-1][1]


def best_fixed(curve: str, chance: float, first: float, further: float) -> float:
    """Tokens per second of the best fixed depth, computed."""
    rates = [1.0]
    for depth in range(1, 16):
        expected = sum(chance**i for i in range(depth + 1))
        rates.append(expected / (CURVES[curve][depth + 1] + first + (depth - 1) * further))
    return max(rates)


# Gain.


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("chance", [0.05, 0.5, 0.7, 0.9, 0.98])
def test_it_is_as_good_as_the_best_fixed_depth(curve: str, chance: float, clock: FakeClock) -> None:
    costly = CostlyDrafter(clock, coin(chance))
    machine = Machine(clock, curve)
    rate = tokens_per_second(machine.steps(machine.policy(costly), 4000))
    assert rate > 0.95 * best_fixed(curve, chance, costly.first, costly.further)


def test_no_token_behind_the_deepest_is_counted(clock: FakeClock) -> None:
    costly = CostlyDrafter(clock, coin(1), deepest=3)
    machine = Machine(clock, "gpu")
    steps = [step for step, _ in machine.steps(machine.policy(costly), 400)]
    assert max(len(step.drafted) for step in steps) == 3


def test_confidence_beats_every_fixed_depth(clock: FakeClock) -> None:
    """Half of the tokens are hard, and the drafter knows which."""
    costly = CostlyDrafter(clock, coin(0.75), margin=lambda right: MARGIN_OF[right])
    machine = Machine(clock, "cpu")
    rate = tokens_per_second(machine.steps(machine.policy(costly), 4000))
    assert rate > 1.1 * best_fixed("cpu", 0.75, costly.first, costly.further)


def test_a_cheap_drafter_that_is_always_right_is_used_at_once(clock: FakeClock) -> None:
    machine = Machine(clock, "gpu")
    policy = machine.policy(CheapDrafter(lambda: 31, lambda: True))
    assert tokens_per_second(machine.steps(policy, 2000)) > 8


def test_of_two_the_better_is_chosen_step_by_step(clock: FakeClock) -> None:
    """The cheap drafter sometimes has a long right draft; the other is always fairly good."""
    rng = random.Random(3)
    cheap = CheapDrafter(lambda: 8 if rng.random() < 0.3 else 0, lambda: True)
    machine = Machine(clock, "cpu")
    both = machine.policy(cheap, CostlyDrafter(clock, coin(0.7)))
    together = tokens_per_second(machine.steps(both, 4000))
    clock.now = 0.0
    alone = tokens_per_second(machine.steps(machine.policy(CostlyDrafter(clock, coin(0.7))), 4000))
    assert together > 1.15 * alone


def test_a_pass_is_padded_to_a_wider_one_that_is_faster(clock: FakeClock) -> None:
    machine = Machine(clock, "stairs")
    costs = machine.policy()._passes
    assert [costs.padded(n) for n in (1, 2, 3, 4, 6, 8)] == [1, 4, 4, 4, 8, 8]
    assert costs.seconds(2) == costs.seconds(4) == pytest.approx(1.7)


@pytest.mark.parametrize(("deepest", "widths"), [(3, [1, 4, 4, 4]), (2, [1, 2, 3]), (1, [1, 2])])
def test_no_pass_is_padded_to_a_width_that_nobody_chose(
    clock: FakeClock, deepest: int, widths: list[int]
) -> None:
    """Four rows are quicker than two or three; three are not."""
    costs = CostModel(Machine(clock, "stairs").policy()._passes, {})
    policy = AdaptivePolicy([], costs, deepest=deepest)
    assert [policy.padded(rows) for rows in range(1, deepest + 2)] == widths


def test_fewer_are_verified_than_drafted_where_that_is_cheaper(clock: FakeClock) -> None:
    """A drafted token with low confidence is not verified."""
    answers = itertools.cycle([True, True, False])
    costly = CostlyDrafter(clock, lambda: next(answers), margin=lambda right: MARGIN_OF[right])
    machine = Machine(clock, "moe")
    policy = machine.policy(costly)
    kept = [(len(s.drafted), s.verified) for s, _ in itertools.islice(machine.steps(policy), 99)]
    assert any(verified < drafted for drafted, verified in kept)


# Bound on the loss.


@pytest.mark.slow
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
    """An adversary chooses acceptance and confidence; all times are as measured before."""
    clock = FakeClock()
    answers = itertools.cycle(pattern)
    costly = CostlyDrafter(
        clock,
        lambda: next(answers),
        first=2 * further,
        further=further,
        margin=lambda right: MARGIN_OF[right != lies],
    )
    cheap = CheapDrafter(lambda: 5, lambda: next(answers))
    machine = Machine(clock, curve)
    assert worst_excess(machine.steps(machine.policy(cheap, costly), 1500)) <= SLACK + 1e-6


def worst_excess(steps: Iterator[tuple[Step, float]]) -> float:
    """The most time beyond (1 + ALLOWANCE) x that of plain decoding, over all parts of the text."""
    balance = lowest = worst = 0.0
    before = 0.0
    for step, now in steps:
        balance += (now - before) - (1 + ALLOWANCE) * len(step.tokens)
        worst = max(worst, balance - lowest)
        lowest = min(lowest, balance)
        before = now
    return worst


@pytest.mark.parametrize("curve", CURVES)
def test_a_hopeless_drafter_costs_next_to_nothing(curve: str, clock: FakeClock) -> None:
    machine = Machine(clock, curve)
    rate = tokens_per_second(machine.steps(machine.policy(CostlyDrafter(clock, coin(0.02))), 3000))
    assert rate > 0.97


@pytest.mark.parametrize("curve", CURVES)
def test_noisy_times_cost_little(curve: str, clock: FakeClock) -> None:
    """One pass in ten takes three times as long, as on a busy machine."""
    rng = random.Random(5)
    noise = (3.0 if rng.random() < 0.1 else rng.uniform(0.9, 1.1) for _ in itertools.count())
    machine = Machine(clock, curve, noise=noise)
    rate = tokens_per_second(machine.steps(machine.policy(CostlyDrafter(clock, coin(0.02))), 3000))
    assert rate > 0.95 / 1.2


def test_a_pass_that_turns_out_dearer_than_measured_ends_drafting(clock: FakeClock) -> None:
    """The profile is that of a GPU, but passes take as long as those of a MoE."""
    machine = Machine(clock, "gpu")
    policy = machine.policy(CostlyDrafter(clock, coin(0.5)))
    machine.curve = "moe"
    done = list(itertools.islice(machine.steps(policy), 600))
    tokens = sum(len(step.tokens) for step, _ in done[100:])
    assert tokens / (done[-1][1] - done[99][1]) > 0.95


@pytest.mark.parametrize("slow", [100.0, 3600e3])
@pytest.mark.parametrize("when", [0, 1, 40])
@pytest.mark.parametrize("drafts", [False, True])
def test_one_slow_step_does_not_end_drafting(
    slow: float, when: int, drafts: bool, clock: FakeClock
) -> None:
    """One pass or one draft takes as long as many: a busy machine, or one that slept an hour."""
    count = itertools.count()

    def right() -> bool:
        clock.now += slow if drafts and next(count) == 5 * when else 0.0
        return answer()

    answer = coin(0.9)
    noise = (slow if not drafts and step == when else 1.0 for step in itertools.count())
    machine = Machine(clock, "gpu", noise=noise)
    steps = list(machine.steps(machine.policy(CostlyDrafter(clock, right)), 400))
    assert sum(step.seconds > 50 for step, _ in steps) == 1
    late = [step for step, _ in steps if step.seconds < 50][when + 5 :]
    assert sum(len(step.tokens) for step in late) > 2.5 * len(late)


# Trials.


def test_a_drafter_that_becomes_good_drafts_again(clock: FakeClock) -> None:
    good = False
    costly = CostlyDrafter(clock, lambda: good)
    machine = Machine(clock, "gpu")
    steps = machine.steps(machine.policy(costly))
    for _ in range(500):
        next(steps)
    good = True
    lengths = [len(next(steps)[0].tokens) for _ in range(200)]
    assert sum(lengths[-20:]) > 60


def test_trials_become_rare(clock: FakeClock) -> None:
    machine = Machine(clock, "cpu")
    policy = machine.policy(CostlyDrafter(clock, lambda: False))
    drafted = [bool(step.drafted) for step, _ in itertools.islice(machine.steps(policy), 1000)]
    assert sum(drafted[500:]) <= 5
    assert any(drafted[500:])


def test_a_plain_step_is_taken_now_and_then(clock: FakeClock) -> None:
    machine = Machine(clock, "gpu")
    policy = machine.policy(CheapDrafter(lambda: 7, lambda: True))
    steps = [step for step, _ in itertools.islice(machine.steps(policy), 600)]
    plain = [number for number, step in enumerate(steps) if not step.verified]
    # Until plain steps are measured, they are taken sooner.
    measured = plain[:-2]
    assert len(measured) == 3 and measured[-1] < 16


def test_plain_passes_that_become_quicker_are_noticed(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program has used the memory, which drafted passes need no more of than plain ones."""
    machine = Machine(clock, "gpu")
    steps = machine.steps(machine.policy(CostlyDrafter(clock, coin(0.35))))
    assert sum(step.verified > 0 for step, _ in itertools.islice(steps, 500)) > 450
    monkeypatch.setitem(CURVES, "gpu", [0.0, 0.5, *CURVES["gpu"][2:]])
    began, tokens = clock.now, 0
    while tokens < 1000:
        tokens += len(next(steps)[0].tokens)
    assert clock.now - began < 1.1 * 0.5 * tokens


# What plain steps would have taken.


@pytest.mark.parametrize("wrong", [1 / 4, 1, 4])
def test_the_plain_time_of_a_text_is_by_plain_steps_at_its_length(
    clock: FakeClock, wrong: float
) -> None:
    """Passes slow down as the text grows, others keep the machine busy, the profile is wrong."""
    rng = random.Random(1)
    slowdown = [(1 + n / 500) * (20 if rng.random() < 0.1 else 1) for n in range(1000)]
    machine = Machine(clock, "gpu", noise=slowdown)
    policy = machine.policy(CheapDrafter(lambda: 7, lambda: True))
    machine.plain, stats, exact = wrong, Stats(), 0.0
    for number, (step, _) in enumerate(itertools.islice(machine.steps(policy), 1000)):
        stats.add_plain(len(step.tokens), policy.plain_time(step))
        exact += len(step.tokens) * wrong * slowdown[number] * (stats.plain_tokens > 0)
    assert stats.seconds.plain == pytest.approx(exact, rel=0.05)


def test_the_plain_time_is_not_known_before_plain_steps_were_measured(clock: FakeClock) -> None:
    machine = Machine(clock, "gpu")
    policy = machine.policy(CheapDrafter(lambda: 7, lambda: True))
    stats = Stats()
    for step, _ in itertools.islice(machine.steps(policy), 30):
        stats.generated_tokens += len(step.tokens)
        stats.add_plain(len(step.tokens), policy.plain_time(step))
        if stats.seconds.plain is not None:
            break
        assert stats.gain is None and stats.plain_step is None
    assert stats.plain_step == pytest.approx(machine.plain)
    assert stats.generated_tokens > stats.plain_tokens > 0


# Reading a long text before the first draft.


@pytest.mark.parametrize(("left", "reads"), [(40, False), (4000, True)])
def test_a_long_text_is_read_only_if_that_can_pay(left: int, reads: bool, clock: FakeClock) -> None:
    costly = CostlyDrafter(clock, coin(0.8), backlog=2000)
    machine = Machine(clock, "gpu")
    policy = machine.policy(costly)
    assert any(step.drafted for step, _ in machine.steps(policy, left)) is reads


@pytest.mark.parametrize(("slow", "reads"), [(1.0, False), (10.0, False), (1.0, True)])
def test_what_slows_the_target_slows_the_reading(
    slow: float, reads: bool, clock: FakeClock
) -> None:
    """On a long text drafting saves more time per token, and reading takes more time too."""
    costly = CostlyDrafter(clock, coin(0.8), backlog=2000)
    machine = Machine(clock, "gpu", noise=iter(lambda: slow, None))
    policy = machine.policy(costly)
    left = 1000 if reads else 60
    assert any(step.drafted for step, _ in machine.steps(policy, left)) is reads


def test_the_exploration_budget_adds_up_over_short_texts(clock: FakeClock) -> None:
    """Each text alone is too short to pay for reading it."""
    costly = CostlyDrafter(clock, coin(0.97), first=0.3, further=0.25)
    machine = Machine(clock, "moe")
    policy = machine.policy(costly)
    drafted, took = [], []
    for _ in range(30):
        costly.backlog, began = 100, clock.now
        policy.begin()
        steps = [step for step, _ in machine.steps(policy, 40)]
        drafted.append(any(step.drafted for step in steps))
        took.append(clock.now - began)
    first = drafted.index(True)
    assert 1 < first < 10 and all(drafted[first + 1 :])
    # By the first guess of the acceptance rate, each of these steps would be slower than plain.
    assert all(each == 40 for each in took[:first]) and max(took[first:]) < 40


def test_no_reading_for_tokens_that_are_allowed_but_unlikely(clock: FakeClock) -> None:
    """A chat allows an answer as long as the context; few answers are."""
    costly = CostlyDrafter(clock, coin(0.7), backlog=3000, each=0.03)
    policy = Machine(clock).policy(costly)
    Machine(clock).write(policy, 60, most=5000)
    assert clock.now == 60


def test_a_long_text_is_read_once_the_answer_is_long(clock: FakeClock) -> None:
    costly = CostlyDrafter(clock, coin(0.9), backlog=3000, each=0.03)
    machine = Machine(clock, "gpu")
    steps = list(machine.steps(machine.policy(costly), 4000))
    assert 50 < next(i for i, (step, _) in enumerate(steps) if step.drafted) < 200


@pytest.mark.parametrize("each", [0.01, 0.03, 0.05])
@pytest.mark.parametrize("chance", [0.1, 0.3])
def test_drafting_starts_again_after_a_hard_answer(
    chance: float, each: float, clock: FakeClock
) -> None:
    """The drafter has not read any answer in which it did not draft."""
    costly = CostlyDrafter(clock, coin(chance), each=each)
    machine = Machine(clock, "gpu")
    policy = machine.policy(costly)
    machine.write(policy, 250)
    costly.right, began = coin(0.9), clock.now
    for _ in range(5):
        costly.backlog += 30
        machine.write(policy, 200)
    assert 5 * 200 / (clock.now - began) > 2.3


@pytest.mark.parametrize("each", [0.01, 0.03, 0.05])
def test_a_drafter_that_is_never_right_costs_little_over_many_answers(
    each: float, clock: FakeClock
) -> None:
    costly = CostlyDrafter(clock, coin(0.1), each=each)
    machine = Machine(clock)
    policy = machine.policy(costly)
    for _ in range(15):
        costly.backlog += 30
        machine.write(policy, 200)
    assert 15 * 200 / clock.now > 0.96


@pytest.mark.parametrize("each", [0.03, 0.05, 0.1])
@pytest.mark.parametrize("curve", CURVES)
def test_catching_up_is_charged_to_the_loss_budget(
    curve: str, each: float, clock: FakeClock
) -> None:
    costly = CostlyDrafter(clock, coin(0.1), each=each)
    machine = Machine(clock, curve)
    machine.write(machine.policy(costly), 3000)
    assert clock.now <= (1 + ALLOWANCE) * 3000 + SLACK


# Wrong estimates are corrected.


def test_a_drafter_that_failed_may_succeed_later(clock: FakeClock) -> None:
    costly = CostlyDrafter(clock, lambda: False)
    machine = Machine(clock, "gpu")
    policy = machine.policy(costly)
    machine.write(policy, 4000)
    costly.right = coin(0.9)
    steps = [step for step, _ in machine.steps(policy, 3000)]
    assert sum(bool(step.drafted) for step in steps[-100:]) > 90


@pytest.mark.parametrize("believed", [0.5, 1.0])
def test_a_wrong_cost_of_further_tokens_is_corrected(believed: float, clock: FakeClock) -> None:
    costly = CostlyDrafter(clock, coin(0.9))
    machine = Machine(clock, "gpu")
    policy = machine.policy(costly)
    policy.candidates[0].cost.further = believed
    assert tokens_per_second(machine.steps(policy, 2000)) > 2.5


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("chance", [0.5, 0.9])
def test_the_cost_of_a_draft_in_one_pass_stays_right_at_every_depth(
    curve: str, chance: float, clock: FakeClock
) -> None:
    parallel = CostlyDrafter(clock, coin(chance), further=0.08, parallel=True)
    machine = Machine(clock, curve)
    policy = machine.policy(parallel)
    believed = [policy.candidates[0].cost.of(depth) for depth in range(1, 17)]
    rate = tokens_per_second(machine.steps(policy, 2000))
    cost = policy.candidates[0].cost
    assert [cost.of(depth) for depth in range(1, 17)] == pytest.approx(believed)
    assert rate > 0.93 * best_fixed(curve, chance, parallel.first, parallel.further)


def test_a_wrong_cost_of_drafts_in_one_pass_is_corrected(clock: FakeClock) -> None:
    parallel = CostlyDrafter(clock, coin(0.9), first=0.1, further=0.02, parallel=True)
    machine = Machine(clock, "gpu")
    policy = machine.policy(parallel)
    parallel.first, parallel.further = 0.3, 0.06
    list(machine.steps(policy, 1000))
    cost = policy.candidates[0].cost
    assert [cost.of(depth) for depth in (1, 4, 16)] == pytest.approx([0.3, 0.48, 1.2], rel=0.05)


# Hidden rows, which heads read whether they draft or not.


def heads_reading(steps: Iterator[tuple[Step, float]]) -> list[bool]:
    return [bool(step.reading) for step, _ in steps]


@pytest.mark.parametrize("reading", [0.003, 0.03, 0.3])
@pytest.mark.parametrize("only_last_row", [True, False])
def test_a_head_that_never_pays_is_no_longer_read(
    reading: float, only_last_row: bool, clock: FakeClock
) -> None:
    head = CostlyDrafter(clock, lambda: False, reading=reading, only_last_row=only_last_row)
    machine = Machine(clock, "cpu")
    shown = heads_reading(machine.steps(machine.policy(head), 6000))
    # It may read for as long as four plain steps take, and in the step before each trial and in it.
    trials = 2 * 6000 / 128 if only_last_row else 0
    assert sum(shown) <= 4 / reading + 1 + trials + 8
    assert clock.now <= (1 + ALLOWANCE) * 6000 + SLACK + 4 + (1 + trials + 8) * reading


def test_it_is_explained_that_a_head_is_no_longer_read(clock: FakeClock) -> None:
    said: list[Explanation] = []
    machine = Machine(clock, "cpu")
    policy = machine.policy(CostlyDrafter(clock, lambda: False, reading=0.1))
    policy.explain = said.append
    list(machine.steps(policy, 300))
    assert said[0].reason != said[-1].reason == "a head that had not paid for long reads no more"


def test_a_head_that_pays_is_read_in_every_step(clock: FakeClock) -> None:
    head = CostlyDrafter(clock, coin(0.8), reading=0.05)
    machine = Machine(clock, "gpu")
    assert all(heads_reading(machine.steps(machine.policy(head), 3000)))


def test_reading_is_charged_to_the_loss_budget(clock: FakeClock) -> None:
    policy = Machine(clock).policy(CostlyDrafter(clock, coin(0.5), reading=0.1))
    plain, allowed = policy._passes.seconds(1), policy.loss_budget.available(1.0)
    policy.learn(Step((), 0, 1, (5,), 1.1 * plain, 0.0, reading={"costly": 0.1 * plain}))
    assert policy.loss_budget.available(1.0) == pytest.approx(allowed - 0.08 * plain)
    assert policy._passes.seconds(1) == plain


def test_a_head_of_the_last_row_drafts_again_in_the_same_text(clock: FakeClock) -> None:
    head = CostlyDrafter(clock, lambda: False, reading=0.05, only_last_row=True)
    machine = Machine(clock, "gpu")
    policy = machine.policy(head)
    machine.write(policy, 2000)
    assert head.missed
    head.right = coin(0.9)
    steps = [step for step, _ in machine.steps(policy, 2000)]
    assert sum(bool(step.drafted) for step in steps[-100:]) > 90


@pytest.mark.parametrize(("lacking", "reads"), [(20, True), (2000, False)])
def test_another_head_is_read_again_in_another_text_if_little_is_missing(
    lacking: int, reads: bool, clock: FakeClock
) -> None:
    head = CostlyDrafter(clock, lambda: False, reading=0.05)
    machine = Machine(clock, "gpu")
    policy = machine.policy(head)
    machine.write(policy, 300)
    assert head.missed
    head.right = coin(0.9)
    machine.write(policy, 300, lacking=lacking)
    assert head.missed != reads
    assert policy.reads(head) == reads


# Explanations.


def test_every_step_is_explained(clock: FakeClock) -> None:
    said: list[Explanation] = []
    machine = Machine(clock, "gpu")
    policy = machine.policy(CostlyDrafter(clock, coin(0.8)))
    policy.explain = said.append
    steps = list(machine.steps(policy, 200))
    assert len(said) == len(steps)
    for decision, (step, _) in zip(said, steps, strict=True):
        assert (decision.drafter is None) == (not step.drafted)
    drafting = [decision for decision in said if decision.drafter]
    assert all(each.rate > each.plain_rate for each in drafting if each.reason == "promises most")


def test_nothing_is_drafted_beyond_the_deepest(clock: FakeClock) -> None:
    machine = Machine(clock, "gpu")
    policy = machine.policy(CostlyDrafter(clock, lambda: True), deepest=3)
    assert max(len(step.drafted) for step, _ in machine.steps(policy, 300)) == 3


def test_tokens_evaluated_again_are_charged_to_the_loss_budget(clock: FakeClock) -> None:
    """The cost of a plain pass stays as it was."""
    machine = Machine(clock, next(iter(CURVES)))
    policy = machine.policy(CostlyDrafter(clock, coin(0.5)))
    plain, allowed = policy._passes.seconds(1), policy.loss_budget.available(1.0)
    for _ in range(12):
        policy.learn(Step((), 0, 1, (5,), 1.5 * plain, 0.0, again=3))
    assert policy._passes.seconds(1) == plain
    assert policy.loss_budget.available(1.0) < allowed
