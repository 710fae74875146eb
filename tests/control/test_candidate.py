"""Candidate: when a drafter that has failed is tried again in other texts."""

from fakes.machine import CostlyDrafter, FakeClock

from localspec.control.candidate import Candidate
from localspec.control.drafter_cost import DrafterCost


def test_a_drafter_that_fails_starts_again_in_the_1st_4th_and_13th_text_behind() -> None:
    candidate = Candidate(CostlyDrafter(FakeClock(), lambda: False), DrafterCost(0.1, 0.1))
    started = []
    for text in range(20):
        rates = candidate.acceptance_rates
        candidate.begin_text()
        if candidate.acceptance_rates is not rates:
            started.append(text)
        for _ in range(4):
            candidate.start_draft()
            candidate.learn([0], [1])
            candidate.end_trial(paid=False)
    assert started == [1, 4, 13]
    candidate.end_trial(paid=True)
    for _ in range(4):
        candidate.end_trial(paid=False)
    rates = candidate.acceptance_rates
    candidate.begin_text()
    assert candidate.acceptance_rates is not rates, "one that has paid since starts again at once"
