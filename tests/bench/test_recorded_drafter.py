"""A recorded drafter drafts what its rows say, and knows how much of the text it has not read."""

import numpy as np

from localspec.bench.experiments.recorded_drafter import RecordedDrafter, Recording
from localspec.forecast.answers import RecordedAnswer
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.stats import Stats

PROMPT = [1, 2, 3]


def test_it_drafts_what_it_said_and_reads_what_it_did_not_draft() -> None:
    sampler = Sampler(SamplingParams(temperature=0.0), Noise(5))
    answer = RecordedAnswer(PROMPT, [10, 11, 12, 13, 14, 15], 6, sampler, Stats())
    rows = np.zeros((6, 24), np.float32)
    rows[range(6), [10, 11, 4, 13, 14, 15]] = 6.0
    drafter = RecordedDrafter("model")
    drafter.record(Recording(answer, rows))
    drafter.begin(PROMPT)
    assert drafter.traits.backlog is not None and drafter.traits.backlog() == 3

    def drafted(text: list[int]) -> list[int]:
        return list(drafter.propose(Limit(4, sampler.prefix(text), sampler)).tokens)

    assert drafted(PROMPT) == [10, 11, 4, 13]
    drafter.observe(Outcome([10, 11, 12], 2))
    assert drafter.traits.backlog() == 1
    drafter.observe(Outcome([13], 0))
    assert drafter.traits.backlog() == 2
    assert drafted([*PROMPT, 10, 11, 12, 13]) == [14, 15]
