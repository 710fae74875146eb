"""Session: a conversation with a model, which owns one slot of an engine."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack
from weakref import finalize

from localspec.conversation.answer import Answer, AnswerPrompt
from localspec.conversation.answer_edits import AnswerEdits
from localspec.conversation.answer_settings import config_of, settings_of_rest
from localspec.conversation.async_questions import AsyncQuestions
from localspec.conversation.events import Gauge
from localspec.conversation.reasoning import Tags, opens_thinking, tags_for
from localspec.conversation.saved_states import SavedStates
from localspec.conversation.transcript import Transcript
from localspec.conversation.turns import Conversation, Role, TokenizedText, Turn, require_message
from localspec.conversation.unfinished import (
    require_same_settings,
    require_unfinished,
    without_answer,
)
from localspec.conversation.window import Window, drop_oldest, last_question, too_long_error
from localspec.drafters.spec import DraftOption
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig, GenerationOptions, concrete, require
from localspec.utils.closing import Closing

# The share of the context kept free for the answer; the oldest turns are dropped for it.
_ANSWER_SHARE = 0.25
_MERGE_NOTICE = "the model's template refuses these turns: some are joined into one"


class Session(Closing, AsyncQuestions, AnswerEdits, SavedStates):
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
        if when_full not in ("stop", "drop"):
            raise InvalidValueError(f"when_full is {when_full!r}; it must be stop or drop")
        if thinking_budget is not None:
            thinking_budget = require("thinking_budget", thinking_budget, 0)
        self._options = concrete(options)
        config_of(self._options)
        super().__init__()
        self.engine = engine
        self.system = system
        self.when_full = when_full
        self.thinking_budget = thinking_budget
        self.conversation = conversation or Conversation()
        self.template_options = template_options
        self._tools, self._raw = tools, raw
        self._answer: Answer | None = None
        self._first_seen: Turn | None = None
        self._cached_transcript: Transcript | None = None
        self._closed = False
        self._slot = engine.open_slot()
        # What the engine's `notes` have said.
        self._noted = {*self._slot.loaded.notes, engine.device_failures}
        # Runs when the session is garbage-collected without `close`.
        self._give_back_slot = finalize(self, engine.abandon, self._slot)

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
        return self._prompt_from(self.turns, self._dropped)

    @property
    def gauge(self) -> Gauge:
        """The context usage: the last answer and its prompt."""
        if self._answer:
            return self._answer.gauge
        return Gauge(0, self._slot.target.n_ctx)

    # Asking.

    def send(
        self, text: str, *, role: Role = "user", **options: Unpack[GenerationOptions]
    ) -> Answer:
        """Add a message and return its answer, in place of one that is still being written.

        role: `tool` for the output of a tool.
        Raises InvalidValueError, and leaves the conversation as it was, if the text is empty, does
        not fit the context or is refused by the chat template.
        """
        require_message(text)
        self._end_answer()
        turn = self.conversation.add(Turn(role, text))
        try:
            return self._ask(options)
        except BaseException:
            self.conversation.remove(turn)
            raise

    def regenerate(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Answer the last question again; the answer before stays as a variant."""
        self._end_answer()
        last = before = self._last_turn()
        if last.role == "assistant":
            if last.before is None:
                raise InvalidValueError("there is no question yet; send a message first")
            self.conversation.back_to(last.before)
        try:
            return self._ask(options)
        except BaseException:
            self.conversation.back_to(before)
            raise

    def edit(self, number: int, text: str, **options: Unpack[GenerationOptions]) -> Answer:
        """Replace the question with this number in `turns`, from 0, and return the new answer.

        The old question and all turns after it stay as another branch.
        """
        self._end_answer()
        turns = self.turns
        if not 0 <= number < len(turns):
            raise InvalidValueError(f"there is no turn {number}; there are {len(turns)}, from 0 on")
        if turns[number].role == "assistant":
            raise InvalidValueError(f"turn {number} is an answer; edit a question")
        last = self.conversation.last
        self.conversation.back_to(turns[number].before)
        try:
            return self.send(text, role=turns[number].role, **options)
        except BaseException:
            self.conversation.back_to(last)
            raise

    def continue_answer(self, **options: Unpack[GenerationOptions]) -> Answer:
        """Continue the last answer, which was stopped or cut off, as if it had never ended.

        Its prompt, its tokens and its seed are the same; of one that `max_tokens` has cut off, as
        many more tokens may be written. Raises InvalidValueError if it is complete, its tokens are
        unknown or another model's, or chat template, thinking or its budget are not what they were.
        """
        self._end_answer()
        turn = self._last_turn()
        require_unfinished(turn, self._slot.target.model.vocabulary_fingerprint)
        return self._ask(options, turn)

    def stop(self) -> None:
        """Ask the running answer to end within one step; may be called from any thread."""
        answer = self._answer
        if answer:
            answer.stop()

    # Changing.

    def choose(self, turn: Turn) -> None:
        """Continue the branch of this turn; see `Conversation.choose`."""
        self._end_answer()
        self.conversation.choose(turn)

    def reset(self, conversation: Conversation | None = None) -> None:
        """Start an empty conversation, or continue another one."""
        self._end_answer()
        self.conversation = conversation or Conversation()
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

    def close(self) -> None:
        """End the running answer and give the KV caches back to the engine."""
        if self._closed:
            return
        if self._answer:
            self._answer.close()
        if self._give_back_slot.detach():
            self.engine.leave(self._slot)
        self._closed = True

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
        if self._closed:
            raise LocalspecError("this session was closed; open another")
        self._slot.require_open()
        if self._answer:
            self._answer.close()

    def _last_turn(self) -> Turn:
        if self.conversation.last is None:
            raise InvalidValueError("there is no message yet; send one first")
        return self.conversation.last

    def _ask(self, options: GenerationOptions, unfinished: Turn | None = None) -> Answer:
        # The lock keeps the model loaded.
        with self.engine.lock:
            self.engine.fit_threads()
            settings, n_ctx = self._settings(options, unfinished)
            tags = tags_for(self._transcript.template)
            self._answer = Answer(
                self._slot,
                self.conversation,
                self._prompt(n_ctx, settings, tags, unfinished),
                settings,
                tags,
                shorten=lambda: self._shorter_prompt(n_ctx),
                late_notices=self._notices,
                thinking_budget=self.thinking_budget,
                variant=self._last_turn().next_variant,
                unfinished=unfinished,
            )
        return self._answer

    def _settings(
        self, options: GenerationOptions, unfinished: Turn | None
    ) -> tuple[GenerationConfig, int]:
        """The settings of the next answer, and the context size in tokens with them."""
        given = concrete({"logprobs": False, **self._options, **options})
        n_ctx = self._slot.set_pass_width(config_of(given))
        if given.get("max_tokens") is None:
            given["max_tokens"] = n_ctx
        settings = config_of(given)
        if unfinished:
            settings = settings_of_rest(settings, unfinished)
        elif given.get("seed") is not None:
            # With the same seed, a variant would have the same text as the first answer.
            variant = self._last_turn().next_variant
            settings = replace(settings, seed=(settings.seed + variant) % 2**64)
        return settings, n_ctx

    def _prompt(
        self, n_ctx: int, settings: GenerationConfig, tags: Tags, unfinished: Turn | None
    ) -> AnswerPrompt:
        """The prompt of the next answer; if too long, without the oldest turns (`drop`)."""
        before, turns = self._dropped, self.turns
        window = Window(before, self._prompt_from(turns, before))
        if self.when_full == "drop":
            reserved = 1 if unfinished else min(settings.max_tokens, int(n_ctx * _ANSWER_SHARE))
            if len(window.prompt.tokens) + reserved > n_ctx:
                window = self._drop_oldest(n_ctx) or window
        if len(window.prompt.tokens) >= n_ctx:
            raise self._too_long_error(n_ctx, unfinished)
        prompt, seen = window.prompt, turns[window.first :]
        if unfinished:
            prompt, seen = without_answer(prompt, unfinished.written), seen[:-1]
        thinking = bool(self._transcript.template) and opens_thinking(prompt.text, tags)
        if unfinished:
            require_same_settings(unfinished, self._transcript, thinking, self.thinking_budget)
        self._first_seen = seen[0]
        return AnswerPrompt(
            prompt.tokens,
            dropped=window.first,
            newly_dropped=window.first != before,
            notices=self._notices(),
            thinking=thinking,
            switch=self._transcript.switch,
            template=self._transcript.template_fingerprint,
            wording=self._transcript.wording(self.system, seen),
        )

    def _shorter_prompt(self, n_ctx: int) -> AnswerPrompt | None:
        """The prompt to continue with when an answer has filled the context."""
        window = self._drop_oldest(n_ctx) if self.when_full == "drop" else None
        if window is None or len(window.prompt.tokens) >= n_ctx:
            return None
        self._first_seen = self.turns[window.first]
        # The last turn is the answer so far, which each drafter reads as it was written.
        return AnswerPrompt(
            window.prompt.tokens,
            dropped=window.first,
            newly_dropped=True,
            wording=self._transcript.wording(self.system, self.turns[window.first : -1]),
        )

    def _drop_oldest(self, n_ctx: int) -> Window | None:
        turns = self.turns
        return drop_oldest(
            turns, self._dropped, n_ctx, lambda first: self._prompt_from(turns, first)
        )

    @property
    def _dropped(self) -> int:
        """The number of oldest turns of the branch that the model does not see."""
        return self.turns.index(self._first_seen) if self._first_seen in self.turns else 0

    def _prompt_from(self, turns: Sequence[Turn], first: int) -> TokenizedText:
        """The turns from number `first` on, rendered and tokenized."""
        return self._transcript.prompt(self.system, turns[first:])

    def _notices(self) -> Sequence[str]:
        """What the user was not told yet: merged turns, and what changed about the models."""
        merged, loaded = self._transcript.merged, self._slot.loaded
        failures = self.engine.device_failures
        lines = (loaded.apart, loaded.threads_note, loaded.drafters.lost, failures)
        notices = [line for line in (_MERGE_NOTICE if merged else None, *lines) if line]
        new = [line for line in notices if line not in self._noted]
        self._noted.update(new)
        return new

    def _too_long_error(self, n_ctx: int, unfinished: Turn | None) -> InvalidValueError:
        return too_long_error(
            len(self._prompt_from(self.turns, last_question(self.turns)).tokens),
            len(self._prompt_from(self.turns, self._dropped).tokens),
            n_ctx,
            drops=self.when_full == "drop",
            continues=unfinished is not None,
        )
