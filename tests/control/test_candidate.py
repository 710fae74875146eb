"""Candidate: what is learnt of a drafter, and when one that has failed is tried again."""

from collections.abc import Sequence
from typing import Any

import pytest
from fakes.machine import CheapDrafter, CostlyDrafter, FakeClock, OfTraits

from localspec.control.acceptance import (
    NO_PRIOR,
    AcceptancePrior,
    AcceptanceRates,
    DraftCounts,
    Tally,
)
from localspec.control.candidate import Candidate
from localspec.control.drafter_cost import DrafterCost
from localspec.control.joint_drafting import NO_DRAFTING
from localspec.control.row_budget import Offer, RowBudget
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit

LIMIT = Limit(8, Prefix(0), Sampler(SamplingParams(), Noise(0)))


def of_traits(prior: AcceptancePrior = NO_PRIOR, **traits: Any) -> Candidate:
    return Candidate(OfTraits(FakeClock(), **traits), DrafterCost(0.3, 0.1), prior)


def cheap(*tokens: int) -> Candidate:
    """Of a drafter that always proposes these tokens."""
    drafter = CheapDrafter(lambda: len(tokens), iter(tokens * 99).__next__)  # type: ignore[arg-type]
    return Candidate(drafter, DrafterCost())


def fail(candidate: Candidate, trials: int = 4) -> None:
    for _ in range(trials):
        candidate.end_trial(paid=False)


def is_restarted(candidate: Candidate) -> bool:
    """Whether its acceptance rates are forgotten in the text that begins now."""
    rates = candidate.acceptance_rates
    candidate.begin_text()
    return candidate.acceptance_rates is not rates


def test_a_drafter_that_fails_starts_again_in_the_1st_4th_and_13th_text_behind() -> None:
    candidate = Candidate(CostlyDrafter(FakeClock(), lambda: False), DrafterCost(0.1, 0.1))
    started = []
    for text in range(20):
        if is_restarted(candidate):
            started.append(text)
        for _ in range(4):
            candidate.start_draft()
            candidate.learn([0], [1])
            candidate.end_trial(paid=False)
    assert started == [1, 4, 13]
    candidate.end_trial(paid=True)
    fail(candidate)
    assert is_restarted(candidate), "one that has paid since starts again at once"


def test_what_is_a_failure() -> None:
    assert not is_restarted(of_traits())
    failing = of_traits()
    fail(failing, trials=2)
    assert not is_restarted(failing), "it waits four steps"
    fail(failing, trials=1)
    assert is_restarted(failing)
    assert [failing.is_trial_due() for _ in range(2)] == [False, True], "it waits no longer"
    copies = cheap(1)
    fail(copies)
    assert not is_restarted(copies)


@pytest.mark.parametrize(
    ("gain", "drafts", "fails"), [(-1, 0, True), (-1, 1, False), (1, 0, False)]
)
def test_a_drafter_that_drafted_nothing_in_a_text_has_failed_if_it_does_not_pay(
    gain: float, drafts: int, fails: bool
) -> None:
    candidate = of_traits()
    candidate.learn_gain(gain)
    assert not is_restarted(candidate)
    for _ in range(drafts):
        candidate.start_draft()
    assert is_restarted(candidate) is fails


# What it knows.


def counted(right: int, tried: int, margin: float | None = None) -> DraftCounts:
    counts = DraftCounts()
    for number in range(tried):
        counts.add(0, number < right, margin)
    return counts


@pytest.mark.parametrize(
    ("earlier", "others", "known"), [(6, 6, True), (6, 5, False), (0, 12, True)]
)
def test_a_drafter_is_known_by_twelve_tokens_wherever_they_were_seen(
    earlier: int, others: int, known: bool
) -> None:
    counts = {"costly": counted(0, earlier)} if earlier else {}
    candidate = of_traits(AcceptancePrior(counts=counts))
    candidate.acceptance_rates.expect(Tally(0, others))
    assert candidate.is_known is known


