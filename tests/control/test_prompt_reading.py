"""Reading prompts: a drafter reads where the texts will save more than they have to read."""

from dataclasses import replace
from typing import Any

import pytest

from localspec.bench.experiments.simulated_drafter import COSTS, READING, User
from localspec.bench.experiments.simulated_users import SimulatedUsers, Speeds, auto, plain
from localspec.control.acceptance import AcceptancePrior, DraftCounts
from localspec.control.joint_drafting import Drafting
from localspec.control.pass_costs import PassCosts
from localspec.control.prompt_reading import reading_pays
from localspec.control.round import Round
from localspec.control.row_budget import Offer, RowBudget, writing
from localspec.speculation.policy import Step

LIKELY = (0.9, 0.8, 0.7, 0.6)


def company(passes: PassCosts, *offers: Offer) -> Round:
    """The round of a text beside others that offer these."""
    return Round(passes, Offer(), offers)


def unread(seconds: float, name: str = "drafter") -> Drafting:
    """That of drafts of four tokens which each take a tenth of a plain pass of one text."""
    return Drafting([0.0, 0.1, 0.2, 0.3, 0.4], unread=seconds, name=name)


def test_a_long_round_in_which_others_read_does_not_make_reading_pay() -> None:
    """In it a text has a decode for itself, but it is soon over."""
    dear = PassCosts({1: 1.0, 2: 1.05, 3: 2.8, 4: 3.7, 5: 4.6})
    reading = [Offer(reading=True), Offer(reading=True)]
    meanwhile = company(dear, *reading)
    plan, rate = meanwhile.best(LIKELY, unread(3.0))
    assert plan is not None
    assert meanwhile.saved(plan, rate, LIKELY, 48.0) > 3.0
    assert not reading_pays(meanwhile, LIKELY, unread(3.0), 48.0, known=True)
    cheap = PassCosts({1: 1.0, 32: 1.1})
    assert reading_pays(company(cheap, *reading), LIKELY, unread(3.0), 48.0, known=True)


def test_what_others_have_decided_for_one_round_does_not_make_reading_pay() -> None:
    """A draft of another text that was too long makes every further row look cheap."""
    stairs = PassCosts({1: 1.0, 2: 1.9, 3: 2.8, 4: 3.7, 8: 7.0, 9: 7.0, 12: 7.0})
    other = Offer(LIKELY, unread(0.0), depth=4, decided=True)
    assert not reading_pays(company(stairs, other), LIKELY, unread(3.0), 48.0, known=True)


# Two texts in one decode may draft, one may not: four rows cost hardly more than two, three do.
TOGETHER = PassCosts({1: 1.0, 2: 1.2, 3: 2.4, 4: 1.3, 8: 4.0}, pads=False)


@pytest.mark.parametrize(("seconds", "pays"), [(2.0, True), (20.0, False)])
def test_all_texts_together_must_save_more_than_all_read(seconds: float, pays: bool) -> None:
    drafting = Drafting([0.0, 0.1], unread=seconds, name="drafter")
    own = company(TOGETHER, Offer((0.9,), drafting))
    assert reading_pays(own, (0.9,), drafting, 48.0, known=True) is pays
    # What this text reads is little, but the other has too much to read.
    little, much = replace(drafting, unread=0.1), replace(drafting, unread=90.0)
    assert not reading_pays(
        company(TOGETHER, Offer((0.9,), much)), (0.9,), little, 48.0, known=True
    )


def test_of_a_known_drafter_all_must_pay_though_rounds_take_a_tenth_longer() -> None:
    drafting = Drafting([0.0, 0.1], unread=9.0, name="drafter")
    own = company(TOGETHER, Offer((0.9,), drafting))
    assert reading_pays(own, (0.9,), drafting, 48.0, known=False)
    assert not reading_pays(own, (0.9,), drafting, 48.0, known=True)


def test_of_an_unknown_drafter_one_text_reads_first() -> None:
    drafting = Drafting([0.0, 0.1], unread=1.0, name="drafter")
    ready = replace(drafting, unread=0.0)
    others = Offer((0.9,), drafting), Offer((0.9,), ready, read=frozenset(["drafter"]))
    assert reading_pays(company(TOGETHER, others[0]), (0.9,), drafting, 48.0, known=False)
    # The second has read and drafts already: what it finds is worth waiting for.
    passes = PassCosts({1: 1.0, 3: 1.4, 4: 2.9, 5: 2.9, 6: 1.6}, pads=False)
    waits = company(passes, *others)
    assert reading_pays(waits, (0.9,), drafting, 48.0, known=True)
    assert not reading_pays(waits, (0.9,), drafting, 48.0, known=False)


@pytest.mark.parametrize(
    ("seconds", "offered", "read", "alike", "pays"),
    [
        (12.0, 1.0, False, False, True),
        (12.0, 1.0, False, True, False),
        (12.0, 1.0, True, True, True),
        (7.0, 7.0, False, True, True),
    ],
)
def test_others_may_have_to_read_more_than_for_what_they_offer(
    seconds: float, offered: float, *, read: bool, alike: bool, pays: bool
) -> None:
    """As much as this text where their drafts are from an end; once, and not who has read.

    Together they save 15.9, if rounds take a tenth longer.
    """
    drafting = Drafting([0.0, 0.1], unread=seconds, name="drafter")
    names = frozenset(["drafter"] if read else [])
    other = Offer((0.9,), replace(drafting, unread=offered), read=names)
    found = reading_pays(company(TOGETHER, other), (0.9,), drafting, 48.0, known=True, alike=alike)
    assert found is pays


