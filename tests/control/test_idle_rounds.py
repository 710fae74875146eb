"""Idle rounds: texts that draft nothing seldom decide, and miss nothing by it."""

from collections.abc import Sequence
from typing import Any

import pytest

from localspec.bench.experiments.simulated_drafter import COSTS, SimulatedDrafter, User
from localspec.bench.experiments.simulated_users import SimulatedUsers, auto
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.explanation import Explanation
from localspec.control.idle_rounds import IdleRounds
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit

USELESS = User(0.02)


def asked_of(texts: int, rounds: int, idle: IdleRounds) -> list[int]:
    """How many of the texts decide in each round."""
    last, asked = [0] * texts, []
    for _ in range(rounds):
        asked.append(0)
        for number in range(texts):
            asked[-1] += not idle.rests(last[number], texts - 1)
            last[number] = idle.number
    return asked


@pytest.mark.parametrize("texts", [2, 3, 5, 9])
def test_more_and_more_rounds_rest_and_all_texts_in_the_same_ones(texts: int) -> None:
    asked = asked_of(texts, 200, IdleRounds())
    assert set(asked) == {0, texts}
    assert asked[:2] == [texts] * 2
    # In the end one round in as many as there are texts.
    assert asked[-4 * texts :].count(texts) == 4
    assert 200 / texts < asked.count(texts) < 200 / texts + 2 * texts


def test_all_are_asked_again_at_once() -> None:
    idle = IdleRounds()
    asked_of(4, 50, idle)
    idle.end()
    assert asked_of(4, 2, idle) == [4, 4]


class Counted:
    """Counts the decisions of each round, and those without any search."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        real = AdaptivePolicy._chosen

        def chosen(policy: AdaptivePolicy, options: Any) -> Any:
            self.asked += 1
            return real(policy, options)

        monkeypatch.setattr(AdaptivePolicy, "_chosen", chosen)

    def in_step(self, users: SimulatedUsers) -> int:
        self.asked = 0
        users.step()
        return self.asked


@pytest.mark.parametrize("users", [2, 4, 8])
def test_useless_drafters_are_seldom_asked(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * users, auto).run(400)
    asked = [counted.in_step(simulated) for _ in range(100)]
    # A trial now and then has all asked again.
    assert sum(asked) < 100 * users * 2 / users + 10 * users


def test_one_text_alone_is_asked_for_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS], auto).run(200)
    assert [counted.in_step(simulated) for _ in range(50)] == [1] * 50


def test_who_drafts_has_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [User(0.9)] * 2, auto).run(100)
    assert [counted.in_step(simulated) for _ in range(30)] == [2] * 30


class Copies(SimulatedDrafter):
    """Has a copy only when it is told to."""

    found = False

    def propose(self, limit: Limit) -> Draft:
        return Draft([1] * limit.depth if self.found else [])


def with_copies(monkeypatch: pytest.MonkeyPatch) -> SimulatedUsers:
    monkeypatch.setattr(SimulatedDrafter, "propose", Copies.propose)
    monkeypatch.setattr(SimulatedDrafter, "found", False, raising=False)
    return SimulatedUsers(COSTS["GPU"], [User(1.0, copies=True)] * 5, auto).run(60)


def test_a_copy_is_drafted_in_the_round_in_which_it_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated, counted = with_copies(monkeypatch), Counted(monkeypatch)
    while counted.in_step(simulated):
        pass
    # The next round would rest as well.
    for writer in simulated.writers:
        writer.drafter.found = True  # type: ignore[attr-defined]
    simulated.step()
    assert any(len(writer.draft) for writer in simulated.writers)


def test_a_copy_that_does_not_pay_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, counted = with_copies(monkeypatch), Counted(monkeypatch)
    for writer in simulated.writers:
        writer.drafter.found = True  # type: ignore[attr-defined]
        rates = writer.policy.candidates[0].acceptance_rates  # type: ignore[attr-defined]
        monkeypatch.setattr(rates, "chances", lambda depth: [0.3] * depth)
    monkeypatch.setattr(AdaptivePolicy, "_affordable", lambda *_given: 0)
    asked = [counted.in_step(simulated) for _ in range(60)]
    assert sum(asked[-30:]) <= 5 * 8


def test_a_trial_is_due_as_soon_as_if_all_rounds_were_asked() -> None:
    writer = SimulatedUsers(COSTS["GPU"], [USELESS] * 2, auto).writers[0]
    candidate = writer.policy.candidates[0]  # type: ignore[attr-defined]
    candidate.end_trial(paid=False)
    for _ in range(2):
        assert not candidate.is_surer(writer.limit())
    assert candidate.is_trial_due()
    candidate.end_trial(paid=False)
    assert not candidate.is_trial_due()


def test_a_text_that_begins_has_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * 3, auto).run(300)
    while counted.in_step(simulated):
        pass
    simulated.writers[0].policy.begin()
    assert counted.in_step(simulated) == 3


def test_resting_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * 3, auto).run(300)
    told = list[Explanation]()
    policy = simulated.writers[0].policy
    policy.explain = told.append  # type: ignore[attr-defined]
    for _ in range(10):
        simulated.step()
    reasons: Sequence[str] = [each.reason for each in told]
    assert len(reasons) == 10
    assert reasons.count("nobody drafted lately") >= 5