def test_it_starts_from_earlier_runs_and_does_so_again_after_a_failure() -> None:
    prior = AcceptancePrior({"costly": 0.5}, {"costly": counted(10, 100, 5.0)})
    candidate = of_traits(prior)
    expected = AcceptanceRates(0.5, prior.counts["costly"]).chances(2)
    for _ in range(2):
        assert candidate.acceptance_rates.chances(2) == expected
        assert candidate.reports_confidence
        # Sixteen of them count, beside three of the first guess, for a token as sure.
        assert candidate.add_margin(5.0) < (1.6 + 3) / 19
        fail(candidate)
        candidate.begin_text()
    assert not of_traits().reports_confidence


def test_what_other_texts_see_is_expected_and_they_are_told() -> None:
    budget = RowBudget()
    own, other = budget.new_share(), budget.new_share()
    other.seen["costly"] = Tally(0, 16)
    before = own.seen["costly"] = Tally(1, 1)
    candidate = of_traits()
    candidate.learn_from_others(own)
    assert candidate.acceptance_rates.pooled == pytest.approx(0.7 * 4 / 20)
    assert own.seen["costly"] is before, "nothing was seen yet"
    candidate.learn([1], [1])
    candidate.learn_from_others(own)
    assert own.seen["costly"].tried == 1 and own.seen["costly"] is not before


# What it drafts.


def test_ready_tokens_take_no_time() -> None:
    candidate = of_traits(ready=lambda: 2, computer=lambda: "model")
    drafting = candidate.drafting(4, unread=3.0)
    assert drafting.alone == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2])
    assert (drafting.computer, drafting.unread, drafting.name) == ("model", 3.0, "costly")
    # Passes that draw a whole draft are of one text.
    assert of_traits(parallel=True, computer=lambda: "model").drafting(4).computer is None


def test_only_drafters_that_draw_ahead_save_by_it() -> None:
    survivals, passes = [0.8, 0.6], [0.0, *[0.35] * 8]
    assert of_traits().savings(survivals, passes) == []
    candidate = of_traits(ready=lambda: 3)
    assert candidate.savings([], passes) == []
    for _ in range(99):
        candidate.overlap.tokens(0.8, 3, 1.0, candidate.cost)
    # Behind the first token and the guess are two ready ones, and three that the pass has time for;
    # the usual draft has three.
    assert candidate.savings(survivals, passes)[1] == pytest.approx(0.6 * (0.3 + 2 * 0.1))
    none_ready = of_traits(ready=lambda: 0)
    for _ in range(99):
        none_ready.overlap.tokens(0.8, 3, 1.0, none_ready.cost)
    assert none_ready.savings(survivals, passes)[1] == pytest.approx(0.6 * (0.3 + 0.1))


def test_survivals_are_products_up_to_its_deepest_draft() -> None:
    asked: list[int] = []

    def chances(limit: Limit) -> Sequence[float]:
        asked.append(limit.depth)
        return [0.5, 0.5, 0.8]

    candidate = of_traits(chances=chances, deepest=3)
    assert candidate.survivals(LIMIT) == pytest.approx([0.5, 0.25, 0.2])
    assert asked == [3]
    assert of_traits(deepest=3).survivals(LIMIT) == pytest.approx([0.7, 0.49, 0.343])
    assert of_traits().depth(LIMIT) == 8


def test_a_cheap_draft_is_as_long_as_it_is_and_is_scored_though_another_is_taken() -> None:
    candidate = cheap(1, 1, 0)
    assert candidate.shadow_draft(9) is None
    assert candidate.survivals(LIMIT) == pytest.approx([0.7, 0.49, 0.343])
    draft = candidate.shadow_draft(2)
    assert draft and [*draft.tokens] == [1, 1]
    for _ in range(2):  # only once
        candidate.score_shadow_draft([1, 1, 1, 1])
        assert [(each.right, each.tried) for each in candidate.counts.positions] == [
            (1, 1),
            (1, 1),
            (0, 1),
        ]


def test_it_rests_where_nothing_may_be_drafted() -> None:
    candidate = cheap(1, 1)
    candidate.acceptance_rates.learn(0, True)
    assert not candidate.has_likely_copy(LIMIT.to(0))
    assert candidate.has_likely_copy(LIMIT)
    assert candidate.has_likely_copy(LIMIT), "it was not asked yet"
    candidate.survivals(LIMIT)
    assert not candidate.has_likely_copy(LIMIT)