def test_drafts_that_are_certain_stay_so_behind_the_prompts() -> None:
    """Those of a fixed depth, which expects nothing, and of a text that is about to read."""
    fixed = Offer([0.0] * 4, Drafting([0.0] * 5), depth=4, decided=True)
    assert fixed.behind_prompts(read=False).decided
    decided = Offer(LIKELY, unread(3.0), depth=2, decided=True)
    for read in (False, True):
        offer = decided.behind_prompts(read=read)
        assert (offer.depth, offer.survivals, offer.drafting.unread) == (2, LIKELY, 0.0)
        assert not offer.decided
    waits = Offer(LIKELY, unread(3.0))
    assert waits.behind_prompts(read=True).drafting.unread == 3.0
    assert not waits.behind_prompts(read=False).survivals
    assert Offer(LIKELY, unread(0.0)).behind_prompts(read=False).survivals == LIKELY
    # One that has decided to draft nothing has not read its prompt.
    rests = Offer(LIKELY, unread(3.0), depth=0, decided=True)
    assert rests.behind_prompts(read=True).drafting.unread == 3.0
    reads = Offer(reading=True)
    assert writing([reads]) == 1 and writing([reads.behind_prompts(read=False)]) == 2
    reads.decide(0)
    assert writing([reads]) == 2


def test_a_prompt_is_read_once_the_draft_was_drawn() -> None:
    """Also for a text that decides before this one does so again."""
    users = SimulatedUsers(COSTS["GPU"], [User(0.9, prompt=20)] * 2, auto)
    while not any(each.draft for each in users.writers):
        users.step()
    for each in users.writers:
        if each.draft:
            assert each.share.offer.drafting.unread == 0
            assert "drafter" in each.share.offer.read


def test_a_prompt_is_not_read_by_deciding_to_draft_nothing() -> None:
    share, step = RowBudget().new_share(), Step((), 0, 1, (1,), 1.0, 0.0)
    for depth, left in ((0, 3.0), (2, 0.0)):
        share.offer.bring(LIKELY, unread(3.0), depth)
        share.learn(step, PassCosts({1: 1.0}))
        assert share.offer.drafting.unread == left and not share.offer.decided


def test_who_reads_a_prompt_late_reads_what_was_written_since() -> None:
    """All of it must be earned back by the coming tokens."""
    users = SimulatedUsers(COSTS["Q4_0 A"], [User(0.3, prompt=100)] * 4, auto).run(50)
    users.step()
    for each in users.writers:
        assert each.tokens == 51 and each.drafter.traits.backlog() == 100 + 51
        # Up to eight steps old: all are asked in each fourth round, and it in each second of those.
        unread = each.share.offer.drafting.unread / READING
        assert 100 + 43 <= round(unread) <= 100 + 50


def test_one_text_reads_before_the_others() -> None:
    """Together eight may gain; one of them looks first whether they do."""
    users = SimulatedUsers(COSTS["F16 A"], [User(0.9, prompt=100)] * 8, auto)
    read = [0]
    while users.writers[0].tokens < 60:
        users.step()
        read.append(sum(not each.drafter.traits.backlog() for each in users.writers))
    assert next(filter(None, read)) == 1
    assert read[-1] == 8


def known(rate: float) -> AcceptancePrior:
    """Earlier runs, in which this share of the drafted tokens was right."""
    counts = DraftCounts()
    for number in range(100):
        counts.add(0, number < 100 * rate)
    return AcceptancePrior({"drafter": rate}, {"drafter": counts})


@pytest.mark.parametrize("users", [4, 8])
@pytest.mark.parametrize("costs", ["Q4_0 A", "F16 B", "GPU"])
@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_prompts_of_a_known_drafter_are_not_read_in_vain(
    rate: float, costs: str, users: int
) -> None:
    each = [User(rate, prompt=100)] * users

    def make(*given: object) -> object:
        return auto(*given, prior=known(rate))  # type: ignore[arg-type]

    before, after = (
        Speeds.of(SimulatedUsers(COSTS[costs], each, way).run(400))  # type: ignore[arg-type]
        for way in (plain, make)
    )
    assert after.total >= 0.94 * before.total


def test_texts_that_have_nothing_to_gain_hardly_think_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deciding takes time too, in which all wait."""
    asked, best = [0], Round.best

    def counted(*given: Any) -> Any:
        asked[0] += 1
        return best(*given)

    monkeypatch.setattr(Round, "best", counted)
    users = SimulatedUsers(COSTS["Q4_0 A"], [User(0.5, prompt=400)] * 4, auto).run(100)
    assert all(each.tokens == 100 for each in users.writers)
    assert 20 <= asked[0] <= 100
    # One that comes is asked at once.
    begin, asked[0] = users.writers[0].policy.begin, 0
    begin()
    users.step()
    assert asked[0] >= 1
