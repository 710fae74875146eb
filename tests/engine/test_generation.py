"""Generation: what it tells of its times, by a clock that only passes set forward; how it ends."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from fakes.machine import FakeClock
from fakes.toy import ToyModel, ToyTarget

from localspec.control.fixed_depth import FixedDepth
from localspec.engine.generation import Alone, Generation, Result
from localspec.engine.interruption import SWITCHED
from localspec.errors import LocalspecError
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
    """Each token is the same letter, or one byte of those that take turns; none ends a text."""

    def __init__(self, pieces: Sequence[bytes] = (b"a",)) -> None:
        self._pieces = cycle(pieces)

    def piece(self, token: int) -> bytes:
        return next(self._pieces)

    def ends_generation(self, token: int) -> bool:
        return False


def decoder_of(clock: FakeClock, **options: Any) -> Decoder:
    return Decoder(
        ReadingTarget(clock),
        FixedDepth((), 0),
        RULES["coupled"],
        Sampler(SamplingParams(), Noise(3)),
        list(PROMPT),
        Stats(),
        clock=clock,
        **options,
    )


def text(*, pieces: Sequence[bytes] = (b"a",), **options: Any) -> Generation:
    """A text of four tokens."""
    settings = GenerationConfig.of(max_tokens=4, seed=3)
    return Generation(decoder_of(FakeClock(), **options), Letters(pieces), settings, context=64)


@pytest.mark.parametrize("shows_progress", [False, True])
@pytest.mark.parametrize("chunk", [2, 3, 100])
def test_reading_a_prompt_and_writing_are_timed_apart(chunk: int, shows_progress: bool) -> None:
    clock, passes = FakeClock(), -(-(len(PROMPT) - 1) // chunk)
    decoder = decoder_of(clock, chunk=lambda: chunk)
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


@pytest.mark.parametrize(
    ("end", "reason", "tokens"),
    [
        (lambda text: text.result(), "length", 4),
        (lambda text: (next(text), text.close()), "cancelled", 1),
        (Generation.close, "cancelled", 0),
        (lambda text: text.interrupt(SWITCHED), "cancelled", 0),
    ],
)
def test_its_end_is_told_once(
    end: Callable[[Generation], object], reason: str, tokens: int
) -> None:
    ended: list[int] = []
    running = text()
    running.on_end = lambda: ended.append(1)
    end(running)
    assert (running.stop_reason, len(running.tokens), ended) == (reason, tokens, [1])
    running.close()
    assert (running.stop_reason, ended) == (reason, [1])


def test_an_error_in_a_step_ends_it() -> None:
    def fail() -> bool:
        raise ZeroDivisionError

    running, ended = text(cancelled=fail), list[int]()
    running.on_end = lambda: ended.append(1)
    with pytest.raises(ZeroDivisionError):
        next(running)
    assert (running.stop_reason, ended) == ("cancelled", [1])
    assert list(running) == []


def test_a_text_that_is_cancelled_has_what_it_has() -> None:
    running = text(cancelled=lambda: len(running.tokens) >= 2)
    result = running.result()
    assert (result.text, result.stop_reason) == ("aa", "cancelled")


def test_an_interruption_is_an_error_for_the_reader_of_a_text_that_goes_on() -> None:
    begun, whole = text(), text()
    next(begun)
    whole.result()
    for running in (begun, whole):
        running.interrupt(SWITCHED)
    for read in (next, Generation.result):
        with pytest.raises(LocalspecError, match=r"was switched .*before this text had ended"):
            read(begun)
    assert whole.result().stop_reason == "length"


def test_what_cannot_be_done_in_its_own_step_changes_nothing() -> None:
    refused: list[LocalspecError] = []

    def cancelled() -> bool:
        for use in (next, Generation.close, lambda running: running.interrupt(SWITCHED)):
            with pytest.raises(LocalspecError, match="in the middle of a step") as error:
                use(running)
            refused.append(error.value)
        return False

    running = text(cancelled=cancelled)
    assert running.result().stop_reason == "length"
    assert refused and running.interruption is None


def test_no_step_commits_more_than_it_may() -> None:
    asked: list[int] = []

    def most() -> int:
        asked.append(len(running.tokens))
        return 1

    running = text()
    running.commit_at_most(most)
    running.result()
    assert asked == [0, 1, 2, 3]


def test_a_character_is_whole_or_the_last_token_says_so() -> None:
    running = text(pieces=["é".encode()[:1], "é".encode()[1:], b"x", "é".encode()[:1]])
    assert [token.text for token in running] == ["", "é", "x", "\N{REPLACEMENT CHARACTER}"]


def test_a_result_without_the_likeliest_tokens_has_none_for_json() -> None:
    result = Result("a", [5], ["plain"], [-0.5], "length", 1, "coupled", Stats())
    assert result.to_dict()["logprobs"] == [{"id": 5, "logprob": -0.5, "top": []}]
