"""Generation: a running generation, token by token. Result: a finished one."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from localspec.engine.detokenizer import Detokenizer
from localspec.generation_config import GenerationConfig
from localspec.speculation.decoder import Decoder, Emission
from localspec.speculation.target import Target
from localspec.stats import Stats

_Step = TypeVar("_Step")
StopReason = Literal["length", "eos", "stop", "cancelled", "context"]


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token.

    text: the new text. It holds whole characters only, so it may be empty, and the next token then
    carries the rest; the texts of all tokens together are the whole text. origin: the drafter's
    name, `corrected`, `bonus` or `plain`. logprob: the natural logarithm of the target's
    probability before any filter; None without `logprobs`. top: the `top_logprobs` likeliest tokens
    and their log-probabilities.
    """

    text: str
    id: int
    origin: str
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A finished generation; `token_ids`, `origins` and `logprobs` have an entry per token."""

    text: str
    token_ids: list[int]
    origins: list[str]
    logprobs: list[float] | None
    stop_reason: StopReason
    seed: int
    rule: str
    stats: Stats


class CachedTarget(Target, Protocol):
    """A target that can evaluate a prompt, `chunk` tokens per pass, and reuse its KV cache."""

    chunk: int

    def shared(self, tokens: Sequence[int]) -> int: ...

    def truncate(self, length: int) -> int: ...

    def extend(self, tokens: Sequence[int]) -> NDArray[np.float32]: ...

    def mark(self) -> None: ...


class Vocabulary(Protocol):
    """The part of a model that turns tokens into text."""

    def piece(self, token: int) -> bytes: ...

    def ends_generation(self, token: int) -> bool: ...


class Generation(Iterator[Token]):
    """An iterator of tokens.

    Close it, or leave the `with`, at any time: the KV caches stay consistent.

    settings: the generation's settings, seed included. prompt: the prompt's token ids. context: the
    context size in tokens. lock: held during each step. detokenizer: the one of the earlier parts,
    for a text generated in several parts. stop_reason is None while the generation runs. in_step:
    whether a step is running now.
    """

    def __init__(
        self,
        decoder: Decoder,
        target: CachedTarget,
        vocabulary: Vocabulary,
        settings: GenerationConfig,
        *,
        context: int,
        lock: AbstractContextManager[None] | None = None,
        detokenizer: Detokenizer | None = None,
    ) -> None:
        self.tokens: list[Token] = []
        self.stop_reason: StopReason | None = None
        self.stats = decoder.stats
        self.settings = settings
        self.prompt = list(decoder.text)
        self._decoder = decoder
        self._target = target
        self._vocabulary = vocabulary
        self._context = context
        self._lock = lock or nullcontext()
        self._detokenizer = Detokenizer(settings.stop) if detokenizer is None else detokenizer
        self._has_read = False
        self.in_step = False
        self._reading = self._read()
        self._running = self._run()

    def reading(self) -> Iterator[tuple[int, int]]:
        """Evaluate the prompt in chunks; yields (evaluated tokens, prompt tokens).

        Iterate it before the first token to show progress; otherwise the first token evaluates the
        prompt.
        """
        while (progress := self._step(self._reading)) is not None:
            yield progress
        self._has_read = True

    def __next__(self) -> Token:
        if not self._has_read:
            for _ in self.reading():
                pass
        token = self._step(self._running)
        if token is None:
            raise StopIteration
        return token

    def _step(self, steps: Generator[_Step, None, None]) -> _Step | None:
        with self._lock:
            began, prompt_before = perf_counter(), self.stats.seconds.prompt
            self.in_step = True
            try:
                return next(steps, None)
            finally:
                self.in_step = False
                seconds = self.stats.seconds
                prompt = seconds.prompt - prompt_before
                seconds.generate += perf_counter() - began - prompt
                if seconds.first_token is None and self.tokens:
                    seconds.first_token = seconds.prompt + seconds.generate

    def close(self) -> None:
        """Stop now; `stop_reason` becomes `cancelled` unless the generation had ended."""
        with self._lock:
            self._reading.close()
            self._running.close()
        self.stop_reason = self.stop_reason or "cancelled"

    def __enter__(self) -> "Generation":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def result(self) -> Result:
        """Run to the end and return the whole text."""
        for _ in self:
            pass
        logprobs = [token.logprob for token in self.tokens if token.logprob is not None]
        return Result(
            text="".join(token.text for token in self.tokens),
            token_ids=[token.id for token in self.tokens],
            origins=[token.origin for token in self.tokens],
            logprobs=logprobs if self.settings.logprobs else None,
            stop_reason=self.stop_reason or "cancelled",
            seed=self.settings.seed,
            rule=self.settings.rule,
            stats=self.stats,
        )

    def _run(self) -> Generator[Token, None, None]:
        room = self._context - len(self._decoder.text)
        for emission in self._decoder.run(min(self.settings.max_tokens, room)):
            token = self._token(emission)
            self.tokens.append(token)
            yield token
            if self.stop_reason:
                return
        self.stop_reason = "cancelled"

    def _read(self) -> Generator[tuple[int, int], None, None]:
        """Evaluate the prompt in the target, except for its last token.

        The first step evaluates the last token together with the draft.
        """
        prompt, stats, target = self._decoder.text[:-1], self.stats, self._target
        with stats.timing("prompt"):
            shared = target.shared(prompt)
            kept = target.truncate(shared)
            stats.prompt_again += shared - kept
            # Regenerating and editing return to the end of a text and to the end of its prompt.
            target.mark()
        stats.prompt_tokens = len(prompt) + 1
        for start in range(kept, len(prompt), target.chunk):
            yield start, len(prompt) + 1
            if self._decoder.cancelled():
                return
            chunk = prompt[start : start + target.chunk]
            with stats.timing("prompt"):
                target.extend(chunk)
            stats.prompt_evaluated += len(chunk)
        with stats.timing("prompt"):
            target.mark()
        stats.prompt_evaluated += 1
        yield len(prompt), len(prompt) + 1

    def _token(self, emission: Emission) -> Token:
        ends = self._vocabulary.ends_generation(emission.id)
        text = "" if ends else self._detokenizer.push(self._vocabulary.piece(emission.id))
        self.stop_reason = self._reason(ends)
        if self.stop_reason:
            text += self._detokenizer.flush()
        return Token(text, emission.id, emission.origin, emission.logprob, emission.top)

    def _reason(self, ends: bool) -> StopReason | None:
        """The stop reason if the new token is the last one, else None."""
        count = len(self.tokens) + 1
        if ends:
            return "eos"
        if self._detokenizer.stopped:
            return "stop"
        if count == self.settings.max_tokens:
            return "length"
        if self.stats.prompt_tokens + count == self._context:
            return "context"
        return None
