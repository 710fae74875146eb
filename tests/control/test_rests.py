"""Rests: texts that draft nothing seldom decide, and miss nothing by it."""

from collections.abc import Sequence
from typing import Any

import pytest

from localspec.bench.experiments.simulated_drafter import COSTS, SimulatedDrafter, User
from localspec.bench.experiments.simulated_users import MakePolicy, SimulatedUsers, auto, plain
from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.deciding import Deciding
from localspec.control.explanation import Explanation
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import RowBudget, RowShare
from localspec.drafters.suffix import Suffix
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.policy import Step

USELESS = User(0.02)
# Seconds of a decision: a tenth of a plain step.
ASKING = 0.1 * COSTS["GPU"][1]


def shares(texts: int, budget: RowBudget | None = None) -> list[RowShare]:
    """Texts of one cache."""
    budget, cache = budget or RowBudget(), object()
    made = [budget.new_share() for _ in range(texts)]
    for each in made:
        each.begin(cache)
    return made


def asked_in(texts: Sequence[RowShare], rounds: int, deciding: float = 0.0) -> list[int]:
    """How many of the texts decide in each round; nobody drafts. deciding: in plain steps."""
    asked, passes = list[int](), PassCosts({1: 1.0, 32: 2.0})
    step = Step((), 0, 1, [1], 1.0 + deciding, deciding, others=(1,) * (len(texts) - 1))
    for _ in range(rounds):
        asked.append(sum(not each.rests(each.others) for each in texts))
        for each in texts:
            each.learn(step, passes)
    return asked


@pytest.mark.parametrize("texts", [2, 3, 5, 9])
def test_more_and_more_rounds_rest_and_all_texts_in_the_same_ones(texts: int) -> None:
    asked = asked_in(shares(texts), 200)
    assert set(asked) == {0, texts}
    assert asked[:2] == [texts] * 2
    # In the end one round in as many as there are texts.
    assert asked[-4 * texts :].count(texts) == 4
    assert 200 / texts < asked.count(texts) < 200 / texts + 2 * texts