def test_confidence_is_learnt_of_the_tokens_of_its_own_draft() -> None:
    candidate = of_traits()
    sure = candidate.add_margin(5.0)  # of a draft that another one was taken for
    for _ in range(20):
        candidate.start_draft()
        for margin in (5.0, 0.2, 0.2):
            candidate.add_margin(margin)
        candidate.learn([1, 1, 0], [1, 1, 1])
    margins = [(each.right, each.tried) for each in candidate.counts.margins if each.tried]
    assert margins == [(20, 40), (20, 20)]
    assert [each.tried for each in candidate.counts.positions] == [20, 20, 20]
    candidate.start_draft()
    assert candidate.add_margin(5.0) > sure
    # Of the tokens with this confidence, the second ones were right and the third ones wrong.
    assert candidate.add_margin(0.2) > 0.7 and candidate.add_margin(0.2) < 0.3
    # Without margins, as of a draft that it was not asked about.
    candidate.learn([1], [1])
    candidate.learn([0], [1])
    assert sum(each.tried for each in candidate.counts.margins) == 61


def test_only_the_confidence_of_single_tokens_is_worth_a_look() -> None:
    flat = [0.0, *[1.0] * 9]
    candidate, parallel = of_traits(), of_traits(parallel=True)
    assert candidate.gain_of_looking(flat, 4) == 0.0
    for each in (candidate, parallel):
        each.add_margin(5.0)
    assert candidate.gain_of_looking(flat, 4) > 0.0
    assert candidate.gain_of_looking(flat, 0) == 0.0  # the draft may have no token
    assert parallel.gain_of_looking(flat, 4) == 0.0


# Reading prompts.


def test_two_percent_of_the_time_of_all_tokens_may_be_read_to_learn_and_later_half_a_percent() -> (
    None
):
    candidate = of_traits()
    candidate.collect(100.0)
    assert candidate.affordable(24, 5.0) == pytest.approx(2.0 + 0.02 * 24 * 5.0)
    assert candidate.affordable(24, 0.5) == pytest.approx((0.15 + 0.02) * 24 * 0.5), "of one text"
    assert candidate.affordable(23, 0.5) == 0.0
    candidate.start_draft()
    assert candidate.affordable(100, 1.0) == pytest.approx(2.0), "of the coming ones"
    candidate.add_margin(5.0)
    candidate.collect(100.0)
    assert candidate.affordable(100, 1.0) == pytest.approx(0.5)


def test_a_pause_is_of_four_steps_in_one_company() -> None:
    def company(*read: str) -> list[Offer]:
        return [Offer(read=frozenset([each])) for each in read]

    candidate, two = of_traits(), company("costly", "another")

    def pauses(others: list[Offer], *, steps: int = 1) -> int:
        candidate.pause(two, [0.5], NO_DRAFTING)
        return sum(candidate.take_pause(others) is not None for _ in range(steps))

    assert candidate.take_pause(two) is None
    assert pauses(two, steps=9) == 4
    assert pauses(company("another", "costly")) == 1
    assert pauses(company("costly", "costly")) == pauses(company("costly")) == pauses([]) == 0
    candidate.pause(two, [0.5], NO_DRAFTING)
    candidate.begin_text()
    assert candidate.take_pause(two) is None
    candidate.pause([], [0.5], NO_DRAFTING)
    assert candidate.take_pause([]) is None, "a text alone makes none"


# Hidden rows.


def head(*, only_last_row: bool = False) -> Candidate:
    return of_traits(reads_hidden=(1,), only_last_row=only_last_row)


def read(candidate: Candidate, seconds: float, *, drafted: bool = False) -> None:
    """A step in which it reads for so long, and another head longer."""
    reading = {"costly": seconds, "another": 99.0} if seconds else {"another": 99.0}
    candidate.learn_reading(reading, 0.5, drafted=drafted)


