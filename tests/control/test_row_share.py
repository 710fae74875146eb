"""Row share: how far a text is ahead of plain decoding, step by step, by hand."""

from typing import Any

import pytest

from localspec.control.joint_drafting import NO_DRAFTING, Drafting
from localspec.control.loss_budget import LossBudget
from localspec.control.pass_costs import PassCosts
from localspec.control.row_budget import DELAY, Offer, RowBudget, RowShare
from localspec.speculation.policy import Step

COSTS = {1: 1.0, 2: 1.2, 3: 1.5, 4: 2.0, 8: 4.0, 32: 16.0}
GAIN = 1 + LossBudget.ALLOWANCE


def shares(texts: int) -> list[RowShare]:
    budget = RowBudget()
    made = [budget.new_share() for _ in range(texts)]
    for each in made:
        each.begin("cache")
    return made


def step(width: int, *others: int, tokens: int = 1, host: float = 0.0, **options: Any) -> Step:
    """A step whose pass takes no time of its own; with `draft_seconds` it has drafted."""
    seconds = host + options.get("draft_seconds", 0.0) + sum(options.get("reading", {}).values())
    return Step(
        (5,) * bool(options.get("draft_seconds")),
        0,
        width,
        (7,) * tokens,
        seconds,
        options.pop("draft_seconds", 0.0),
        0,
        others,
        **options,
    )


def test_what_was_offered_for_one_round_ends_with_it() -> None:
    [share] = shares(1)
    share.offer = Offer((0.5,), Drafting([0.0, 0.1]), 1, risk=5.0, trial=True, decided=True)
    share.learn(step(2, tokens=3, host=0.64), PassCosts(COSTS))
    offer = share.offer
    assert (offer.risk, offer.trial, offer.decided, offer.depth) == (0.0, False, False, 1)
    # A 32nd of the way to what the step brought and took.
    assert (offer.tokens, offer.host) == pytest.approx((1 + 2 / 32, 0.02))
    assert offer.slack == float("inf"), "a text alone waits for nobody"


def test_all_wait_for_a_draft_and_for_what_others_do_outside_the_models() -> None:
    own, other, reader = shares(3)
    other.offer.host, reader.offer.host, reader.offer.reading = 0.1, 9.0, True
    done = step(2, 2, tokens=2, draft_seconds=0.75, reading={"head": 0.25})
    own.learn(done, PassCosts(COSTS), prompt=0.5, lost=0.125)
    plain, took = 1.2, 2.0 + (0.75 - 0.5) + 0.25 + 0.125
    lead = GAIN * 2 * (plain + 0.1) - (took + 0.1)
    assert own.lead.available(0.0) == pytest.approx(lead)
    assert own.offer.slack == pytest.approx(DELAY * plain + lead)


def test_a_decode_takes_what_its_very_rows_take() -> None:
    """They are padded already."""
    own, _ = shares(2)
    own.learn(step(1, 1), PassCosts({1: 1.0, 2: 1.9, 4: 1.2}))
    assert own.lead.available(0.0) == pytest.approx(GAIN * 1.2 - 1.9)


def test_where_unequal_rows_share_nothing_a_round_takes_the_passes_of_all() -> None:
    own, other, reader = shares(3)
    other.offer.depth, reader.offer.depth, reader.offer.reading = 1, 5, True
    own.learn(step(3, tokens=2), PassCosts(COSTS, unequal_apart=True))
    assert own.lead.available(0.0) == pytest.approx(GAIN * 2 * 1.2 - (1.5 + 1.2))


def test_others_wait_for_a_draft_from_their_first_decision_on() -> None:
    own, new, decided, known, reader = shares(5)
    for each in (decided, reader):
        each.offer.bring((), NO_DRAFTING, 0)
    known.offer.slack = 2.0
    reader.offer.decided, reader.offer.reading = False, True
    own.learn(step(2, 1, 1, 1, draft_seconds=0.5), PassCosts(COSTS))
    assert [each.lead.available(0.0) for each in (new, reader)] == [0.0, 0.0]
    assert [each.lead.available(0.0) for each in (decided, known)] == [-0.5, -0.5]
    # What a text bears that has learnt nothing yet is not known.
    assert decided.offer.slack == new.offer.slack == float("inf")
    assert known.offer.slack == pytest.approx(DELAY * 2.0 - 0.5)


def test_deciding_that_nothing_is_drafted_is_nobodys_debt() -> None:
    """It has an account of its own; else texts that only decide could afford no draft at last."""
    own, other = shares(2)
    other.offer.bring((), NO_DRAFTING, 0)
    for _ in range(50):
        own.learn(Step((), 0, 1, (7,), 1.6, 0.4, 0, (1,)), PassCosts(COSTS))
    assert own.lead.available(0.0) == pytest.approx(50 * (GAIN - 1) * 1.2)
    assert other.lead.available(0.0) == 0.0
    assert own._in_company.takes > 0.1


def test_a_text_that_begins_owes_nothing() -> None:
    own, other = shares(2)
    for _ in range(3):
        own.learn(step(8, 1), PassCosts(COSTS))
    assert own.lead.available(0.0) < -3.0 and own.offer.slack < 0.0
    own.begin("another")
    assert own.lead.available(0.0) == 0.0 and own.offer == Offer() and not other.others


def test_debts_of_any_text_are_forgiven_beyond_ten_decodes() -> None:
    budget = RowBudget()
    own, _ = budget.new_share(), budget.new_share()
    for _ in range(20):
        own.learn(step(31, 1), PassCosts(COSTS))
    assert own.lead.available(0.0) == pytest.approx(-10 * 1.2)
