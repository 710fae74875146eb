"""Reply: a text that is being written for a request, delta by delta, for an event loop.

Where the reasoning reaches its budget, the server writes the closing tag, and the text goes on in a
second part, whose prompt is the first one and what was written. The budget counts tokens of the
text, so it ends reasoning at the same token whatever is drafted.
"""

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from localspec.conversation.reasoning import Splitter
from localspec.conversation.thinking_budget import ThinkingBudget
from localspec.engine.background import Background
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, StopReason, Token
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig
from localspec.llama.model import Model
from localspec.sampling.keyed_hash import derive_seed
from localspec.server.asked import Asked
from localspec.server.prompt_progress import PromptProgress, prompt_progress
from localspec.server.tool_calls import CallEnded, Event, Reasoning, ReasoningCalls, Text
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class Delta:
    """What a token adds. token: None for what was held back until the end.

    progress: how far the prompt is read; such a delta comes before the first token, with no text.
    """

    token: Token | None
    events: tuple[Event, ...] = ()
    progress: PromptProgress | None = None

    @property
    def thought(self) -> str:
        """The new text of the reasoning."""
        return "".join(event.text for event in self.events if isinstance(event, Reasoning))

    @property
    def text(self) -> str:
        """The new text of the answer, without calls."""
        return "".join(event.text for event in self.events if isinstance(event, Text))


