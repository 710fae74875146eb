"""Round: choices of one text beside others, by hand."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control.drafter_cost import DrafterCost
from localspec.control.joint_drafting import Drafting
from localspec.control.pass_costs import PassCosts
from localspec.control.round import Round
from localspec.control.round_plan import RoundPlan
from localspec.control.row_budget import Offer

# A further row takes a tenth of a plain pass; or passes rise in steps.
LINEAR = {1: 1.0, 2: 1.1, 32: 4.1}
STAIRS = {1: 1.0, 2: 1.7, 4: 1.7, 5: 2.5, 8: 3.0, 32: 12.0}
FREE = Drafting([0.0] * 20)


def offer(*survivals: float, **options: float) -> Offer:
    return Offer(survivals, FREE, **options)  # type: ignore[arg-type]


def test_a_text_pays_its_part_of_a_decode_without_drafts() -> None:
    round_ = Round(PassCosts(LINEAR), Offer(), [offer(), offer(reading=True), offer()])
    assert round_.texts == 3
    assert round_.share == pytest.approx(1.2 / 3)
    assert {plan.others for plan in round_.plans([0.9], FREE)} == {(2,)}


def test_what_texts_bear_is_beside_the_reading_of_others() -> None:
    others = [offer(slack=0.25), offer(reading=True)]
    plans = Round(PassCosts(LINEAR), Offer(), others).plans([0.9], FREE)
    # A plain decode of the two takes 1.1 s, and one of all three 0.1 s more.
    assert [plan.most for plan in plans] == pytest.approx([0.1 + 1.1 + 0.25] * 2)


def test_a_text_pays_alone_for_places_that_no_other_can_draft() -> None:
    drafting = Drafting([0.0, 1.0, 2.0, 3.0], "model", DrafterCost(similar={1: 1.0, 2: 1.1}))
    round_ = Round(PassCosts(LINEAR), Offer(), [Offer((0.9,), drafting)])
    alike = RoundPlan(3, (2,), 1.9, 9.0, 9.0, (3,))
    assert round_.paid(alike, drafting) == pytest.approx([0.0, 0.55, 1.55, 2.55])


def test_what_a_choice_saves_is_saved_on_the_tokens_of_all() -> None:
    """Those of others by their weights, and as many more as they have in a step."""
    others = [offer(0.5, tokens=2.0, host=0.2), offer(reading=True, host=0.1)]
    round_ = Round(PassCosts(LINEAR), offer(tokens=4.0), others)
    # A round without drafts; who reads counts as if it took a plain step, which 0.1 s more is.
    without = (1.1 + 0.1 + 0.3) / (1 + 2 + 4)
    plan = RoundPlan(2, (2,), 3.0, 9.0, 9.0)
    expected = 10 * (without - 1 / 8.0) * (1 + 3.0 / (1 + 0.75))
    assert round_.saved(plan, 8.0, [0.5, 0.25, 0.9], 10.0) == pytest.approx(expected)
    assert round_.saved(plan, 1.0, [0.5, 0.25, 0.9], 10.0) == 0.0
    longer = round_.saved(plan, 8.0, [0.5, 0.25, 0.9], 10.0, plain=without + 1.0)
    assert longer == pytest.approx(expected + 10 * (1 + 3.0 / 1.75))


def test_beside_a_plan_only_what_is_planned_or_decided_is_compared() -> None:
    other = offer(0.9, 0.9, 0.9, 0.9, planned=True, depth=2)
    round_ = Round(PassCosts({1: 1.0, 32: 1.001}), offer(planned=True), [other])
    assert round_.plain == pytest.approx(1.0 / (2 + 0.9 + 0.9), rel=1e-3)


def test_a_plan_is_made_once_and_asks_nobody_for_more_than_it_offers() -> None:
    others = [offer(0.9, 0.8), offer(0.9, 0.8, 0.7, 0.6)]
    plan = RoundPlan(5, (3, 4), 3.0, 2.0, 9.0, (5, 3))
    Round(PassCosts(LINEAR), Offer(), others).plan_others(plan)
    assert [(each.depth, each.planned) for each in others] == [(2, True), (3, True)]
    again = plan._replace(depths=(1, 1))
    Round(PassCosts(LINEAR), offer(planned=True), others).plan_others(again)
    assert [each.depth for each in others] == [2, 3]


@pytest.mark.parametrize("decided", [False, True])
def test_where_unequal_rows_share_nothing_others_are_expected_to_draft_as_last(
    *, decided: bool
) -> None:
    passes = PassCosts(LINEAR, unequal_apart=True)
    others = [
        offer(0.9, 0.8, 0.7, depth=2, decided=decided),
        offer(0.9, 0.8, depth=1, decided=decided),
    ]
    round_ = Round(passes, Offer(), others)
    # Passes of three and two rows; with an equal one they have six and four.
    assert round_.table()[1:4] == pytest.approx([1.0 + 1.2 + 1.1, 1.3 + 1.2, 1.5 + 1.1])
    plans = list(round_.plans([0.9, 0.8, 0.7], FREE))
    rows = [(plan.depth, plan.others) for plan in plans]
    assert rows[:3] == [(1, (3, 2)), (2, (3, 2)), (3, (3, 2))]
    # All alike, as deep as each can.
    alike = [(3, 2)] * 3 if decided else [(2, 2), (3, 3), (4, 3)]
    assert rows[3:] == [(depth, alike[depth - 1]) for depth in (1, 2, 3)]


def test_tokens_of_a_draft_come_in_their_order_though_a_later_one_costs_less() -> None:
    """The others' first token takes 0.3 s, the second one 0.05 s; they had half as much lately."""
    other = Offer((0.9, 0.8), Drafting([0.0, 0.3, 0.35]), tokens=2.0)
    plans = Round(PassCosts(LINEAR), offer(tokens=4.0), [other]).plans([1.0], FREE)
    seen = {plan.others: plan.tokens for plan in plans}
    assert seen == {
        (1,): pytest.approx(2 * 1.0),
        (2,): pytest.approx(2 * 1.9),
        (3,): pytest.approx(2 * 2.7),
    }


