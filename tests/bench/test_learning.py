"""Corrections learn what they are for, from nothing but verified rows, and none is a baseline."""

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.bench.experiments.corrections import (
    ChoiceRates,
    Copies,
    Correction,
    LowRank,
    Ngrams,
    Scale,
    all_corrections,
)
from localspec.bench.experiments.learning import steps_at
from localspec.bench.experiments.recorded_drafter import RecordedDrafter, Recording
from localspec.forecast.answers import Answer
from localspec.sampling.block_maxima import Row
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome
from localspec.stats import Stats

VOCABULARY = 24
PROMPT = [1, 2, 3]


def row(best: int, lead: float = 6.0) -> Row:
    logits = np.linspace(0.0, 0.5, VOCABULARY, dtype=np.float32)
    logits[best] += np.float32(lead)
    return logits


def sampler(temperature: float = 0.0) -> Sampler:
    return Sampler(SamplingParams(temperature=temperature), Noise(5))


def recording(tokens: Sequence[int], drafted: Sequence[int]) -> Recording:
    """A greedy answer of these tokens, where the drafter's likeliest tokens are `drafted`."""
    answer = Answer(PROMPT, list(tokens), len(tokens), sampler(), Stats())
    target, drafter = (np.stack([row(each) for each in best]) for best in (tokens, drafted))
    return Recording(answer, target, drafter)


def ngrams(**options: bool) -> Ngrams:
    return Ngrams("n-grams", [1, 2], 1.0, **options)


@pytest.mark.parametrize("made", [Ngrams("bias", [0], 0.3), ngrams()])
def test_a_correction_learns_what_the_target_says(made: Correction) -> None:
    text, drafter, target = [*PROMPT, 7], row(4), row(9)
    for _ in range(60):
        made.learn(drafter, text, target)
    assert int(made.corrected(drafter, text).argmax()) == 9
    assert int(drafter.argmax()) == 4, "the drafter's own row is left as it was"


def test_rows_that_are_alike_are_corrected_alike() -> None:
    made = LowRank(8, 1.0)
    for _ in range(60):
        made.learn(row(4), PROMPT, row(9))
        made.learn(row(5), PROMPT, row(5))
    assert int(made.corrected(row(4, 5.0), PROMPT).argmax()) == 9
    assert int(made.corrected(row(5, 5.0), PROMPT).argmax()) == 5


def test_biases_are_those_of_the_last_tokens_and_of_the_text() -> None:
    made, drafter = ngrams(forgets=True), row(4)
    for _ in range(60):
        made.learn(drafter, [*PROMPT, 7], row(9))
    assert np.array_equal(made.corrected(drafter, [*PROMPT, 8]), drafter)
    assert int(made.corrected(drafter, [5, 3, 7]).argmax()) == 9
    made.begin()
    assert np.array_equal(made.corrected(drafter, [*PROMPT, 7]), drafter)


def test_biases_may_be_those_of_the_drafters_choice() -> None:
    made = ngrams(choice=True)
    for _ in range(60):
        made.learn(row(4), [*PROMPT, 7], row(9))
    assert int(made.corrected(row(4), [*PROMPT, 7]).argmax()) == 9
    assert np.array_equal(made.corrected(row(5), [*PROMPT, 7]), row(5))


def test_a_temperature_follows_the_targets() -> None:
    made = Scale(0.05)
    for _ in range(200):
        made.learn(row(4, 2.0), PROMPT, row(4, 4.0))
    scaled = made.corrected(row(4, 2.0), PROMPT)
    assert scaled[4] - scaled[0] > 3.0


def test_copies_learn_that_tokens_follow_again() -> None:
    made, text = Copies(rate=1.0), [*PROMPT, *[6, 7, 8] * 20]
    for place in range(len(PROMPT), len(text)):
        made.learn(row(4), text[:place], row(text[place]))
    assert int(made.corrected(row(4), text).argmax()) == 6


def test_a_table_knows_which_choices_are_wrong() -> None:
    made = ChoiceRates()
    for _ in range(5):
        made.learn_verdict([1, 2], 4, False)
        made.learn_verdict([1, 2], 5, True)
    assert made.surer([9, 2], 4) < -0.5 < 0.5 < made.surer([9, 2], 5)
    assert made.surer([9, 3], 4) == 0.0


class Spy(Correction):
    """Notes what it is taught."""

    def __init__(self) -> None:
        self.taught: list[tuple[list[int], int]] = []
        self.verdicts: list[bool] = []

    def learn(self, row: Row, text: Sequence[int], target: Row) -> None:
        self.taught.append((list(text), int(target.argmax())))

    def learn_verdict(self, text: Sequence[int], token: int, right: bool) -> None:
        self.verdicts.append(right)


def test_a_recorded_drafter_learns_from_the_rows_that_verification_has() -> None:
    spy = Spy()
    drafter = RecordedDrafter("model", spy)
    recorded = recording([10, 11, 12, 13, 14, 15], drafted=[10, 11, 4, 13, 14, 15])
    drafter.record(recorded)
    drafter.begin(PROMPT)
    prefix = recorded.answer.sampler.prefix(PROMPT)
    draft = drafter.propose(Limit(4, prefix, recorded.answer.sampler))
    assert list(draft.tokens) == [10, 11, 4, 13]
    drafter.observe(Outcome([10, 11, 12], 2))
    assert spy.taught == [(PROMPT, 10), ([*PROMPT, 10], 11), ([*PROMPT, 10, 11], 12)]
    assert spy.verdicts == [True, True, False]
    assert drafter.traits.backlog is not None and drafter.traits.backlog() == 1
    drafter.observe(Outcome([13], 0))
    assert len(spy.taught) == 3, "where it did not draft there is no row of its own"
    assert drafter.traits.backlog() == 2


def test_steps_are_those_that_the_wrong_tokens_leave() -> None:
    drafter = RecordedDrafter("model", Correction())
    tokens = list(range(5, 17))
    drafter.record(recording(tokens, drafted=[*tokens[:2], 4, *tokens[3:]]))
    # 2 tokens and the right one instead; 4 and one more; 4 that end the text.
    assert steps_at(4, drafter, recording(tokens, tokens).answer) == 3


def test_every_correction_has_a_name_of_its_own_and_the_first_does_nothing() -> None:
    names = [each.name for each in all_corrections()]
    assert len(set(names)) == len(names)
    assert type(all_corrections()[0]) is Correction
