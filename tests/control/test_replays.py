"""Rejected drafts on running states: what was accepted is evaluated again, and that is planned."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from fakes.machine import CURVES, CostlyDrafter, FakeClock, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control import adaptive, running_draft
from localspec.control.drafter_cost import DrafterCost
from localspec.control.joint_drafting import Drafting, JointDrafting, Parts
from localspec.control.replays import with_replays
from localspec.speculation.policy import Step

DEEPEST = 16


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def coin(chance: float, seed: int = 1) -> Callable[[], bool]:
    rng = random.Random(seed)
    return lambda: rng.random() < chance


def rate(steps: Iterator[tuple[Step, float]]) -> float:
    """Tokens per second, without the first steps."""
    taken = [(len(step.tokens), now) for step, now in steps]
    at = len(taken) // 4
    return sum(tokens for tokens, _ in taken[at:]) / (taken[-1][1] - taken[at - 1][1])


def replayed(rates: list[float]) -> float:
    """The expected rows, outcome by outcome. rates: of each token, that it is accepted."""
    rows, reached = 0.0, 1.0
    for accepted, chance in enumerate(rates):
        rows += reached * (1 - chance) * (accepted + 1)
        reached *= chance
    return rows


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 9))
def test_rows_by_enumeration(rates: list[float], takes_back: int) -> None:
    survivals = [1.0]
    for chance in rates:
        survivals.append(survivals[-1] * chance)
    # Each row takes a second.
    passes = [float(rows) for rows in range(33)]
    drafting = Drafting([0.5 * depth for depth in range(len(rates) + 1)])
    found = with_replays(drafting, survivals[1:], takes_back, passes)
    for depth in range(len(rates) + 1):
        more = replayed(rates[:depth]) if depth > takes_back else 0.0
        assert found.seconds(depth) == pytest.approx(0.5 * depth + more)
        # Another text may share the drafter's decodes, never the rows that are evaluated again.
        assert found.seconds(depth, 0.6) == pytest.approx(0.3 * depth + more)


def test_texts_share_the_decodes_of_a_drafter_and_no_replays() -> None:
    computer, cost = object(), DrafterCost()
    drafting = Drafting([0.0, 1.0, 2.0], computer, cost, replays=[0.0, 0.25, 0.75])
    plain = replace(drafting, replays=())
    seconds = []
    for each in (plain, drafting):
        joint = JointDrafting(Parts())
        paid = [joint.add(each, place) for _ in range(3) for place in (1, 2)]
        seconds.append((joint.seconds, sum(paid)))
    [(without, paid), (with_replays_, paid_too)] = seconds
    assert with_replays_ == pytest.approx(without + 3 * 0.75) and paid_too == paid
    assert drafting.replay(9) == 0.75, "of a draft that has grown, at least that of the longest"


def test_passes_between_two_widths_and_beyond_the_widest() -> None:
    passes = [0.0, 1.0, 1.1, 2.0]
    [_, one, two] = with_replays(Drafting([0.0, 0.0, 0.0]), [0.5, 0.5], 0, passes).replays
    assert one == pytest.approx(0.5 * (2.0 - 1.1))
    assert two == pytest.approx(2.0 * 3.5 / 3 - 2.0)


def test_what_can_be_cut_off_costs_nothing() -> None:
    drafting = Drafting([0.0, 1.0, 2.0])
    assert with_replays(drafting, [0.5, 0.2], None, [0.0, 1.0, 2.0, 3.0]) is drafting
    assert with_replays(drafting, [0.5, 0.2], 2, [0.0, 1.0, 2.0, 3.0]) is drafting


def best_fixed(curve: str, chance: float, costly: CostlyDrafter, takes_back: int) -> float:
    """Tokens per second of the best fixed depth, computed."""
    passes, rates = CURVES[curve], [1.0]
    for depth in range(1, DEEPEST):
        expected = sum(chance**i for i in range(depth + 1))
        again = 0.0
        if depth > takes_back:
            for accepted in range(depth):
                width = depth + 1 + accepted + 1
                beyond = passes[min(width, 32)] - passes[depth + 1]
                again += chance**accepted * (1 - chance) * beyond
        drafting = costly.first + (depth - 1) * costly.further
        rates.append(expected / (passes[depth + 1] + drafting + again))
    return max(rates)


@pytest.mark.parametrize("takes_back", [0, 2])
@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("chance", [0.3, 0.5, 0.7, 0.9])
def test_it_is_as_good_as_the_best_fixed_depth(
    curve: str, chance: float, takes_back: int, clock: FakeClock
) -> None:
    costly = CostlyDrafter(clock, coin(chance))
    machine = Machine(clock, curve, takes_back=takes_back)
    found = rate(machine.steps(machine.policy(costly), 4000))
    assert found > 0.93 * best_fixed(curve, chance, costly, takes_back)


def test_without_it_drafts_are_too_deep(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> float:
        rates = list[float]()
        for seed in range(4):
            machine = Machine(clock, "cpu", takes_back=0)
            drafter = CostlyDrafter(clock, coin(0.7, seed), first=0.05, further=0.03)
            rates.append(rate(machine.steps(machine.policy(drafter), 4000)))
        return sum(rates)

    aware = run()
    monkeypatch.setattr(adaptive, "with_replays", lambda drafting, *_: drafting)
    monkeypatch.setattr(running_draft, "replay_seconds", lambda survivals, *_: [0.0] * 33)
    assert run() < 0.99 * aware
