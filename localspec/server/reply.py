"""Reply: a text that is being written for a request, delta by delta, for an event loop."""

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from localspec.conversation.reasoning import Splitter
from localspec.engine.background import Background
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, StopReason, Token
from localspec.engine.slot import Slot
from localspec.llama.model import Model
from localspec.server.asked import Asked
from localspec.server.tool_calls import CallEnded, Event, Reasoning, ReasoningCalls, Text
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class Delta:
    """What a token adds. token: None for what was held back until the end."""

    token: Token | None
    events: tuple[Event, ...] = ()

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
    text has begun they are empty and None. number: of the slot. thought_tokens: how many tokens are
    reasoning. origins: where the tokens so far came from.
    """

    def __init__(
        self, slot: Slot, asked: Asked, stopped: Callable[[], bool], *, number: int = 0
    ) -> None:
        self.asked = asked
        self.number = number
        self.generation: Generation | None = None
        self.thought_tokens = 0
        self.origins: set[str] = set()
        self._slot = slot
        self._has_called = False
        self._stopped = stopped
        continued = bool(asked.continued.strip())
        self._splitter = (
            Splitter(asked.tags, thinking=asked.thinking, continued=continued)
            if asked.tags
            else None
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
        """The counts and times so far."""
        return self.generation.stats if self.generation else Stats()

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text has ended; None before."""
        if self._has_called and self.asked.one_call:
            return "eos"  # as if the model had ended it there
        return self.generation.stop_reason if self.generation else None

    @property
    def model(self) -> Model:
        """The model that writes."""
        return self._slot.target.model

    @property
    def tokens(self) -> list[Token]:
        """The tokens written so far."""
        return self.generation.tokens if self.generation else []

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text: the first that is whole, of several the longest."""
        if self.stop_reason != "stop":
            return None
        detokenizer, text = Detokenizer(), ""
        for token in self.tokens:
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
        with slot.lock:
            tokens = list(self.asked.prompt)
            if wordings := self.asked.wordings:
                slot.reword(tokens, lambda model: wordings.get(model.path))
            self.generation = slot.start(tokens, self.asked.settings, cancelled=cancelled)
            # The first pass is requested before a long prompt of another text gets the lock again.
            next(self.generation.reading(), None)
        with self.generation as running:
            for token in running:
                yield self._delta(token)
                if self._has_called and self.asked.one_call:
                    return
        rest = self._split(last=True)
        if self._parser:
            rest += self._parser.finish()
        if rest:
            yield Delta(None, tuple(rest))

    def _delta(self, token: Token) -> Delta:
        self.origins.add(token.origin)
        text = token.text
        # A mark may be a control token, for which there is no text. (Where a token has some, it may
        # be held back, as what may begin a stop string.)
        if self._marks and not self.model.piece(token.id):
            mark = self.model.piece_text(token.id)
            text += mark if mark in self._marks else ""
        if self._splitter:
            self.thought_tokens += self._splitter.thinking
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
