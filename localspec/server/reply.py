"""Reply: a text that is being written for a request, delta by delta, for an event loop."""

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from localspec.conversation.answer_settings import settings_behind
from localspec.conversation.answer_writer import AnswerWriter, Written
from localspec.conversation.reasoning import Split
from localspec.conversation.thinking_budget import ThinkingBudget
from localspec.engine.background import Background
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, StopReason, Token
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig
from localspec.llama.model import Model
from localspec.loading.copy_sources import prediction_unused
from localspec.server.prompt_progress import PromptProgress, prompt_progress
from localspec.server.text_request import TextRequest
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
    written so far. origins: where they came from. has_called: whether there is a call that is
    whole.
    """

    def __init__(
        self, slot: Slot, asked: TextRequest, stopped: Callable[[], bool], *, number: int = 0
    ) -> None:
        self.asked = asked
        self.number = number
        self.generation: Generation | None = None
        self.tokens: list[Token] = []
        self.origins: set[str] = set()
        self._slot = slot
        self.has_called = False
        # The tokens of the prompt that were in the cache.
        self._cached = 0
        self._stopped = stopped
        continued = bool(asked.continued.strip())
        self._writer = AnswerWriter(
            self.model,
            Detokenizer(asked.settings.stop),
            asked.tags,
            thinking=asked.thinking,
            continued=continued,
            budget=asked.thinking_budget,
            marks=asked.marks,
        )
        self._parser = asked.tool_calls() if asked.tool_calls else None
        if self._parser and asked.channel:
            self._parser.push(asked.channel)
        elif self._parser and continued and not asked.thinking:
            self._parser.bare = ""  # such calls stand at the beginning only
        self._reasoning_calls = self._watched() if asked.tags else None

    def _watched(self) -> ReasoningCalls | None:
        """What finds calls in reasoning, where they have a mark."""
        parser = self.asked.tool_calls() if self.asked.tool_calls else None
        return ReasoningCalls(parser) if parser and parser.openings and not parser.bare else None

    @property
    def prompt_logprobs(self) -> list[Token]:
        """The prompt's tokens with their log-probabilities, where they were asked for."""
        return (self.generation and self.generation.prompt_logprobs) or []

    @property
    def stats(self) -> Stats:
        """The counts and times so far; those of the prompt are of what was asked."""
        return self._writer.stats

    @property
    def budget_spent(self) -> bool:
        """Whether the reasoning was ended at its budget."""
        return self._writer.is_budget_spent

    @property
    def thinking_budget(self) -> ThinkingBudget:
        """What counts the tokens of reasoning."""
        return self._writer.budget

    @property
    def stop_reason(self) -> StopReason | None:
        """Why the text has ended; None before."""
        if self.has_called and self.asked.one_call:
            return "eos"  # as if the model had ended it there
        return self._writer.stop_reason

    @property
    def model(self) -> Model:
        """The model that writes."""
        return self._slot.target.model

    @property
    def not_used(self) -> list[str]:
        """What of the request has no effect, a line for each."""
        names = self._slot.loaded.drafter_set.names
        why = prediction_unused(self.asked.settings, names)
        return [*([f"prediction: {why}"] if why else []), *self.asked.settings.not_used]

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the text: the first that is whole, of several the longest."""
        return self._writer.detokenizer.stop if self.stop_reason == "stop" else None

    @asynccontextmanager
    async def deltas(self) -> AsyncIterator[AsyncIterator[Delta]]:
        """The deltas, as they are written; the text ends with the `with`."""
        async with Background[Delta, None](self._write) as running:
            yield running

    def _write(self, gone: Callable[[], bool]) -> Generator[Delta, None, None]:
        def start() -> Generation:
            return self._start(cancelled=lambda: gone() or self._stopped())

        slot, asked = self._slot, self.asked
        prompt, most, context = len(asked.prompt), asked.settings.max_tokens, slot.target.n_ctx
        slot.in_answer = True
        try:
            for each in self._writer.write(start, prompt=prompt, most=most, context=context):
                if isinstance(each, Written):
                    yield self._delta(each)
                elif asked.shows_progress and not self.tokens:
                    for progress in prompt_progress(each, self._cached):
                        yield Delta(None, progress=progress)
                if self.has_called and asked.one_call:
                    return
        finally:
            if self.generation:
                self.generation.close()
            slot.in_answer = False
        rest = self._events_of(self._writer.end(), last=True)
        if self._parser:
            rest += self._allowed(self._parser.finish())
        if rest:
            yield Delta(None, tuple(rest))

    def _start(self, cancelled: Callable[[], bool]) -> Generation:
        """Start the next part."""
        slot, prompt, written = self._slot, self.asked.prompt, self._writer.tokens
        with slot.lock:
            if self.generation is None and (wordings := self.asked.wordings):
                slot.reword(prompt, lambda model: wordings.get(model.path))
            self.generation = slot.start(
                [*prompt, *written],
                self._settings_of_rest() if written else self.asked.settings,
                stats=self._writer.counted,
                detokenizer=self._writer.detokenizer,
                cancelled=cancelled,
            )
            # The first pass is requested before a long prompt of another text gets the lock again.
            self._cached, _ = next(self.generation.reading(), (0, 0))
        return self.generation

    def _settings_of_rest(self) -> GenerationConfig:
        """The settings behind reasoning that was ended, whose grammar is that of the answer."""
        prompt, written = len(self.asked.prompt), len(self._writer.tokens)
        rest = settings_behind(self.asked.settings, written=written, prompt=prompt)
        return rest if rest.grammar is None else replace(rest, grammar=self.asked.answer_grammar)

    def _delta(self, written: Written) -> Delta:
        token, split = written
        if token:
            self.origins.add(token.origin)
            self.tokens.append(token)
        return Delta(token, tuple(self._events_of(split)))

    def _events_of(self, split: Split, *, last: bool = False) -> list[Event]:
        """The events of another piece of text; last: of what was held back."""
        thought, said = split
        if self._reasoning_calls is None:
            return self._events(thought, said)
        calls: list[Event] = []
        thought = self._reasoning_calls.push(thought)
        if last and self._writer.is_thinking and self.stop_reason == "eos":
            rest, calls = self._reasoning_calls.finish()
            thought += rest
        elif last or not self._writer.is_thinking:
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
        for at, event in enumerate(events):
            if isinstance(event, CallEnded) and event.complete:
                self.has_called = True
                if self.asked.one_call:
                    return events[: at + 1]
        return events


def with_seed(asked: TextRequest, number: int) -> TextRequest:
    """The same request for the choice of this number, from 0, which has a seed of its own.

    The log-probabilities of the prompt are asked for once, unless they are all that is.
    """
    if not number:
        return asked
    settings = asked.settings
    seed = (settings.seed + number) % 2**64
    alone = settings.prompt_logprobs and not settings.max_tokens
    return replace(asked, settings=replace(settings, seed=seed, prompt_logprobs=alone))
