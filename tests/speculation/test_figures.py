"""What a decoder tells of its steps: counts and times, to the policy, to drafters and in Stats."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fakes.machine import FakeClock
from fakes.toy import ToyModel, ToyTarget

from localspec.control.fixed_depth import FixedDepth
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import Pass, Passes, Scores
from localspec.speculation.policy import Decision, Step
from localspec.speculation.rules import RULES
from localspec.stats import Stats, StepRecord

N_VOCAB, SEED, PROMPT = 16, 3, [3, 1, 4, 1, 5]
MODEL = ToyModel.random(N_VOCAB, seed=11, spread=2.0)
# How many tokens of the draft of each step are right, of 4; the target verifies 3.
RIGHT = [4, 1, 0, 3, 2, 4]


class SlowTarget(ToyTarget):
    """A pass takes 100 seconds, of a decode of 160 with another text; a commit takes 1.

    Each pass has two rows of padding, and evaluates a token of the text once more.
    """

    takes_back = 7

    def __init__(self, prompt: Sequence[int], clock: FakeClock) -> None:
        super().__init__(MODEL, prompt)
        self.clock = clock

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        self.clock.now += 100
        (scores,) = super().decode(passes)
        hidden = {2: np.zeros((1 + len(scores.logits), 1), np.float32)}
        return [
            replace(
                scores, padding=2, again=1, others=(5,), seconds=160.0, share=90.0, hidden=hidden
            )
        ]

    def commit(self, path: Sequence[int]) -> None:
        self.clock.now += 1
        super().commit(path)


class SlowReader:
    """It drafts in 10 seconds, and reads hidden rows in 30; to observe takes 2."""

    traits = Traits(reads_hidden=(2,))

    def __init__(self, name: str, text: list[int], clock: FakeClock) -> None:
        self.name, self.limits = name, list[Limit]()
        self.outcomes = list[Outcome]()
        self._known, self._clock = text, clock
        self._length = 0

    def held(self, tokens: Sequence[int]) -> int:
        return len(tokens)

    def begin(self, tokens: Sequence[int]) -> None:
        self._length = len(tokens)

    def passes(self, limit: Limit) -> Passes[Draft]:
        self._clock.now += 10
        right = RIGHT[len(self.limits) % len(RIGHT)]
        self.limits.append(limit)
        draft = self._known[self._length :][: min(4, limit.depth)]
        return Draft([(each + (place >= right)) % N_VOCAB for place, each in enumerate(draft)])
        yield

    def observe(self, outcome: Outcome) -> None:
        self._clock.now += 2
        self._length += len(outcome.tokens)
        self.outcomes.append(outcome)

    def read(self, evaluated: Evaluated) -> Passes[None]:
        self._clock.now += 30
        yield from ()


class Noted(FixedDepth):
    """It takes 3 seconds to decide; a plain step would take 110. Only one drafter reads."""

    def __init__(self, drafters: Sequence[Drafter], clock: FakeClock) -> None:
        super().__init__(drafters, 4)
        self.steps = list[Step]()
        self._clock = clock

    def decide(self, limit: Limit) -> Decision:
        self._clock.now += 3
        return super().decide(limit)

    def reads(self, drafter: Drafter, lacking: int = 0) -> bool:
        return drafter is self.drafters[-1]

    def keep(self, draft: Draft) -> int:
        return min(3, len(draft))

    def learn(self, step: Step) -> None:
        self.steps.append(step)

    def plain_time(self, step: Step) -> float:  # type: ignore[override]
        return 110.0 * len(step.tokens)


def plain(count: int) -> list[int]:
    sampler, text = Sampler(SamplingParams(), Noise(SEED)), list(PROMPT)
    while len(text) < len(PROMPT) + count:
        prefix = sampler.prefix(text)
        text.append(sampler.sample(sampler.distribution(MODEL.logits(text), prefix), prefix))
    return text


def written(max_tokens: int, **options: Any) -> tuple[Decoder, Noted, list[SlowReader]]:
    """A text by a drafter that is told what is right, and one beside it that never drafts."""
    clock, text = FakeClock(), list(PROMPT)
    drafters = [SlowReader(name, plain(60), clock) for name in ("beside", "drafts")]
    policy = Noted(drafters, clock)
    # The last drafter drafts; the first one is passed over.
    drafters[0].traits = Traits(reads_hidden=(2,), chances=lambda _limit: [0.0])
    decoder = Decoder(
        SlowTarget(text, clock),
        policy,
        RULES["coupled"],
        Sampler(SamplingParams(), Noise(SEED)),
        text,
        Stats(),
        quick_first_token=True,
        clock=clock,
        **options,
    )
    list(decoder.run(max_tokens))
    return decoder, policy, drafters


def test_each_step_is_told_and_counted() -> None:
    decoder, policy, (beside, drafts) = written(17)
    stats = decoder.stats
    assert decoder.text == plain(17)
    accepted, verified = [3, 1, 0, 3, 2, 2], [3, 3, 3, 3, 3, 2]
    assert [len(step.tokens) for step in policy.steps] == [1 + each for each in accepted]
    for step, most in zip(policy.steps, verified, strict=True):
        assert step == Step(
            drafted=step.drafted,
            verified=most,
            width=1 + most + 2,
            tokens=step.tokens,
            seconds=3 + 10 + 100 + 1 + 2 * 2 + 30,
            draft_seconds=3 + 10 + 2 * 2,
            again=1,
            others=(5,),
            decode_seconds=160,
            share=90,
            reading={"drafts": 30},
        )
    assert [len(step.drafted) for step in policy.steps] == [4, 4, 4, 4, 4, 2]
    assert stats.records == [
        StepRecord("drafts", len(step.drafted), most, right, 1 + right, 3 + most, 148, 17, 30)
        for step, most, right in zip(policy.steps, verified, accepted, strict=True)
    ]
    assert [each.accepted for each in drafts.outcomes] == accepted
    assert [each.accepted for each in beside.outcomes] == [0] * 6
    for outcome, right in zip(drafts.outcomes, accepted, strict=True):
        assert len(outcome.drawn_from) == 1 + right
    assert (stats.steps, stats.drafting_steps, stats.shared_steps) == (6, 6, 6)
    assert (stats.drafted, stats.accepted, stats.generated_tokens) == (17, 11, 17)
    assert stats.accepted_per_position == [5, 4, 2]
    assert stats.widths == [6, 6, 6, 6, 6, 5] and stats.decode_rows == [11] * 5 + [10]
    seconds = stats.seconds
    assert (seconds.draft, seconds.verify, seconds.steps) == (6 * 47, 6 * 101, 6 * 101)
    assert (seconds.plain, stats.plain_tokens, seconds.prompt) == (17 * 110, 17, 0)


def test_what_a_drafter_is_told_of_its_limits() -> None:
    def cancelled() -> bool:
        return False

    most = iter([9, 3, 9, 9, 9, 9, 9, 9, 9])
    _, _, (_, drafts) = written(10, cancelled=cancelled, most=lambda: next(most))
    first = drafts.limits[0]
    assert (first.left, first.branches, first.takes_back) == (10, 100, 7)
    assert first.cancelled is cancelled and not first.needs_probs
    assert [limit.hurried for limit in drafts.limits[:3]] == [True, False, False]
    assert drafts.limits[1].depth == 2


@pytest.mark.parametrize("place", range(4))
def test_a_text_ends_inside_a_draft(place: int) -> None:
    """What was drafted behind the end is neither text nor counted as accepted."""
    end = plain(4)[-4 + place]
    assert plain(4)[len(PROMPT) :].index(end) == place, "a token that comes once"
    running = written(4, ends=lambda token: token == end)
    decoder, policy, (_, drafts) = running
    first = policy.steps[0]
    assert list(first.tokens) == plain(4)[len(PROMPT) :][: place + 1]
    assert drafts.outcomes[0].accepted == decoder.stats.records[0].accepted == min(3, place + 1)
    assert decoder.target.cache == decoder.text[:-1]  # type: ignore[attr-defined]


def test_a_cancelled_text_takes_no_further_step() -> None:
    calls = iter([False, True])
    decoder, policy, _ = written(17, cancelled=lambda: next(calls))
    assert len(policy.steps) == 1 and decoder.text == plain(4)
