"""Session: a conversation with a model, which owns one slot of an engine."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

from localspec.conversation import session_options
from localspec.conversation.answer import Answer, AsyncAnswer
from localspec.conversation.answer_settings import config_of, settings_of, settings_of_question
from localspec.conversation.described import described_from
from localspec.conversation.edited_answer import edited_answer
from localspec.conversation.events import Dropped, Event, Gauge, Notice
from localspec.conversation.media_spans import Content
from localspec.conversation.message import as_turn
from localspec.conversation.notices import Notices
from localspec.conversation.transcript import Transcript
from localspec.conversation.turns import Conversation, Role, TokenizedText, Turn
from localspec.conversation.unfinished import require_same_settings, require_unfinished
from localspec.conversation.window import Window
from localspec.drafters.spec import DraftOption
from localspec.engine.engine import Engine
from localspec.engine.media_marks import without_marks
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationOptions, concrete
from localspec.utils.closing import Closing


class Session(Closing):
    """A conversation with an engine's model; close the session to give its KV caches back.

    Each turn evaluates only the new tokens. Several sessions may use one engine from several
    threads: their texts are in one cache, and their passes share decodes. Where that is not
    possible, a session has a cache of its own, and its first answer begins with a `Notice` that
    says why. A session has one answer at a time; a new question ends the answer before.
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
        """Begin or continue a conversation.

        engine: the engine that writes the answers.
        system: the system prompt.
        when_full: what happens when the context is full: `stop` ends the answer, `drop` drops the
        oldest turns and yields `Dropped` (the system prompt stays).
        thinking_budget: the most tokens of reasoning per answer; None: no limit.
        tools: the functions that the model may call, as JSON schemas, for the chat template.
        template_options: further variables of the chat template, such as `enable_thinking`.
        raw: True continues the text without the chat template, False uses the template; None
        chooses what suits the model.
        conversation: an earlier conversation to continue; None begins an empty one.
        options: those of `Engine.stream`, for all answers; `send` can change them for one answer.
        Without `max_tokens`, an answer may fill the context.

        Raises InvalidValueError for a wrong value; ModelLoadError if memory is too small for
        another text.
        """
        if not hasattr(engine, "slots"):
            raise InvalidValueError(f"engine is {engine!r:.60}; give what localspec.load returns")
        session_options.require_options(system, when_full, tools, template_options)
        thinking_budget = session_options.checked_budget(thinking_budget)
        self._options = concrete(options)
        config_of(self._options)
        self.engine = engine
        self.system = system
        self.when_full = when_full
        self.thinking_budget = thinking_budget
        self.conversation = Conversation.of(conversation)
        self.template_options = template_options
        self._tools, self._raw = tools, raw
        self._answer: Answer | None = None
        # The first turn of those that the model sees; the oldest turns may have been dropped.
        self._first_seen: Turn | None = None
        self._cached_transcript: Transcript | None = None
        # Held while one of several event loops asks.
        self._asking = threading.Lock()
        self._loan = engine.slots.lend(self)
        self._slot = self._loan.slot
        try:
            self._notices = Notices(engine.slots, self._slot)
        except BaseException:
            self._loan.give_back()
            raise

    def __repr__(self) -> str:
        gauge, name = self.gauge, self.engine.model.path.stem
        return f"<Session {name}, {len(self.turns)} turns, {gauge.used} of {gauge.size} tokens>"

    @property
    def turns(self) -> list[Turn]:
        """The present branch of the conversation."""
        return self.conversation.turns

    @property
    def written(self) -> TokenizedText:
        """The prompt as the model sees it: text and tokens, without dropped turns."""
        self._slot.require_open()
        text, tokens = self._window(self.turns).whole
        return TokenizedText(without_marks(text), tokens)

    @property
    def gauge(self) -> Gauge:
        """The context usage: the last answer and its prompt."""
        if self._answer:
            return self._answer.gauge
        return Gauge(0, self._slot.target.n_ctx)

    # Asking.

    def send(
        self, text: Content, *, role: Role = "user", **options: Unpack[GenerationOptions]
    ) -> Answer:
        """Add a message and return its answer, in place of one that is still being written.

        text: or a list of parts, as in messages: {"type": "image", "image": Path("cat.png")}, and
        {"type": "text", "text": "What is it?"}. role: `tool` for the output of a tool.
        Raises InvalidValueError, and leaves the conversation as it was, if the text is empty, does
        not fit the context, is refused by the chat template, or the model reads no images.
        """
        return self._send(as_turn(text, role), options)

    def _send(self, turn: Turn, options: GenerationOptions, before: Turn | None = None) -> Answer:
        """Add a message, in place of the one before, and return its answer."""
        self._end_answer()
        self.conversation.add(turn)
        try:
            with self._slot.lock:
                self._transcript.require_reads(turn, before)
            return self._ask(options)
        except BaseException:
            self.conversation.remove(turn)
            raise

    def regenerate(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Answer the last question again, with the next seed; the answer before stays a variant."""
        self._end_answer()
        last = before = self.conversation.require_last()
        if last.role == "assistant":
            if last.before is None:
                raise InvalidValueError("there is no question yet; send a message first")
            self.conversation.back_to(last.before)
        try:
            return self._ask(options)
        except BaseException:
            self.conversation.back_to(before)
            raise

    def edit(self, number: int, text: Content, **options: Unpack[GenerationOptions]) -> Answer:
        """Replace the question with this number in `turns`, from 0, and return the new answer.

        text: as of `send`; images that the old question has may be unread. The old question and all
        turns after it stay as another branch.
        """
        self._end_answer()
        turn = self.conversation.turn(number)
        if turn.role == "assistant":
            raise InvalidValueError(f"turn {number} is an answer; edit a question")
        last = self.conversation.last
        self.conversation.back_to(turn.before)
        try:
            return self._send(as_turn(text, turn.role), options, turn)
        except BaseException:
            self.conversation.back_to(last)
            raise

    def continue_answer(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Continue the last answer, which was stopped or cut off, as if it had never ended.

        Its prompt, its tokens and its seed are the same; of one that `max_tokens` has cut off, as
        many more tokens may be written. Raises InvalidValueError if it is complete, its tokens are
        unknown or another model's, or seed, template, thinking or its budget are not as they were.
        """
        self._end_answer()
        turn = self.conversation.require_last()
        require_unfinished(turn, self._slot.target.model.vocabulary_fingerprint)
        return self._ask(options, turn)

    def stop(self) -> None:
        """Ask the running answer to end within one step; may be called from any thread."""
        if answer := self._answer:
            answer.stop()

    # Asking in an event loop: `await` the answer for the whole turn, or read its events with
    # `async for`. The first `await` asks the question, and raises its errors.

    def asend(
        self, text: Content, *, role: Role = "user", **options: Unpack[GenerationOptions]
    ) -> AsyncAnswer:
        """`send` for an event loop, which goes on meanwhile."""
        return AsyncAnswer.of(lambda: self.send(text, role=role, **options), self._asking)

    def aregenerate(self, **options: Unpack[GenerationOptions]) -> AsyncAnswer:
        """`regenerate` for an event loop."""
        return AsyncAnswer.of(lambda: self.regenerate(**options), self._asking)

    def aedit(
        self, number: int, text: Content, **options: Unpack[GenerationOptions]
    ) -> AsyncAnswer:
        """`edit` for an event loop."""
        return AsyncAnswer.of(lambda: self.edit(number, text, **options), self._asking)

    def acontinue_answer(self, **options: Unpack[GenerationOptions]) -> AsyncAnswer:
        """`continue_answer` for an event loop."""
        return AsyncAnswer.of(lambda: self.continue_answer(**options), self._asking)

    # Changing.

    def edit_answer(self, number: int, text: str) -> Turn:
        """Put a text beside the answer with this number in `turns`, from 0, as another variant.

        The variant is now the last turn: `continue_answer` goes on from the end of its text, and a
        message may follow it as it is. The text is kept character for character. The reasoning
        before the answer stays; one that had not ended is ended. Nothing is evaluated yet. The old
        answer and all turns after it stay as another branch.

        Raises InvalidValueError, and leaves the conversation as it was, if the text is empty, is
        not valid Unicode, would open reasoning, or the turn is no answer to anything.
        """
        self._end_answer()
        turn = self.conversation.turn(number)
        if turn.role != "assistant" or turn.before is None:
            raise InvalidValueError(f"turn {number} is not an answer to a message; edit an answer")
        # The lock keeps the model loaded.
        with self._slot.lock:
            window, seed = self._window(turn.before.path), config_of(self._options).seed
            budget = self.thinking_budget
            edited = edited_answer(turn, text, window, seed=seed, thinking_budget=budget)
        self.conversation.back_to(turn.before)
        return self.conversation.add(edited)

    def choose(self, turn: Turn) -> None:
        """Continue the branch of this turn; see `Conversation.choose`."""
        self._end_answer()
        self.conversation.choose(turn)

    def reset(self, conversation: Conversation | None = None) -> None:
        """Start an empty conversation, or continue another one."""
        conversation = Conversation.of(conversation)
        self._end_answer()
        self.conversation = conversation
        self._cached_transcript = self._first_seen = self._answer = None

    def switch(
        self,
        *,
        model: str | Path | None = None,
        draft: DraftOption | Sequence[DraftOption] | None = None,
        **options: Unpack[GenerationOptions],
    ) -> None:
        """Change the model or the drafters (for all sessions of the engine), or this one's options.

        Only the named options change; None restores a default. Answers of other sessions raise a
        LocalspecError. If the new model cannot be loaded, the old one is, and the error is raised.
        """
        changed = concrete({**self._options, **options})
        config_of(changed)
        self._end_answer()
        if model is not None or draft is not None:
            self.engine.switch(model, draft)
        self._options = changed

    def fork(self) -> "Session":
        """A new session that continues a copy of this conversation, with copied KV caches."""
        self._end_answer()
        other = Session(
            self.engine,
            system=self.system,
            when_full=self.when_full,
            thinking_budget=self.thinking_budget,
            tools=self._tools,
            template_options=self.template_options,
            raw=self._raw,
            conversation=self.conversation.copy_branch(),
            **self._options,
        )
        if self._first_seen in self.turns:
            other._first_seen = other.turns[self.turns.index(self._first_seen)]
        try:
            other._slot.copy_from(self._slot)
        except BaseException:
            other.close()
            raise
        return other

    @property
    def cached_tokens(self) -> int:
        """How many tokens the target's cache holds, of this conversation or of what was before."""
        return len(self._slot.target.tokens)

    def save_state(self, key: str, store: StateStore | None = None) -> str | None:
        """Save the KV caches on disk under this key; returns the reason if that fails, or None."""
        self._end_answer()
        return self._slot.save(key, store or StateStore())

    def load_state(self, key: str, store: StateStore | None = None) -> str | None:
        """Load the KV caches that were saved under this key, so that nothing is evaluated again.

        Returns the reason if that fails, else None; the conversation is then evaluated again.
        """
        self._end_answer()
        self._slot.reproducible_width(config_of(self._options))  # finding it empties the cache
        return self._slot.load(key, store or StateStore())

    def remove_state(self, key: str, store: StateStore | None = None) -> None:
        """Delete the KV caches that were saved under this key."""
        (store or StateStore()).remove(key)

    def close(self) -> None:
        """End the running answer and give the KV caches back to the engine."""
        self._loan.give_back(self._close_answer)

    @property
    def _transcript(self) -> Transcript:
        """The transcript for the engine's present model."""
        model = self._slot.target.model
        known, options = self._cached_transcript, self.template_options or {}
        if known and known.model is model and known.options == options:
            return known
        raw = not self.engine.prefers_chat if self._raw is None else self._raw
        self._cached_transcript = Transcript(
            model,
            None if raw else model.chat_template,
            tools=self._tools,
            options=options,
            began=self.conversation.began,
            rotations=self._slot.target.context.params.rope.in_words,
        )
        return self._cached_transcript

    def _end_answer(self) -> None:
        self._loan.require_open()
        self._slot.require_open()
        self._close_answer()

    def _close_answer(self) -> None:
        if self._answer:
            self._answer.close()

    def _window(self, turns: Sequence[Turn], *, continues: bool = False) -> Window:
        """What the model sees of a branch."""
        size = self._slot.target.n_ctx
        dropped = turns.index(self._first_seen) if self._first_seen in turns else 0
        return Window(self._transcript, self.system, turns, size, dropped, continues)

    def _ask(self, options: GenerationOptions, unfinished: Turn | None = None) -> Answer:
        # The lock keeps the model loaded.
        with self._slot.lock:
            self._loan.require_open()
            self.engine.slots.fit_threads()
            budget = self.thinking_budget
            settings = settings_of_question(self._slot, {**self._options, **options})
            before = self._window(self.turns, continues=unfinished is not None)
            window = before.with_room(settings.max_tokens, drops=self.when_full == "drop")
            if unfinished:
                asked = None if options.get("seed") is None else settings.seed
                require_same_settings(unfinished, window, budget, asked)
                described_from(unfinished, window, settings)  # raises if it cannot go on
            turn = unfinished or window.new_answer(settings.seed, budget)
            useless = session_options.without_effect(
                window.transcript, settings, budget, self.engine.drafter_set.names
            )
            notices = self._notices.new(window.transcript, useless)
            first: list[Event] = [*map(Notice, notices)]
            if window.dropped != before.dropped:
                first.append(Dropped(window.dropped, len(window.prompt.tokens)))
            self._first_seen = window.turns[window.dropped]
            self._answer = Answer(
                self._slot,
                self.conversation,
                turn,
                window,
                settings_of(settings, turn),
                thinking_budget=budget,
                first=first,
                shorten=self._shorten,
                late_notices=partial(self._notices.new, window.transcript),
            )
        return self._answer

    def _shorten(self, window: Window) -> Window | None:
        """The window to go on with when an answer has filled the context; None if there is none."""
        shorter = window.without_oldest() if self.when_full == "drop" else None
        if shorter is None or shorter.is_full:
            return None
        self._first_seen = shorter.turns[shorter.dropped]
        return shorter