def test_one_round_more_rests_for_every_two_decisions_in_vain() -> None:
    asked = asked_in(shares(5), 16)
    assert [each // 5 for each in asked] == [1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(("deciding", "rests"), [(0.004, 0), (0.021, 4), (0.1, 19), (0.5, 32)])
def test_a_text_alone_rests_until_deciding_takes_half_a_percent(
    deciding: float, rests: int
) -> None:
    asked = asked_in(shares(1), 6000, deciding)
    assert asked[:4] == [1] * 4
    assert asked[-3 * (rests + 1) :].count(1) == 3


def test_a_text_alone_decides_in_each_step_while_that_gains() -> None:
    """One draft in six saves more than all six decisions take, though five in a row draft none."""
    [share], passes = shares(1), PassCosts({1: 1.0, 32: 2.0})
    plain, draft = Step((), 0, 1, [1], 1.1, 0.1), Step((5,), 1, 2, [5, 1], 1.2, 0.1)
    rest = Step((), 0, 1, [1], 1.0, 0.0)

    def asked(*steps: Step) -> int:
        found = 0
        for step in steps * 40:
            found += not share.rests([])
            share.learn(rest if share.resting else step, passes)
        return found

    assert asked(*[plain] * 5, draft) == 6 * 40
    assert asked(*[plain] * 20, draft) < 21 * 40 / 3


@pytest.mark.parametrize(("deciding", "rests"), [(0.002, 3), (0.01, 7), (0.05, 32)])
def test_several_texts_rest_until_deciding_takes_half_a_percent_of_all(
    deciding: float, rests: int
) -> None:
    """All four wait for each of them; they rest for three rounds where it takes less, too."""
    asked = asked_in(shares(4), 12000, deciding)
    assert set(asked) == {0, 4}
    assert asked[-3 * (rests + 1) :].count(4) == 3


def test_dear_decisions_in_vain_are_few_where_all_wait_for_them() -> None:
    """Four in a row, then only one for every twenty to forty rounds; alone there are more."""
    beside, alone = Deciding(beside=True), Deciding()
    for _ in range(4):
        for each in (beside, alone):
            each.learn(0.8, -0.8, drafted=False)
    assert beside.rests > 100
    assert alone.rests < 15
    for _ in range(200):
        for each in (beside, alone):
            each.learn(0.8, -0.8, drafted=False)
    assert (beside.rests, alone.rests) == (128, 32)


def test_several_texts_rest_no_longer_while_deciding_gains() -> None:
    """A draft in every third decision saves its text a decode, of which both have half."""
    passes = PassCosts({1: 1.0, 2: 1.0, 32: 1.0})

    def asked(asking: float) -> int:
        texts, decisions = shares(2), 0
        for _ in range(600):
            resting = [each.rests(each.others) for each in texts]
            assert resting in ([True] * 2, [False] * 2)
            decisions += not resting[0]
            drafted = (5,) * (not resting[0] and not decisions % 3)
            if drafted:
                texts[0].ask_all()
            tokens, took = [*drafted, 1], 0.0 if resting[0] else asking
            rows = len(tokens)
            step = Step(drafted, len(drafted), rows, tokens, 1 + took, took, others=(rows,))
            for each in texts:
                each.learn(step, passes)
        return decisions

    assert asked(0.02) == asked(0.0)
    assert asked(0.3) < asked(0.0) / 3


def test_a_useless_drafter_costs_eight_users_little_though_deciding_takes_long() -> None:
    """Each decision takes a twentieth of a decode, and all eight together four tenths."""
    asking = 0.05 * COSTS["GPU"][1]

    def seconds(make: MakePolicy, asking: float) -> float:
        return SimulatedUsers(COSTS["GPU"], [USELESS] * 8, make, asking=asking).run(1000).seconds

    assert seconds(plain, 0.0) > 0.98 * seconds(auto, asking)


def test_all_are_asked_again_at_once() -> None:
    four = shares(4)
    asked_in(four, 50)
    four[2].ask_all()
    assert asked_in(four, 2) == [4, 4]
    asked_in(four, 50)
    joined = [*four, four[0].budget.new_share()]
    joined[-1].begin(four[0].cache)
    assert asked_in(joined, 2) == [5, 5]


def test_a_text_at_half_the_pace_is_asked_as_often() -> None:
    quick, slow = shares(2)
    asked_in([quick, slow], 20)
    asked = {quick: 0, slow: 0}
    for _ in range(60):
        for each in (quick, quick, slow):
            asked[each] += sum(asked_in([each], 1))
    assert 55 <= asked[quick] <= 65
    assert 28 <= asked[slow] <= 32


def test_texts_of_another_cache_rest_by_themselves() -> None:
    budget = RowBudget()
    here, there = shares(3, budget), shares(2, budget)
    asked_in(here, 50)
    asked_in(there, 50)
    there[0].ask_all()
    assert asked_in(there, 2) == [2, 2]
    assert sum(asked_in(here, 30)) == 3 * 10


def test_beside_texts_that_read_prompts_one_is_asked_each_time() -> None:
    texts = shares(8)
    for each in texts[1:]:
        each.offer.reading = True
    assert asked_in(texts[:1], 50) == [1] * 50
    texts[1].offer.reading = False
    assert sum(asked_in(texts[:1], 50)) < 30


class Counted:
    """Counts the decisions of each round."""

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

    def go_to_a_rest(self, users: SimulatedUsers) -> None:
        """The first of several rounds in a row that rest has just been."""
        for _ in range(100):
            if self.in_step(users) and not self.in_step(users):
                return
        pytest.fail("no round rested")


@pytest.mark.parametrize("users", [2, 4, 8])
def test_useless_drafters_are_seldom_asked(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * users, auto).run(400)
    asked = [counted.in_step(simulated) for _ in range(100)]
    # A trial now and then has all asked again.
    assert 90 <= sum(asked) < 100 + 12 * users


def test_a_useless_drafter_is_seldom_asked_by_a_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS], auto, asking=ASKING).run(400)
    assert 4 <= sum(counted.in_step(simulated) for _ in range(100)) < 12


@pytest.mark.parametrize("users", [1, 2])
def test_who_drafts_has_all_asked(users: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [User(0.9)] * users, auto, asking=ASKING).run(100)
    assert [counted.in_step(simulated) for _ in range(30)] == [users] * 30


class Copies(SimulatedDrafter):
    """Has a copy only when it is told to."""

    found = False

    def propose(self, limit: Limit) -> Draft:
        return Draft([1] * limit.depth if self.found else [])


