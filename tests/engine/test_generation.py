"""Generation: what it tells of its times, by a clock that only passes set forward."""

from collections.abc import Sequence

import numpy as np
import pytest
from fakes.machine import FakeClock
from fakes.toy import ToyModel, ToyTarget

from localspec.control.fixed_depth import FixedDepth
from localspec.engine.generation import Alone, Generation
from localspec.generation_config import GenerationConfig
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.passes import Pass, Scores
from localspec.speculation.rules import RULES
from localspec.stats import Stats

PROMPT = [3, 1, 4, 1, 5, 9, 2]
READING, MARKING, STEP, WAITING, READER = 100, 5, 10, 7, 1000
MODEL = ToyModel.random(16, seed=11)


class ReadingTarget(ToyTarget):
    """Holds nothing of its prompt, and takes time to read, to be marked and to score."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(MODEL, PROMPT[:1])
        self._clock = clock

    def shared(self, tokens: Sequence[int]) -> int:
        return len(self.cache)

    def mark(self) -> None:
        self._clock.now += MARKING

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        if one.drafted is not None:
            self._clock.now += STEP
            return super().decode(passes)
        self._clock.now += READING
        self.cache += one.tokens
        return [Scores(np.zeros((0, MODEL.n_vocab)))]


class InCompany(Alone):
    """Before each of its passes, a text waits for one of another text."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock  # type: ignore[method-assign]

    def compute(self, requested: Pass) -> Scores:
        self.waited += WAITING  # type: ignore[misc]
        return super().compute(requested)


class Letters:
    """Each token is the same letter, and none ends a text."""

    def piece(self, token: int) -> bytes:
        return b"a"

    def ends_generation(self, token: int) -> bool:
        return False


@pytest.mark.parametrize("shows_progress", [False, True])
@pytest.mark.parametrize("chunk", [2, 3, 100])
def test_reading_a_prompt_and_writing_are_timed_apart(chunk: int, shows_progress: bool) -> None:
    clock, passes = FakeClock(), -(-(len(PROMPT) - 1) // chunk)
    decoder = Decoder(
        ReadingTarget(clock),
        FixedDepth((), 0),
        RULES["coupled"],
        Sampler(SamplingParams(), Noise(3)),
        list(PROMPT),
        Stats(),
        clock=clock,
        chunk=lambda: chunk,
    )
    settings = GenerationConfig.of(max_tokens=4, seed=3)
    generation = Generation(decoder, Letters(), settings, context=64, steps=InCompany(clock))
    seconds = generation.stats.seconds
    if shows_progress:
        read = []
        for each in generation.reading():
            clock.now += READER  # in no step, and so in no figure
            read.append(each)
        ends = [*range(0, len(PROMPT) - 1, chunk), len(PROMPT) - 1]
        assert read == [(end, len(PROMPT)) for end in ends]
        assert seconds.prompt == passes * READING + MARKING
        assert (seconds.generate, seconds.first_token) == (0, None)
    assert [token.text for token in generation] == ["a"] * 4
    assert generation.stats.prompt_evaluated == len(PROMPT)
    assert seconds.prompt == passes * READING + 2 * MARKING
    assert seconds.generate == 4 * STEP
    assert seconds.waited == (passes + 4) * WAITING
    assert seconds.first_token == seconds.prompt + STEP + (passes + 1) * WAITING
