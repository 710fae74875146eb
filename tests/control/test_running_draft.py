"""The draft of the current step: what it costs, when it ends, and how much of it is verified."""

from collections.abc import Sequence
from typing import Any

import pytest
from fakes.machine import FakeClock, OfTraits
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import AcceptancePrior
from localspec.control.candidate import Candidate
from localspec.control.drafter_cost import DrafterCost
from localspec.control.joint_drafting import Drafting
from localspec.control.recent_median import ENOUGH
from localspec.control.round_plan import RoundPlan
from localspec.control.row_budget import RowBudget
from localspec.control.running_draft import Option, RunningDraft

# Seconds of passes by rows.
PASSES = [0.0, *(0.9 + 0.1 * rows for rows in range(1, 40))]


def candidate_of(rate: float = 0.7, **traits: Any) -> Candidate:
    prior = AcceptancePrior({"costly": rate})
    return Candidate(OfTraits(FakeClock(), **traits), DrafterCost(0.3, 0.1), prior)


def option_of(
    candidate: Candidate,
    reading: float = 0.0,
    catching_up: float = 0.0,
    replays: Sequence[float] = (),
) -> Option:
    plan = RoundPlan(4, (), 0.0, 1.0, 9.0)
    drafting = Drafting([0.0] * 5, replays=replays)
    return Option(candidate, plan, 1.0, 1.0, [0.7] * 4, drafting, reading, catching_up, 1.0)


def running(
    candidate: Candidate,
    *,
    chances: Sequence[float] = (),
    rate: float = 1.0,
    passes: Sequence[float] = PASSES,
    available: float = 9.0,
    deepest: int = 8,
    paid: Sequence[float] = (),
    takes_back: int | None = None,
    replays: Sequence[float] = (),
    catching_up: float = 0.0,
    clock: FakeClock | None = None,
) -> RunningDraft:
    """chances: that each token is right, by the drafter's confidence."""
    draft = RunningDraft(
        option_of(candidate, catching_up=catching_up, replays=replays),
        rate,
        [*passes],
        available,
        deepest,
        paid=paid,
        takes_back=takes_back,
        clock=clock or FakeClock(),
        rows=RowBudget().new_share(),
    )
    if chances:
        given_ = iter(chances)
        candidate.add_margin = lambda margin: next(given_)  # type: ignore[method-assign]
    return draft


def known(candidate: Candidate) -> Candidate:
    """What its further tokens take was seen."""
    for _ in range(ENOUGH):
        candidate.cost.learn_further(0.1)
    return candidate


def test_what_a_draft_costs() -> None:
    assert running(candidate_of()).cost_of(3) == pytest.approx(0.5)
    late = running(candidate_of(), catching_up=2.0)
    assert [late.expected_seconds(drafted) for drafted in (0, 1, 3)] == pytest.approx(
        [2.3, 2.3, 2.5]
    )
    # Beside others it pays its part; what is drawn beyond the plan it pays alone.
    shared = running(candidate_of(), paid=[0.0, 0.2, 0.25])
    assert [shared.cost_of(drafted) for drafted in (1, 2, 3)] == pytest.approx([0.2, 0.25, 0.5])
    ready = running(candidate_of(ready=lambda: 2))
    assert [ready.cost_of(drafted) for drafted in (1, 2, 4)] == pytest.approx([0.0, 0.0, 0.2])
    # One pass of five rows, of which fewer may be drawn.
    parallel = running(candidate_of(parallel=True), deepest=5, paid=[0.0, 9.0, 9.0, 9.0])
    assert [parallel.cost_of(drafted) for drafted in (5, 2)] == pytest.approx([0.7, 0.4])
    for _ in range(9):
        parallel.candidate.cost.learn_pass(2.0, rows=5, backlog=1)
        parallel.candidate.cost.learn_further(0.01)
    assert [parallel.cost_of(drafted) for drafted in (5, 2)] == pytest.approx([2.04, 2.01])


def test_tokens_are_drawn_ahead_behind_what_is_verified_and_the_guess() -> None:
    class Asked:
        def tokens(self, chance: float, depth: int, seconds: float, cost: DrafterCost) -> int:
            asked.append((round(chance, 6), depth, round(seconds, 6)))
            return 5

    asked = list[tuple[float, int, float]]()

    def ahead(verified: int, *chances: float) -> int:
        candidate = candidate_of(0.6)
        candidate.overlap = Asked()  # type: ignore[assignment]
        draft = running(candidate, deepest=4, chances=chances)
        for _ in chances:
            draft.go_on(0.0)
        return draft.tokens_ahead(verified)

    assert ahead(0, 0.9) == ahead(4) == 0 and not asked, "nothing is known behind the deepest"
    assert ahead(2) == ahead(2, 0.9, 0.5, 0.8) == ahead(2, 0.9, 0.5) == 5
    # By the average; by the drafter's confidence in the guess; by what it was sure of before.
    assert asked == [(0.6, 2, 1.2), (0.36, 2, 1.2), (0.27, 2, 1.2)]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.floats(0.1, 3.0),
    st.sampled_from([None, 0, 2]),
)
def test_as_many_tokens_are_verified_as_pay_most(
    chances: list[float], rate: float, takes_back: int | None
) -> None:
    """By every outcome of every number of verified tokens."""

    def value(verified: int) -> float:
        total, reached = 0.0, 1.0
        for accepted, chance in enumerate([*chances[:verified], 0.0]):
            wrong = takes_back is not None and verified > takes_back and accepted < verified
            again = 0.1 * (accepted + 1) if wrong else 0.0
            seconds = PASSES[verified + 1] + again
            total += reached * (1 - chance) * (accepted - rate * seconds)
            reached *= chance
        return total

    draft = running(candidate_of(), chances=chances, takes_back=takes_back)
    for _ in chances:
        draft.go_on(0.0)
    draft.plain_or_best_rate = rate
    best = max(value(verified) for verified in range(len(chances) + 1))
    assert value(draft.keep()) == pytest.approx(best)