def test_without_its_own_draft_a_text_waits_for_those_of_others_and_their_hosts() -> None:
    round_ = Round(PassCosts(LINEAR), Offer(), [Offer((0.9,), Drafting([0.0, 0.05]), host=0.2)])
    assert round_.plain == pytest.approx((1.2 + 0.05 + 0.2) / 2.9)


def test_tokens_that_are_not_worth_their_drafting_are_no_choice_but_for_all_alike() -> None:
    dear = Offer((0.9, 0.8), Drafting([0.0, 5.0, 10.0]))
    rows = [plan.others for plan in Round(PassCosts(LINEAR), Offer(), [dear]).plans([0.9], FREE)]
    assert rows == [(1,), (2,)]


def test_a_token_is_worth_its_part_of_a_decode_that_others_share() -> None:
    """Alone it would take longer than it is worth."""
    cost = DrafterCost(similar={1: 1.0, 2: 1.0})
    drafting, apart = Drafting([0.0, 0.6], "model", cost), Drafting([0.0, 0.6])
    for other, likeliest in ((drafting, [(1,), (2,)]), (apart, [(1,)])):
        round_ = Round(PassCosts(LINEAR), Offer(), [Offer((0.9,), other)])
        alike = [(2,)]
        assert [plan.others for plan in round_.plans([0.95], drafting)] == likeliest + alike


def test_a_text_that_drafts_nothing_finds_room_beside_any_drafts() -> None:
    free = Drafting([0.0] * 32)
    others = [Offer([0.9] * 31, free, depth=31, decided=True) for _ in range(2)]
    passes = PassCosts(LINEAR)
    round_ = Round(passes, Offer(), others)
    assert round_.plain == pytest.approx(passes.seconds(65) / (3 + 2 * sum([0.9] * 31)))


def test_what_others_have_decided_is_drawn_once_whatever_the_others_draft() -> None:
    drafting = Drafting([0.0, 0.2, 0.4, 0.6])
    decided = Offer((0.9, 0.8, 0.7), drafting, depth=2, decided=True, tokens=2.0)
    plans = list(Round(PassCosts(LINEAR), offer(tokens=4.0), [decided]).plans([0.9, 0.8], FREE))
    assert len(plans) == 4, "the likeliest first, and all alike"
    for plan in plans:
        assert plan.others == (3,) and plan.tokens == pytest.approx(2 * 2.7)
        assert plan.seconds == pytest.approx(1.0 + 0.1 * (3 + plan.depth) + 0.4)