def test_a_head_may_read_for_four_plain_steps_before_it_pays() -> None:
    candidate = head()
    for _ in range(2):
        for _ in range(4):
            read(candidate, 0.5)
        assert candidate.reads and candidate.is_shown
        candidate.end_trial(paid=True)
    fail(candidate, trials=1)
    for _ in range(4):
        read(candidate, 0.5)
    assert candidate.reads
    read(candidate, 0.01)
    assert not candidate.reads and candidate.is_shown
    read(candidate, 0.0)
    assert not candidate.is_shown, "it lacks a row"
    for _ in range(9):
        read(candidate, 0.0)
        assert not candidate.reads, "nor is it of use to show it later ones"
    candidate.end_trial(paid=True)
    assert candidate.reads
    read(candidate, 0.5)
    assert candidate.reads and candidate.is_shown
    drafter = of_traits()
    read(drafter, 9.0)
    assert drafter.reads and drafter.is_shown


def test_a_head_of_the_last_row_is_shown_it_before_its_next_trial() -> None:
    candidate = head(only_last_row=True)
    read(candidate, 9.0)
    fail(candidate, trials=2)  # it waits four steps
    candidate._shown = False
    seen = []
    for _ in range(4):
        read(candidate, 0.0)
        seen.append((candidate.reads, candidate.is_shown))
    assert seen == [(False, False)] * 3 + [(True, False)]
    read(candidate, 0.1)
    assert candidate.is_shown
    # The trial itself says how it ends; but where it could not be afforded, it has failed.
    read(candidate, 0.1, drafted=True)
    assert candidate.reads
    read(candidate, 0.1)
    assert not candidate.reads


def stopped_once() -> Candidate:
    """A head that had stopped, in the text behind."""
    candidate = head()
    read(candidate, 9.0)
    assert not candidate.reads
    candidate.begin_text()
    return candidate


def test_a_head_that_had_stopped_reads_again_where_little_is_missing() -> None:
    candidate = stopped_once()
    candidate.resume(1.0, 2.0)
    assert candidate.reads and candidate.is_shown
    read(candidate, 1.9)
    assert candidate.reads, "what it read before is forgotten"
    candidate.begin_text()
    candidate.resume(9.0, 2.0)
    assert candidate.reads, "it has not stopped since"
    candidate = stopped_once()
    candidate.resume(3.0, 2.0)
    assert not candidate.reads and not candidate.is_shown
    for restarts in (False, False, True):
        candidate.begin_text()
        assert candidate.reads is candidate.is_shown is restarts
    other = head()
    fail(other)
    other.begin_text()
    other.resume(3.0, 2.0)
    assert other.reads, "it has failed, but never stopped"


# Trials.


def test_a_trial_is_due_behind_1_2_4_up_to_128_steps() -> None:
    candidate, waited = of_traits(), []
    for _ in range(9):
        steps = 1
        while not candidate.is_trial_due():
            steps += 1
        waited.append(steps - 1)
        candidate.end_trial(paid=False)
    assert waited == [1, 2, 4, 8, 16, 32, 64, 128, 128]
    candidate.end_trial(paid=True)
    assert [candidate.is_trial_due() for _ in range(2)] == [False, True]


def test_beside_others_trials_are_rarer_but_come_together() -> None:
    def waited(patience: float, *, in_company: bool) -> int:
        candidate, steps = of_traits(), 1
        fail(candidate, trials=3)  # it waits eight steps
        while not candidate.is_trial_due(patience, in_company=in_company):
            steps += 1
        return steps - 1

    assert waited(3.0, in_company=False) == 24
    assert waited(3.0, in_company=True) == 12


def test_the_gain_is_an_average_of_the_last_steps() -> None:
    candidate = of_traits()
    for _ in range(2):
        candidate.learn_gain(1.0)
    assert candidate.gain == pytest.approx(0.19)
    candidate.learn_gain(-1.0)
    assert candidate.gain == pytest.approx(0.071)


def test_a_head_waits_twice_as_long_after_each_trial_that_failed() -> None:
    """Of one that needs the last row alone, and whether it could be afforded or not."""
    for drafts in (True, False):
        head = of_traits(reads_hidden=(1,), only_last_row=True)
        head.learn_reading({"costly": 100.0}, 1.0, drafted=False)
        head.is_shown = False
        trials = list[int]()
        for step in range(40):
            drafted = drafts and head.is_shown
            trials += [step] if head.is_shown else []
            head.learn_reading({"costly": 0.1} if head.reads else {}, 1.0, drafted=drafted)
            if drafted:
                head.end_trial(paid=False)
        assert trials == [2, 6, 12, 22]
