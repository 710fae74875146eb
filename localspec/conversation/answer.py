"""Answer: what a model replies, as it is written."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.conversation.events import Dropped, Ended, Event, Gauge, Notice, Piece, Reading
from localspec.conversation.reasoning import Split, Tags
from localspec.conversation.turns import Conversation, Turn
from localspec.conversation.writing import Writing
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, Token
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig
from localspec.sampling.noise import derived
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an answer follows.

    tokens: of the turns that the model sees. dropped: how many of the oldest it does not see;
    newly: whether that is news. notices: what is to be said before the answer. thinking: whether
    the prompt has opened a thought.
    """

    tokens: Sequence[int]
    dropped: int = 0
    newly: bool = False
    notices: Sequence[str] = ()
    thinking: bool = False


# What to go on after, now that the context is full; None if there is nothing to leave out.
Shorten = Callable[[], Prompt | None]
_THOUGHT_ENOUGH = "thought enough"


class _Stop:
    """Whether an answer is to end. (An Event would not survive a Ctrl-C within it.)

    It is all that a running generation knows of its answer, so that one that is left can go.
    """

    def __init__(self) -> None:
        self.wanted = False

    def is_wanted(self) -> bool:
        return self.wanted


class Answer(Iterator[Event]):
    """Iterate for events; the last one is `Ended`.

    It may be left at any time: what was said so far stays in the conversation. `stop` may be called
    from any thread, and so may `close`, which waits for the step that runs.

    stats: as they are now. turn: the answer, once it has begun. origins: of its tokens.
    """

    def __init__(
        self,
        slot: Slot,
        conversation: Conversation,
        prompt: Prompt,
        settings: GenerationConfig,
        tags: Tags,
        *,
        shorten: Shorten,
        thinking_budget: int | None = None,
        variant: int = 0,
    ) -> None:
        self.turn: Turn | None = None
        self.settings = settings
        self.stats = Stats()
        self.origins: list[str] = []
        self._slot = slot
        self._model = slot.target.model
        self._conversation = conversation
        self._asked = conversation.last
        self._prompt = prompt
        self._tags = tags
        self._shorten = shorten
        self._budget = thinking_budget
        self._variant = variant
        stream = Detokenizer(settings.stop)
        self._writing = Writing(self._model, stream, tags, thinking=prompt.thinking)
        self._stop = _Stop()
        self._ended = False
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._running = self._run()

    @property
    def text(self) -> str:
        """What was said so far."""
        return self.turn.content if self.turn else ""

    @property
    def gauge(self) -> Gauge:
        """How much of the context is taken."""
        used = len(self._prompt.tokens) + len(self._writing.tokens)
        return Gauge(used, self._slot.target.n_ctx)

    def __next__(self) -> Event:
        # Whoever wants to free the model waits for the step.
        with self._lock, self._slot.lock:
            return next(self._running)

    def stop(self) -> None:
        """End it within one step; the iteration goes on to `Ended`."""
        self._stop.wanted = True

    def close(self) -> None:
        """End it here."""
        self._stop.wanted = True
        if self._ended:
            return
        with self._lock:
            self._running.close()
            self._finish("cancelled")
            if self._generation:
                self._generation.close()

    def __enter__(self) -> "Answer":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def result(self) -> Turn:
        """Run to the end, and give the answer; an empty one if it was stopped before it began."""
        for _ in self:
            pass
        return self.turn or Turn("assistant", "", stop_reason="cancelled")

    def _run(self) -> Generator[Event, None, None]:
        try:
            reason = yield from self._parts()
        except BaseException:
            # The garbage collector may be closing this, anywhere: no lock may be taken.
            self._finish("cancelled")
            raise
        rest = self._finish(reason)
        yield Ended(self.turn, reason, rest.said, rest.thought, self.stats, self.gauge)

    def _parts(self) -> Generator[Event, None, str]:
        """The whole answer; the parts are what one prompt each led to."""
        while True:
            yield from self._announced()
            reason = yield from self._part()
            if reason == _THOUGHT_ENOUGH:
                reason = yield from self._end_thought()
            if reason == "context" and (shorter := self._shortened()):
                self._prompt = shorter
            elif reason:
                return reason

    def _announced(self) -> Iterator[Event]:
        for line in self._prompt.notices:
            yield Notice(line)
        if self._prompt.newly:
            yield Dropped(self._prompt.dropped, len(self._prompt.tokens))
        self._prompt = replace(self._prompt, notices=(), newly=False)

    @property
    def _left(self) -> int:
        return self.settings.max_tokens - len(self._writing.tokens)

    def _part(self) -> Generator[Event, None, str]:
        """Until the text ends, the context is full, or the thought has become too long."""
        if self._stop.wanted or self._slot.target.model is not self._model:
            return "cancelled"
        if self._left < 1:
            return "length"
        generation = self._generation = self._slot.start(
            [*self._prompt.tokens, *self._writing.tokens],
            self._settings_of_part(),
            stats=self.stats,
            stream=self._writing.stream,
            cancelled=self._stop.is_wanted,
        )
        again = self.stats.prompt_again
        for progress in generation.reading():
            yield Reading(*progress)
        if again := self.stats.prompt_again - again:
            yield Notice(self._lost(again))
        for token in generation:
            yield self._piece(token)
            if generation.stop_reason is None and self._has_thought_enough():
                generation.close()
                return _THOUGHT_ENOUGH
        return generation.stop_reason or "cancelled"

    def _settings_of_part(self) -> GenerationConfig:
        """What is left of them, and randomness that was not used for another place.

        After turns were dropped, positions come again; under rules that draw one number after the
        other, each part begins anew.
        """
        settings, done = self.settings, len(self._writing.tokens)
        place = len(self._prompt.tokens) + done
        seed = settings.seed
        if self._prompt.dropped or not settings.verification.same_text:
            seed = derived(seed, self._prompt.dropped, place)
        least = min(max(0, settings.min_tokens - done), self._left)
        return replace(settings, seed=seed, max_tokens=self._left, min_tokens=least)

    def _lost(self, tokens: int) -> str:
        kind = self._slot.target.rollback.value
        return f"{tokens} tokens were evaluated again: this model's cache can forget {kind}"

    def _piece(self, token: Token) -> Piece:
        if self.turn is None:
            self._begin()
        self.origins.append(token.origin)
        split = self._say(self._writing.add(token.id, token.text))
        return Piece(token, split.said, split.thought, self.gauge)

    def _begin(self) -> None:
        self._conversation.back_to(self._asked)
        turn = Turn(
            "assistant", "", vocabulary=self._model.vocabulary_fingerprint, variant=self._variant
        )
        self.turn = self._conversation.add(turn)

    def _say(self, split: Split) -> Split:
        if self.turn:
            self.turn.content += split.said
            self.turn.thought += split.thought
        return split

    def _has_thought_enough(self) -> bool:
        return (
            self._budget is not None
            and self._writing.is_thinking
            and self._writing.thought_tokens >= self._budget
            and self.settings.compiled_grammar() is None
        )

    def _end_thought(self) -> Generator[Event, None, str]:
        """Write the closing tag for the model; why that cannot be, or nothing."""
        closing = f"\n{self._tags.closing}\n\n"
        tokens = self._model.tokenize_after(closing)
        if len(tokens) > self._left:
            return "length"
        if self.gauge.used + len(tokens) >= self.gauge.size:
            return "context"
        self._say(self._writing.close_thought(tokens, closing))
        yield Notice(f"its thoughts end here: the budget of {self._budget} tokens is used up")
        return ""

    def _shortened(self) -> Prompt | None:
        """What to go on after when the context is full; a grammar cannot be gone on with."""
        if self.turn is None or self.settings.compiled_grammar() is not None:
            return None
        self._write_down()
        shorter = self._shorten()
        if shorter is None:
            return None
        tokens = shorter.tokens[: len(shorter.tokens) - len(self._writing.tokens)]
        return replace(shorter, tokens=tokens)

    def _write_down(self) -> None:
        if self.turn:
            self.turn.raw, self.turn.written = self._writing.raw, self._writing.written

    def _finish(self, reason: str) -> Split:
        """Once; what was still held back."""
        if self._ended:
            return Split()
        self._ended = True
        rest = self._say(self._writing.end())
        self._write_down()
        if self.turn:
            self.turn.stop_reason = reason
        return rest
