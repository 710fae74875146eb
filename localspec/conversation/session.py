"""Session: a conversation with a model, and the one owner of its caches."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Unpack
from weakref import finalize

from localspec.conversation.answer import Answer, Prompt
from localspec.conversation.events import Gauge
from localspec.conversation.reasoning import Tags, opens_thinking, tags_for
from localspec.conversation.transcript import Transcript
from localspec.conversation.turns import Conversation, Role, Turn, Written
from localspec.conversation.window import Window, last_question, moved_on
from localspec.drafters.spec import DraftOption
from localspec.engine.engine import Engine
from localspec.engine.state_store import StateStore
from localspec.errors import ContextFullError, InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig, GenerationOptions

# Of the context, for the answer, before the oldest turns have to go.
_RESERVED = 0.25
_AS_LONG_AS_IT_MAY = 2**31 - 1
_MERGED = "the model's template refuses these turns as they are: some are handed over as one"


class Session:
    """A conversation with an engine's model; close it to give its caches back.

    system: what the model is told before everything else. when_full: what happens when the context
    is full: `stop`, or `drop` the oldest turns, which is always said (the system prompt stays).
    thinking_budget: how many tokens a reasoning model may think per answer. tools: told to the
    template; template_options: further variables for it. raw: go on with what is said, without the
    template; None is for models that are made for that. conversation: to go on with.
    options: those of `Engine.stream`; an answer may be as long as the context has room, unless
    `max_tokens` says otherwise.

    Each turn evaluates only what is new of the text. Several sessions may use one engine, from any
    threads: the first one has the engine's caches, each other one its own, and their steps take
    turns. One session has one answer at a time; to ask again ends the one before.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        system: str | None = None,
        when_full: Literal["stop", "drop"] = "stop",
        thinking_budget: int | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        raw: bool | None = None,
        conversation: Conversation | None = None,
        **options: Unpack[GenerationOptions],
    ) -> None:
        if when_full not in ("stop", "drop"):
            raise InvalidValueError(f"when_full is {when_full!r}; it must be stop or drop")
        _checked(options)
        self.engine = engine
        self.system = system
        self.when_full = when_full
        self.thinking_budget = thinking_budget
        self.conversation = conversation or Conversation()
        self._options: GenerationOptions = {**options}
        self._tools, self._template_options, self._raw = tools, template_options, raw
        self._began = datetime.now()
        self._answer: Answer | None = None
        self._seen_from: Turn | None = None
        self._said_merged = False
        self._known_transcript: Transcript | None = None
        self._closed = False
        self._slot = engine.open_slot()
        # For one that nobody closes.
        self._left = finalize(self, engine.leave, self._slot)

    @property
    def turns(self) -> list[Turn]:
        """The branch of the conversation that goes on."""
        return self.conversation.turns

    @property
    def written(self) -> Written:
        """What the model sees of the conversation: its text, and the tokens that are evaluated."""
        return self._written(self.turns, self._dropped)

    @property
    def gauge(self) -> Gauge:
        """How much of the context the last answer and what it follows take."""
        if self._answer:
            return self._answer.gauge
        return Gauge(0, self._slot.target.n_ctx)

    # Asking.

    def send(
        self, text: str, *, role: Role = "user", **options: Unpack[GenerationOptions]
    ) -> Answer:
        """Say something, and have it answered. role: `tool` for what a tool gave.

        Raises InvalidValueError, and then nothing was said, where the text is empty or does not fit
        the context, or the template refuses it.
        """
        if not text:
            raise InvalidValueError("the message is empty; say something")
        self._end_answer()
        turn = self.conversation.add(Turn(role, text))
        try:
            return self._ask(options)
        except BaseException:
            self.conversation.remove(turn)
            raise

    def regenerate(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Another answer to what was said last; the one before stays as a variant."""
        self._end_answer()
        last = before = self._last()
        if last.role == "assistant":
            if last.before is None:
                raise InvalidValueError("nothing was asked yet; send a message first")
            self.conversation.back_to(last.before)
        try:
            return self._ask(options)
        except BaseException:
            self.conversation.back_to(before)
            raise

    def edit(self, number: int, text: str, **options: Unpack[GenerationOptions]) -> Answer:
        """Say something else in place of a turn of the branch, counted from 0, and go on so.

        What followed stays as another branch.
        """
        self._end_answer()
        turns = self.turns
        if not 0 <= number < len(turns):
            raise InvalidValueError(f"there is no turn {number}; there are {len(turns)}, from 0 on")
        if turns[number].role == "assistant":
            raise InvalidValueError(f"turn {number} is an answer; edit what was asked")
        last = self.conversation.last
        self.conversation.back_to(turns[number].before)
        try:
            return self.send(text, role=turns[number].role, **options)
        except BaseException:
            self.conversation.back_to(last)
            raise

    def stop(self) -> None:
        """End the answer that is written now within one step; from any thread."""
        answer = self._answer
        if answer:
            answer.stop()

    # Changing.

    def choose(self, turn: Turn) -> None:
        """Go on with the branch that this turn is on."""
        self._end_answer()
        self.conversation.choose(turn)

    def reset(self, conversation: Conversation | None = None) -> None:
        """Forget what was said, or go on with another conversation."""
        self._end_answer()
        self.conversation = conversation or Conversation()
        self._began = datetime.now()
        self._known_transcript = self._seen_from = self._answer = None

    def switch(
        self,
        *,
        model: str | Path | None = None,
        draft: DraftOption | Sequence[DraftOption] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> None:
        """Go on with another model, other drafters (for all sessions of the engine), or options.

        Of options, those that are named change; None is the default again. Where a model cannot be
        loaded, the one before is loaded again, and the reason raised.
        """
        changed: GenerationOptions = {**self._options, **options}
        _checked(changed)
        self._end_answer()
        if model is not None or draft is not None:
            self.engine.switch(model, draft)
        self._options = changed

    def fork(self) -> "Session":
        """A session of its own that goes on from here; nothing is evaluated again."""
        self._end_answer()
        other = Session(
            self.engine,
            system=self.system,
            when_full=self.when_full,
            thinking_budget=self.thinking_budget,
            tools=self._tools,
            template_options=self._template_options,
            raw=self._raw,
            conversation=Conversation([turn.copy() for turn in self.turns]),
            **self._options,
        )
        other._began = self._began
        if self._seen_from in self.turns:
            other._seen_from = other.turns[self.turns.index(self._seen_from)]
        try:
            other._slot.copy(self._slot)
        except BaseException:
            other.close()
            raise
        return other

    def save_state(self, key: str, store: StateStore | None = None) -> str | None:
        """Keep the caches on disk by this name; returns why not, if not.

        They are as large as what they hold: a store keeps the latest up to a bound.
        """
        self._end_answer()
        return self._slot.save(key, store or StateStore())

    def load_state(self, key: str, store: StateStore | None = None) -> str | None:
        """Take back what was kept by this name, so that its text need not be evaluated again.

        Returns why not, if not: it was of another model, settings or versions, or there is none.
        Then nothing is lost but time.
        """
        self._end_answer()
        return self._slot.load(key, store or StateStore())

    def remove_state(self, key: str, store: StateStore | None = None) -> None:
        """Delete what was kept by this name."""
        self._slot.remove(key, store or StateStore())

    def close(self) -> None:
        """End what runs, and give the caches back."""
        if self._closed:
            return
        self._end_answer()
        self._left()
        self._closed = True

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    @property
    def _transcript(self) -> Transcript:
        """That of the model there is now."""
        model = self._slot.target.model
        if self._known_transcript is None or self._known_transcript.model is not model:
            raw = not self.engine.prefers_chat if self._raw is None else self._raw
            self._known_transcript = Transcript(
                model,
                None if raw else model.chat_template,
                tools=self._tools,
                options=self._template_options,
                began=self._began,
            )
        return self._known_transcript

    def _end_answer(self) -> None:
        if self._closed:
            raise LocalspecError("this session was closed; begin another")
        if self._answer:
            self._answer.close()

    def _last(self) -> Turn:
        if self.conversation.last is None:
            raise InvalidValueError("nothing was said yet; send a message first")
        return self.conversation.last

    def _ask(self, options: GenerationOptions) -> Answer:
        # Nobody may free the model meanwhile.
        with self.engine.lock:
            settings, room = self._settings(options)
            tags = tags_for(self._transcript.template)
            self._answer = Answer(
                self._slot,
                self.conversation,
                self._prompt(room, settings, tags),
                settings,
                tags,
                shorten=lambda: self._shortened(room),
                thinking_budget=self.thinking_budget,
                variant=self._variant,
            )
        return self._answer

    def _settings(self, options: GenerationOptions) -> tuple[GenerationConfig, int]:
        """For the next answer, and how many tokens of text fit with them."""
        given: GenerationOptions = {"logprobs": False, **self._options, **options}
        room = self._slot.room(_checked(given))
        if given.get("max_tokens") is None:
            given["max_tokens"] = room
        settings = _checked(given)
        if given.get("seed") is not None:
            # With one seed for all, a variant would be what it is a variant of.
            settings = replace(settings, seed=(settings.seed + self._variant) % 2**64)
        return settings, room

    @property
    def _variant(self) -> int:
        """The number of the next answer to what was said last."""
        answers = [turn for turn in self._last().after if turn.role == "assistant"]
        return max([len(answers), *(turn.variant + 1 for turn in answers)])

    def _prompt(self, room: int, settings: GenerationConfig, tags: Tags) -> Prompt:
        """What the next answer follows, shortened if it must be and may."""
        before, turns = self._dropped, self.turns
        window = Window(before, self._written(turns, before))
        if self.when_full == "drop":
            reserved = min(settings.max_tokens, int(room * _RESERVED))
            if len(window.written.tokens) + reserved > room:
                window = self._moved_on(room) or window
        if len(window.written.tokens) >= room:
            raise self._too_long(room)
        self._seen_from = turns[window.first]
        text = window.written.text
        return Prompt(
            window.written.tokens,
            dropped=window.first,
            newly=window.first != before,
            notices=self._notices(),
            thinking=bool(self._transcript.template) and opens_thinking(text, tags),
        )

    def _shortened(self, room: int) -> Prompt | None:
        """What to go on after, when an answer has filled the context."""
        window = self._moved_on(room) if self.when_full == "drop" else None
        if window is None or len(window.written.tokens) >= room:
            return None
        self._seen_from = self.turns[window.first]
        return Prompt(window.written.tokens, dropped=window.first, newly=True)

    def _moved_on(self, room: int) -> Window | None:
        turns = self.turns
        return moved_on(turns, self._dropped, room, lambda first: self._written(turns, first))

    @property
    def _dropped(self) -> int:
        """How many turns of the branch the model does not see."""
        turns = self.turns
        return turns.index(self._seen_from) if self._seen_from in turns else 0

    def _written(self, turns: Sequence[Turn], first: int) -> Written:
        """These turns, from one on, as the model sees them."""
        return self._transcript.prompt(self.system, turns[first:])

    def _notices(self) -> Sequence[str]:
        if not self._transcript.merged or self._said_merged:
            return ()
        self._said_merged = True
        return (_MERGED,)

    def _too_long(self, room: int) -> InvalidValueError:
        turns = self.turns
        alone = len(self._written(turns, last_question(turns)).tokens)
        if alone >= room:
            return InvalidValueError(
                f"the message has {alone} tokens with what belongs to it, and the context holds "
                f"{room}; shorten it or raise --ctx"
            )
        count = len(self._written(turns, self._dropped).tokens)
        return ContextFullError(
            f"the conversation has {count} tokens with this message, and the context holds {room}; "
            f"{'shorten it' if self.when_full == 'drop' else 'let the oldest turns be dropped'}"
            ", begin another, or raise --ctx"
        )


def _checked(options: GenerationOptions) -> GenerationConfig:
    """As long as it may be, unless that was said."""
    longest = options.get("max_tokens") or _AS_LONG_AS_IT_MAY
    return GenerationConfig.of(**{**options, "max_tokens": longest})