def test_a_text_alone_pays_for_replays() -> None:
    drafting = Drafting([0.0, 0.1, 0.2], replays=[0.0, 0.5, 0.75])
    plans = Round(PassCosts(LINEAR), Offer(), ()).plans([0.9, 0.8], drafting)
    assert [plan.seconds for plan in plans] == pytest.approx([1.1 + 0.6, 1.2 + 0.95])


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.floats(0.5, 1), max_size=5), min_size=1, max_size=3),
    st.lists(st.floats(0.5, 1), min_size=1, max_size=9),
    st.lists(st.floats(0, 0.5), min_size=10, max_size=10),
    st.booleans(),
)
def test_the_best_choice_is_the_best_of_those_that_all_bear(
    others: list[list[float]], chances: list[float], saved: list[float], saves: bool
) -> None:
    def survivals(chances: Sequence[float]) -> list[float]:
        found, all_right = [], 1.0
        for chance in chances:
            all_right *= chance
            found.append(all_right)
        return found

    own = survivals(chances)
    offers = [offer(*survivals(each), slack=0.5 * number) for number, each in enumerate(others)]
    round_ = Round(PassCosts(STAIRS), offer(slack=1.0), offers)
    savings = saved if saves else []
    rates = [
        (1 + sum(own[: plan.depth]) + plan.tokens)
        / (plan.seconds - (saved[plan.depth] if saves else 0.0))
        for plan in round_.plans(own, FREE)
        if plan.seconds <= plan.most
    ]
    best, rate = round_.best(own, FREE, savings=savings)
    assert rate == pytest.approx(max(rates, default=0.0)) and bool(best) is bool(rates)


@pytest.mark.parametrize("planned", [False, True])
def test_a_deeper_draft_may_be_better_behind_a_step_that_is_dear(*, planned: bool) -> None:
    """Of the stairs, eight rows are better than four, but five to seven are worse."""
    own = [1.0] * 7
    alone, _ = Round(PassCosts(STAIRS), Offer(), ()).best(own, FREE)
    assert alone and alone.depth == 7
    # A row of another text is needed to fill the step.
    others = [offer(0.9, planned=planned, depth=1)]
    beside, _ = Round(PassCosts(STAIRS), offer(planned=planned), others).best(own[:5], FREE)
    assert beside and (beside.depth, beside.others) == (5, (2,))


def test_rows_of_others_may_fill_a_step_that_is_dear() -> None:
    survivals = [0.95**depth for depth in range(1, 7)]
    best, _ = Round(PassCosts(STAIRS), Offer(), [offer(*survivals)]).best([1.0], FREE)
    assert best and (best.depth, best.others) == (1, (6,))


def test_where_ready_tokens_save_time_a_deeper_draft_may_be_better() -> None:
    own, savings = [0.9, 0.1, 0.1], [0.0, 0.0, 0.0, 0.9]
    round_ = Round(PassCosts(LINEAR), Offer(), ())
    plain, _ = round_.best(own, FREE)
    ahead, rate = round_.best(own, FREE, savings=savings)
    assert plain and ahead and (plain.depth, ahead.depth) == (1, 3)
    assert rate == pytest.approx(2.1 / (1.3 - 0.9))


def test_who_may_share_the_decodes_of_a_drafter() -> None:
    cost = DrafterCost(similar={1: 1.0, 2: 1.2, 3: 1.5})
    drafting, other = (Drafting([0.0, 1.0], name, cost) for name in ("model", "another"))
    offers = [Offer((0.9,), each) for each in (drafting, other, drafting)]
    round_ = Round(PassCosts(LINEAR), Offer(), offers)
    assert round_.part(drafting) == pytest.approx(0.5)
    assert round_.part(other) == pytest.approx(0.6)


def test_prompts_are_read_by_those_that_draft_and_have_not_decided() -> None:
    unread = Drafting([0.0, 0.1], unread=2.0)
    others = [Offer((0.9,), unread), Offer((0.9,), unread), Offer((0.9,), unread, decided=True)]
    round_ = Round(PassCosts(LINEAR), Offer(), others)
    plan = RoundPlan(1, (2,), 1.0, 2.0, 9.0, (1, 0, 1))
    assert round_.unread(plan) == 2.0
