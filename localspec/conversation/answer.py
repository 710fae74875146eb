"""Answer: a model's reply to a conversation, token by token."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence

from localspec.conversation.answer_settings import reasons_first, settings_behind
from localspec.conversation.answer_writer import AnswerWriter, Written
from localspec.conversation.described import described_from
from localspec.conversation.events import Dropped, Ended, Event, Gauge, Notice, Piece, Reading
from localspec.conversation.incomplete_json import incomplete_json
from localspec.conversation.reasoning import Split
from localspec.conversation.turns import Conversation, TokenizedText, Turn
from localspec.conversation.window import Window
from localspec.engine.background import Background
from localspec.engine.begun import Begun
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Generation, StopReason, Token
from localspec.engine.interruption import CLOSED, SWITCHED, InterruptedTextError, Interruption
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig
from localspec.stats import Stats
from localspec.utils.closing import Closing
from localspec.utils.format import excerpt, format_bytes
from localspec.utils.option_names import option
from localspec.utils.stop_flag import StopFlag

# Gives a smaller window when the context is full; None if no turn can be dropped.
Shorten = Callable[[Window], Window | None]


class AsyncAnswer(Background[Event, Turn]):
    """An answer for `async for`, event by event; `await` it for the whole `Turn`.

    `Session.asend`, `aregenerate`, `aedit` and `acontinue_answer` return it. It is written in a
    thread of its own, a few events ahead. To stop, cancel the task that reads it, call `aclose`, or
    leave the `async with`: the answer ends within one step, and its text so far stays in the
    conversation.
    """

    @classmethod
    def of(cls, ask: Callable[[], "Answer"], asking: threading.Lock) -> "AsyncAnswer":
        """The answer that `ask` returns. asking: held while it asks."""

        def work(_stopped: Callable[[], bool]) -> Generator[Event, None, Turn]:
            with asking:
                answer = ask()
            with answer:
                yield from answer
                return answer.result()

        return cls(work)


class Answer(Closing, Iterator[Event]):
    """An iterator of events; the last event is `Ended`. `Session.send` returns it.

    You may stop iterating at any time: the text so far stays in the conversation. `stop` and
    `close` may be called from any thread; `close` waits for the step that runs. Where the engine is
    closed or switched before the end, the iterator and `result` raise LocalspecError.

    turn: the answer's turn in the conversation; None before the first token, unless it continues
    one. origins: the origin of each token written here so far. stop_reason: why the answer has
    ended, as in `Result`; None before.
    """

    def __init__(
        self,
        slot: Slot,
        conversation: Conversation,
        turn: Turn,
        window: Window,
        settings: GenerationConfig,
        *,
        thinking_budget: int | None,
        first: Sequence[Event],
        shorten: Shorten,
        late_notices: Callable[[], Sequence[str]],
    ) -> None:
        """See `Session`. turn: to be written, or to be continued. first: the first events."""
        self.turn = turn if window.continues else None
        self.settings = settings
        self.origins: list[str] = []
        self._slot = slot
        self._model = slot.target.model
        self._conversation = conversation
        self._turn = turn
        self._window = window
        self._first = first
        self._shorten = shorten
        self._late_notices = late_notices
        # Tokens that stand were written with the budget of then, which ended their reasoning.
        budget = turn.thinking_budget if turn.template else thinking_budget
        self._writer = AnswerWriter(
            self._model,
            Detokenizer(settings.stop),
            window.transcript.tags,
            thinking=window.thinking and reasons_first(settings, window.transcript.tags),
            budget=budget if settings.is_free else None,
        )
        self._stop = StopFlag()
        self.stop_reason: StopReason | None = None
        # The line for the reader, where another party has ended the answer.
        self._interruption: str | None = None
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._running = self._run()
        # How many tokens stand before those that a grammar describes.
        self._described_from = 0
        if self.turn:
            self._take_up(self.turn)

    @property
    def text(self) -> str:
        """The text of the answer so far, without the reasoning."""
        return self.turn.content if self.turn else ""

    @property
    def stats(self) -> Stats:
        """The counts and times so far."""
        return self._writer.stats

    @property
    def gauge(self) -> Gauge:
        """The context usage, prompt included."""
        used = len(self._window.prompt.tokens) + len(self._writer.tokens)
        return Gauge(used, self._slot.target.n_ctx)

    def __repr__(self) -> str:
        state = self.stop_reason or "unfinished"
        return f"<Answer {excerpt(self.text)}, {state}, {self.stats.line}>"

    def __next__(self) -> Event:
        # A step keeps the model loaded.
        step = self._slot.scheduled.step()
        with self._lock, step, step:
            try:
                return next(self._running)
            except StopIteration:
                if self._interruption:
                    raise InterruptedTextError(self._interruption) from None
                raise

    def stop(self) -> None:
        """Ask the answer to end within one step; the iteration still yields `Ended`."""
        self._stop.set()

    def close(self) -> None:
        """End the answer now; the iteration yields nothing more."""
        self._stop.set()
        if self.stop_reason:
            return
        with self._lock:
            self._running.close()
            self._finish("cancelled")
            if self._generation:
                self._generation.close()

    def result(self) -> Turn:
        """Run to the end and return the answer; empty if it ended before its first token."""
        for _ in self:
            pass
        return self._turn

    def _run(self) -> Generator[Event, None, None]:
        self._slot.in_answer = True
        try:
            reason = yield from self._all_parts()
        except BaseException:
            # The garbage collector may run this in any thread, so it must not take a lock.
            self._finish("cancelled")
            raise
        yield from map(Notice, self._late_notices())
        rest = self._finish(reason)
        if reason in ("length", "context"):
            limit = option("max_tokens" if reason == "length" else "context")
            if lacking := incomplete_json(self._turn.content, self.settings.schema, limit):
                yield Notice(f"the answer was cut off; {lacking}")
        yield Ended(self.turn, reason, rest.said, rest.thought, self.stats, self.gauge)

    def _all_parts(self) -> Generator[Event, None, StopReason]:
        """Yield the whole answer, one part per prompt; return the stop reason."""
        yield from self._first
        while True:
            if self._stop.is_set():
                return "cancelled"
            if self.settings.max_tokens <= len(self._writer.tokens):
                return "length"
            yield from self._text()
            reason = self._writer.stop_reason or "cancelled"
            if reason == "context" and (shorter := self._shorter_window()):
                self._window = shorter
                yield Dropped(shorter.dropped, len(shorter.prompt.tokens))
            else:
                return reason

    def _text(self) -> Iterator[Event]:
        """Yield the text behind one prompt: until the answer ends, or the context is full."""
        prompt, context = len(self._window.prompt.tokens), self._slot.target.n_ctx
        written = self._writer.write(
            self._start, prompt=prompt, most=self.settings.max_tokens, context=context
        )
        try:
            for each in written:
                if not isinstance(each, Written):
                    yield from self._reading(each)
                elif each.token:
                    yield self._piece(each.token, each.split)
                else:
                    self._add_to_turn(each.split)
                    yield Notice(
                        "the thought was ended: its budget of "
                        f"{self._writer.budget.tokens} tokens is used up"
                    )
                    if self._stop.is_set():
                        return
        except InterruptedTextError:
            if self._generation is None or self._generation.interruption is None:
                raise
            raise self._interrupted(self._generation.interruption) from None

    def _start(self) -> Generation:
        self._require_model()
        prompt = self._window.prompt.tokens
        if wording := self._window.wording:
            self._slot.reword(prompt, wording)
        self._generation = self._slot.start(
            [*prompt, *self._writer.tokens],
            self._settings_of_part(),
            stats=self._writer.counted,
            detokenizer=self._writer.detokenizer,
            cancelled=self._stop.is_set,
            begun=Begun(self._writer.tokens[self._described_from :], self._writer.sampler_state),
        )
        return self._generation

    def _require_model(self) -> None:
        """Raise InterruptedTextError where the engine has not the model of the answer any more."""
        if self._slot.is_closed:
            raise self._interrupted(CLOSED)
        if self._slot.target.model is not self._model:
            raise self._interrupted(SWITCHED)

    def _interrupted(self, interruption: Interruption) -> InterruptedTextError:
        """The error that ends this answer, and names the way to go on."""
        where, model = "the session's", self._slot.target.model
        if interruption is CLOSED:
            where, model = "begin a Session there with this conversation: its", self._model
        if self.turn and self.turn.vocabulary == model.vocabulary_fingerprint:
            way = f"{where} `continue_answer` goes on"
        else:
            way = f"{where} `regenerate` answers again"
        error = interruption.error("this answer", way)
        self._interruption = str(error)
        return error

    def _reading(self, generation: Generation) -> Iterator[Event]:
        """Read the prompt of a part."""
        again = generation.stats.prompt_again
        for progress in generation.reading():
            yield Reading(*progress)
        if again := generation.stats.prompt_again - again:
            yield Notice(self._reevaluated_line(again))

    def _settings_of_part(self) -> GenerationConfig:
        return settings_behind(
            self.settings,
            written=len(self._writer.tokens),
            prompt=len(self._window.prompt.tokens),
            dropped=self._window.dropped,
        )

    def _reevaluated_line(self, tokens: int) -> str:
        target = self._slot.target
        line = f"{tokens} tokens were evaluated again: this model's cache can forget "
        if refused := target.memory.marks.refused:
            size = format_bytes(refused)
            return f"{line}{target.rollback.value}, and memory has no room for copies of {size}"
        return line + target.rollback.value

    def _piece(self, token: Token, split: Split) -> Piece:
        self.origins.append(token.origin)
        self._add_to_turn(split)
        return Piece(token, split.said, split.thought, self.gauge)

    def _take_up(self, turn: Turn) -> None:
        """Let an answer grow again. Its tokens are read once more for what they leave open.

        A part of a character, of a tag or of a stop string was text when it ended. What the user
        has edited stays as it is, also where its tokens would spell it in another way; what is
        there stays, also where a stop string is in it.
        """
        writer, tokens = self._writer, turn.written.tokens
        self._described_from = described_from(turn, self._window, self.settings)
        writer.sampler_state = turn.sampler_state
        given, generated = tokens[: turn.edited], tokens[turn.edited :]
        thought = said = ""
        if given:
            size = len(writer.text_of(generated))
            writer.give(TokenizedText(turn.raw[: len(turn.raw) - size], given))
            thought, said = turn.thought, turn.content[: len(turn.content) - size]
        split = Split(thought, said).then(writer.take_up(generated))
        turn.stop_reason, (turn.thought, turn.content) = None, split

    def _add_to_turn(self, split: Split) -> None:
        if self.turn is None:
            self._conversation.back_to(self._turn.before)
            self.turn = self._conversation.add(self._turn)
        self.turn.content += split.said
        self.turn.thought += split.thought

    def _shorter_window(self) -> Window | None:
        """A shorter window for the next part; None where there is none."""
        if self.turn is None:
            return None
        self._record_tokens()
        return self._shorten(self._window.behind(self.turn))

    def _record_tokens(self) -> None:
        self._turn.raw, self._turn.written = self._writer.raw, self._writer.written
        self._turn.sampler_state = self._writer.written_state

    def _finish(self, reason: StopReason) -> Split:
        """End the turn, once; return the text that was held back."""
        if self.stop_reason:
            return Split()
        self.stop_reason = reason
        self._slot.in_answer = False
        rest = self._writer.end()
        self._record_tokens()
        self._turn.stop_reason = reason
        if self.turn:
            self._add_to_turn(rest)
        return rest