class Reply:
    """A text on a slot. Read it once: `async for delta in reply`.

    stopped: whether the server ends all texts. stats, stop_reason: as in Generation; before the
    text has begun they are empty and None. number: of the slot. tokens: those that the model has
    written so far. thinking_budget: counts how many of them are reasoning. origins: where they
    came from. budget_spent: whether the reasoning was ended at its budget.
    """

    def __init__(
        self, slot: Slot, asked: Asked, stopped: Callable[[], bool], *, number: int = 0
    ) -> None:
        self.asked = asked
        self.number = number
        self.generation: Generation | None = None
        self.tokens: list[Token] = []
        self.budget_spent = False
        self.origins: set[str] = set()
        self._slot = slot
        self._has_called = False
        self._is_full = False
        # The tokens of the prompt that were in the cache.
        self._cached = 0
        self._stopped = stopped
        # The tokens behind the prompt, those of a closing tag included.
        self._written: list[int] = []
        self._detokenizer = Detokenizer(asked.settings.stop)
        # Of the first part, where there is another one.
        self._first_stats: Stats | None = None
        continued = bool(asked.continued.strip())
        self._splitter = (
            Splitter(asked.tags, thinking=asked.thinking, continued=continued)
            if asked.tags
            else None
        )
        self.thinking_budget = ThinkingBudget(
            asked.thinking_budget, self._splitter, self._detokenizer
        )
        self._parser = asked.tool_calls() if asked.tool_calls else None
        if self._parser and asked.channel:
            self._parser.push(asked.channel)
        elif self._parser and continued and not asked.thinking:
            self._parser.bare = ""  # such calls stand at the beginning only
        self._reasoning_calls = self._watched() if self._splitter else None
        self._marks = {*(asked.tags or ()), *asked.marks}

    def _watched(self) -> ReasoningCalls | None:
        """What finds calls in reasoning, where they have a mark."""
        parser = self.asked.tool_calls() if self.asked.tool_calls else None
        return ReasoningCalls(parser) if parser and parser.openings and not parser.bare else None

    @property
    def stats(self) -> Stats:
        """The counts and times so far; those of the prompt are of what was asked."""
        stats, first = self.generation.stats if self.generation else Stats(), self._first_stats
        if first is None:
            return stats
        return replace(
            stats,
            prompt_tokens=first.prompt_tokens,
            prompt_evaluated=first.prompt_evaluated,
            prompt_again=first.prompt_again,
        )

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text has ended; None before."""
        if self._has_called and self.asked.one_call:
            return "eos"  # as if the model had ended it there
        if self._is_full:
            return "context"
        return self.generation.stop_reason if self.generation else None

    @property
    def model(self) -> Model:
        """The model that writes."""
        return self._slot.target.model

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text: the first that is whole, of several the longest."""
        if self.stop_reason != "stop":
            return None
        detokenizer, text = Detokenizer(), ""
        for token in self.generation.tokens if self.generation else ():
            text += detokenizer.push(self.model.piece(token.id))
        stops = self.asked.settings.stop
        ends = [(at + len(stop), at, stop) for stop in stops if (at := text.find(stop)) >= 0]
        return min(ends)[2] if ends else None

    @asynccontextmanager
    async def deltas(self) -> AsyncIterator[AsyncIterator[Delta]]:
        """The deltas, as they are written; the text ends with the `with`."""
        async with Background[Delta, None](self._write) as running:
            yield running

    def _write(self, gone: Callable[[], bool]) -> Generator[Delta, None, None]:
        def cancelled() -> bool:
            return gone() or self._stopped()

        slot = self._slot
        slot.in_answer = True
        try:
            while (yield from self._part(cancelled)):
                yield self._close_thought()
        finally:
            slot.in_answer = False
        if self._has_called and self.asked.one_call:
            return
        rest = self._split(last=True)
        if self._parser:
            rest += self._parser.finish()
        if rest:
            yield Delta(None, tuple(rest))

    def _part(self, cancelled: Callable[[], bool]) -> Generator[Delta, None, bool]:
        """Write until the text ends, or the budget of its reasoning; whether it is the latter."""
        with self._start(cancelled) as running:
            if self.asked.shows_progress and not self._written:
                for progress in prompt_progress(running, self._cached):
                    yield Delta(None, progress=progress)
            for token in running:
                yield self._delta(token)
                if self._has_called and self.asked.one_call:
                    return False
                if running.stop_reason is None and self.thinking_budget.is_spent():
                    break
            else:
                return False
        self._first_stats = self._first_stats or running.stats
        room = self._slot.target.n_ctx - len(running.prompt)
        self._is_full = len(running.tokens) + len(self._closing_tokens()) >= room
        return not self._is_full

    def _start(self, cancelled: Callable[[], bool]) -> Generation:
        """Start the next part."""
        slot, tokens, first = self._slot, [*self.asked.prompt, *self._written], not self._written
        with slot.lock:
            if first and (wordings := self.asked.wordings):
                slot.reword(tokens, lambda model: wordings.get(model.path))
            started = slot.start(
                tokens,
                self.asked.settings if first else self._settings_of_rest(len(tokens)),
                stats=None if first else self.stats,
                detokenizer=self._detokenizer,
                cancelled=cancelled,
            )
            started.commit_at_most(self.thinking_budget.room)
            self.generation = started
            # The first pass is requested before a long prompt of another text gets the lock again.
            self._cached, _ = next(started.reading(), (0, 0))
        return started

    def _settings_of_rest(self, position: int) -> GenerationConfig:
        """The settings behind reasoning that was ended: what is left, and an unused seed.

        The rules `token` and `block` begin a new sequence of draws.
        """
        settings, count = self.asked.settings, len(self.tokens)
        changed: dict[str, Any] = {
            "max_tokens": settings.max_tokens - count,
            "min_tokens": max(0, settings.min_tokens - count),
        }
        if not settings.verification.same_text:
            changed["seed"] = derive_seed(settings.seed, 0, position)
        if settings.grammar is not None:
            changed["grammar"] = self.asked.answer_grammar
        return replace(settings, **changed)

    def _closing_tokens(self) -> list[int]:
        return self.model.tokenize_after(self.asked.tags.ending) if self.asked.tags else []

    def _close_thought(self) -> Delta:
        """Write the closing tag in the model's place."""
        self.budget_spent = True
        self._written += self._closing_tokens()
        held = self._split(self._detokenizer.flush())
        closed = self._split(self.asked.tags.ending if self.asked.tags else "")
        return Delta(None, (*held, *closed))

    def _delta(self, token: Token) -> Delta:
        self.origins.add(token.origin)
        self.tokens.append(token)
        self._written.append(token.id)
        text = token.text
        # A mark may be a control token, for which there is no text. (Where a token has some, it may
        # be held back, as what may begin a stop string.)
        if self._marks and not self.model.piece(token.id):
            mark = self.model.piece_text(token.id)
            text += mark if mark in self._marks else ""
        self.thinking_budget.count()
        return Delta(token, tuple(self._split(text)))

    def _split(self, text: str = "", *, last: bool = False) -> list[Event]:
        """The events of another piece of text; last: of what was held back."""
        if self._splitter is None:
            return self._events("", text)
        thought, said = self._splitter.flush() if last else self._splitter.push(text)
        if self._reasoning_calls is None:
            return self._events(thought, said)
        calls: list[Event] = []
        thought = self._reasoning_calls.push(thought)
        if last and self._splitter.thinking and self.stop_reason == "eos":
            rest, calls = self._reasoning_calls.finish()
            thought += rest
        elif last or not self._splitter.thinking:
            thought += self._reasoning_calls.close()
        return [*self._events(thought, said), *self._allowed(calls)]

    def _events(self, thought: str, said: str) -> list[Event]:
        events: list[Event] = [Reasoning(thought)] if thought else []
        if self._parser and said:
            events += self._allowed(self._parser.push(said))
        elif said:
            events.append(Text(said))
        return events

    def _allowed(self, events: list[Event]) -> list[Event]:
        """The events up to the end of the first call, where only one is allowed."""
        ended = (at for at, event in enumerate(events) if isinstance(event, CallEnded))
        if self.asked.one_call and (first := next(ended, None)) is not None:
            self._has_called = True
            return events[: first + 1]
        return events


def with_seed(asked: Asked, number: int) -> Asked:
    """The same request for the choice of this number, from 0, which has a seed of its own."""
    if not number:
        return asked
    settings = asked.settings
    seed = (settings.seed + number) % 2**64
    return replace(asked, settings=replace(settings, seed=seed))