def with_copies(monkeypatch: pytest.MonkeyPatch, users: int = 5) -> SimulatedUsers:
    monkeypatch.setattr(SimulatedDrafter, "propose", Copies.propose)
    monkeypatch.setattr(SimulatedDrafter, "found", False, raising=False)
    copies, asking = [User(1.0, copies=True)] * users, 0.0 if users > 1 else ASKING
    return SimulatedUsers(COSTS["GPU"], copies, auto, asking=asking).run(60)


@pytest.mark.parametrize(("users", "rounds"), [(1, 1), (5, 2)])
def test_a_copy_that_is_found_in_a_rest_is_drafted(
    users: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In that round, or in the next one where others would have waited for looking."""
    simulated, counted = with_copies(monkeypatch, users), Counted(monkeypatch)
    counted.go_to_a_rest(simulated)
    # The next round would rest as well.
    for writer in simulated.writers:
        writer.drafter.found = True  # type: ignore[attr-defined]
        rates = writer.policy.candidates[0].acceptance_rates  # type: ignore[attr-defined]
        monkeypatch.setattr(rates, "chances", lambda depth: [0.9] * depth)
    drafted = []
    for _ in range(rounds):
        simulated.step()
        drafted.append(any(len(writer.draft) for writer in simulated.writers))
    assert drafted == [False] * (rounds - 1) + [True]


class Lying:
    """A drafter that finds a copy at every third place, which it calls likely and which is wrong.

    length: of the copies. reading, seconds: nothing takes time.
    """

    name = "lying"

    def __init__(self, length: int) -> None:
        self.place, self.length, self.reading = 0, length, 0.0
        self.traits = Traits(cheap=True, chances=self.chances)

    def begin(self, tokens: Sequence[int]) -> None:
        pass

    def chances(self, limit: Limit) -> list[float]:
        return [0.9] * (min(self.length, limit.depth) if self.place % 3 == 0 else 0)

    def propose(self, limit: Limit) -> Draft:
        return Draft([0] * len(self.chances(limit)))

    def observe(self, outcome: Outcome) -> None:
        self.place += len(outcome.tokens)

    def seconds_of(self, texts: Sequence[int]) -> float:
        return 0.0


@pytest.mark.parametrize("length", [1, 2, 8])
@pytest.mark.parametrize("users", [2, 4])
def test_copies_that_look_likely_and_never_are_wake_no_text_for_long(
    users: int, length: int
) -> None:
    """What waking costs is bounded as what asking costs: here the tenth of a decode."""

    def lying(_: SimulatedDrafter, costs: CostModel, share: RowShare) -> AdaptivePolicy:
        return AdaptivePolicy([Lying(length)], costs, clock=lambda: 0.0, rows=share)

    def speed(make: Any, asking: float) -> float:
        simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * users, make, asking=asking)
        for writer in simulated.writers if asking else ():
            writer.drafter = writer.policy.drafters[0]  # type: ignore[assignment]
        for _ in range(600):
            simulated.step()
        return min(each.tokens for each in simulated.writers) / simulated.rounds.seconds

    assert speed(lying, ASKING) > 0.95 * speed(plain, 0.0)


def test_a_text_alone_is_asked_about_a_copy_as_soon_as_its_row_may_pay() -> None:
    """Beside others not before it is likely: they would all be asked too."""
    users = SimulatedUsers(COSTS["GPU"], [User(0.3, copies=True)], auto).run(200)
    candidate = users.writers[0].policy.candidates[0]  # type: ignore[attr-defined]
    candidate._first_chance, candidate.acceptance_rates.chances = 0.0, lambda depth: [0.3] * depth
    candidate.drafter.propose = lambda limit: Draft([1] * limit.depth)
    limit = users.writers[0].limit()
    assert candidate.has_likely_copy(limit, 0.02)
    assert not candidate.has_likely_copy(limit, 0.8)
    assert not candidate.has_likely_copy(limit)


def test_a_likely_copy_in_a_rest_makes_no_trial_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, counted = with_copies(monkeypatch, 1), Counted(monkeypatch)
    counted.go_to_a_rest(simulated)
    [writer] = simulated.writers
    writer.drafter.found = True  # type: ignore[attr-defined]
    candidate = writer.policy.candidates[0]  # type: ignore[attr-defined]
    waited = candidate._waited
    assert counted.in_step(simulated)
    assert candidate._waited <= waited + 1


def test_a_copy_that_does_not_pay_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, counted = with_copies(monkeypatch), Counted(monkeypatch)
    for writer in simulated.writers:
        writer.drafter.found = True  # type: ignore[attr-defined]
        rates = writer.policy.candidates[0].acceptance_rates  # type: ignore[attr-defined]
        monkeypatch.setattr(rates, "chances", lambda depth: [0.3] * depth)
    monkeypatch.setattr("localspec.control.adaptive.affordable_depth", lambda *_given: 0)
    asked = [counted.in_step(simulated) for _ in range(60)]
    assert sum(asked[-30:]) <= 5 * 8


def test_a_trial_is_due_as_soon_as_if_all_rounds_were_asked() -> None:
    writer = SimulatedUsers(COSTS["GPU"], [USELESS] * 2, auto).writers[0]
    candidate = writer.policy.candidates[0]  # type: ignore[attr-defined]
    candidate.end_trial(paid=False)
    for _ in range(2):
        assert not candidate.is_shown_for_trial
        candidate.rest([])
    assert candidate.is_trial_due()
    candidate.end_trial(paid=False)
    assert not candidate.is_trial_due()


def test_a_text_alone_is_asked_about_a_trial_as_soon_as_it_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS], auto, asking=ASKING).run(400)
    counted, [writer] = Counted(monkeypatch), simulated.writers
    candidate = writer.policy.candidates[0]  # type: ignore[attr-defined]
    candidate.gain, candidate._waited, candidate._wait = -1.0, 0, 8
    account, writer.share._rested = writer.share._alone, 0
    account.takes, account._gain = 0.1, -0.1
    assert [counted.in_step(simulated) for _ in range(9)] == [0] * 8 + [1]
    assert len(writer.draft) and candidate._wait in (1, 16)


def test_a_head_that_is_shown_a_row_for_a_trial_may_not_rest() -> None:
    writer = SimulatedUsers(COSTS["GPU"], [USELESS] * 2, auto).writers[0]
    candidate = writer.policy.candidates[0]  # type: ignore[attr-defined]
    candidate._stopped, candidate.is_shown = True, False
    assert not candidate.is_shown_for_trial
    candidate.rest([])
    candidate.is_shown = True
    assert candidate.is_shown_for_trial
    assert candidate._waited == 0


def test_a_pause_goes_on_in_rests() -> None:
    writer = SimulatedUsers(COSTS["GPU"], [USELESS] * 2, auto).writers[0]
    candidate, others = writer.policy.candidates[0], writer.share.others  # type: ignore[attr-defined]
    candidate.pause(others, [0.5], writer.share.offer.drafting)
    for _ in range(4):
        candidate.rest(others)
    assert candidate.take_pause(others) is None


def test_copies_that_become_likelier_bit_by_bit_are_asked_about() -> None:
    """With the real drafter, whose chances grow with the length of the match."""
    source = [(7 * place) % 61 + 100 * (place % 3) for place in range(120)]
    suffix = Suffix(max_replaced=0)
    policy = AdaptivePolicy([suffix], CostModel(PassCosts(COSTS["GPU"])))
    candidate, text = policy.candidates[0], [*source, 9999]
    suffix.begin(text)
    limit = SimulatedUsers(COSTS["GPU"], [USELESS], auto).writers[0].limit()
    candidate.survivals(limit)
    asked = []
    for place, token in enumerate(source[:60]):
        suffix.observe(Outcome([token], 0))
        if candidate.has_likely_copy(limit):
            asked.append(place)
            candidate.survivals(limit)  # which deciding does
    assert asked
    assert asked[0] < 12
    assert len(asked) < 12


def test_drafts_of_a_fixed_depth_keep_the_others_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)

    def one_fixed(drafter: SimulatedDrafter, costs: Any, share: RowShare) -> Any:
        if fixed:
            return auto(drafter, costs, share)
        fixed.append(FixedDepth([drafter], 1, rows=share, passes=costs.passes))
        return fixed[0]

    fixed = list[FixedDepth]()
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * 3, one_fixed).run(100)
    assert [counted.in_step(simulated) for _ in range(20)] == [2] * 20


def test_a_text_that_begins_has_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    simulated = SimulatedUsers(COSTS["GPU"], [USELESS] * 3, auto).run(300)
    counted.go_to_a_rest(simulated)
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
    assert reasons.count("nothing was drafted lately") >= 5