# Whether another token is drawn.


def test_a_draft_ends_at_the_deepest_and_where_it_is_no_longer_affordable() -> None:
    def drawn(**options: Any) -> int:
        draft, count = running(known(candidate_of(0.99)), chances=[0.99] * 9, **options), 1
        while draft.go_on(0.0):
            count += 1
        return count

    assert drawn() == 8
    assert drawn(deepest=3) == 3
    assert not running(candidate_of(0.99), chances=[0.99], deepest=1).go_on(0.0)
    # A token costs 0.1 in the pass and to draw, the first one 0.2 more; and none is paid yet.
    assert drawn(available=0.3 + 5 * 0.1 + 0.31) == 4
    assert drawn(available=0.3 + 5 * 0.1 + 0.31, replays=[0.0, 0.0, 0.15]) == 3
    assert drawn(available=0.0) == 1


@pytest.mark.parametrize(
    ("chances", "rate", "goes_on"),
    [
        # Two more tokens are worth 0.5 (0.5 + 0.25) = 0.375, and take 0.4 s; three 0.4375 in 0.6 s.
        ([0.5], 1.0, True),  # one is worth 0.25, and takes 0.2
        ([0.5], 1.3, False),
        ([0.9, 0.5], 1.1, True),  # 0.45 x 0.5 = 0.225
        ([0.9, 0.5], 1.2, False),
        ([0.5, 0.9, 0.9], 1.0, True),  # 0.405 x 0.5
        ([0.5, 0.9, 0.9], 1.02, False),
    ],
)
def test_another_token_is_drawn_where_it_pays(
    chances: list[float], rate: float, *, goes_on: bool
) -> None:
    draft = running(known(candidate_of(0.5)), chances=chances, rate=rate)
    assert [draft.go_on(0.0) for _ in chances][-1] is goes_on
    product = 1.0
    for survival, chance in zip(draft.survivals, chances, strict=True):
        product *= chance
        assert survival == pytest.approx(product)


def test_rates_of_the_places_that_follow_count() -> None:
    candidate = known(candidate_of(0.5))
    candidate.acceptance_rates.chances = lambda count: [0.9, 0.9, 0.05, 0.05][:count]  # type: ignore[method-assign]
    draft = running(candidate, chances=[0.9, 0.9], rate=1.0, deepest=4)
    assert [draft.go_on(0.0) for _ in range(2)] == [True, False]


def test_several_further_tokens_may_pay_where_one_does_not_but_no_unlikely_ones() -> None:
    stairs = [0.0, 1.0, 1.1, 1.9, 1.2, 1.2]  # of two, three and four tokens: 1.9, 1.2, 1.2 s
    assert running(known(candidate_of(0.5)), chances=[0.9], passes=stairs, deepest=4).go_on(0.0)
    falls = [0.0, 1.0, 1.9, 2.0, 1.2, 1.2]
    unlikely = running(known(candidate_of(0.1)), chances=[0.1], passes=falls, deepest=4)
    assert not unlikely.go_on(0.0)


def test_a_rejection_that_is_dear_ends_a_draft() -> None:
    options: dict[str, Any] = {"chances": [0.5], "rate": 1.0}
    assert running(known(candidate_of(0.5)), **options).go_on(0.0)
    replays = [0.0, *(0.2 * depth for depth in range(1, 9))]
    assert not running(known(candidate_of(0.5)), replays=replays, **options).go_on(0.0)


def test_another_token_is_drawn_until_its_cost_is_known() -> None:
    clock, candidate = FakeClock(), candidate_of(0.5)
    for draft in range(ENOUGH):
        draft_ = running(candidate, chances=[0.1] * 9, rate=9.0, clock=clock)
        clock.now += 0.5
        assert draft_.go_on(0.0), draft
        clock.now += 0.2
        draft_.go_on(0.0)
    last = running(candidate, chances=[0.1], rate=9.0, clock=clock)
    assert not last.go_on(0.0)
    assert candidate.cost.further == pytest.approx(0.2)
    assert candidate.cost.first == pytest.approx(0.5)


def test_a_look_pays_for_catching_up_and_is_none_behind_a_long_prompt() -> None:
    candidate = candidate_of()
    candidate.add_margin(5.0)
    gain = option_of(candidate).gain_of_looking(PASSES)
    assert gain == candidate.gain_of_looking(PASSES, 4)
    assert option_of(candidate, catching_up=0.25).gain_of_looking(PASSES) == gain - 0.25
    assert option_of(candidate, reading=0.25).gain_of_looking(PASSES) == 0.0
