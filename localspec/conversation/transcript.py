"""Transcript: the turns of a conversation as the prompt of one model.

A chat template may render earlier turns differently once a turn is added, so each prompt renders
the whole conversation again. Stretches whose text has not changed keep their tokens. This matters
most for answers: their generated tokens are in the KV cache, and a tokenizer might choose others
for the same text. The tokens depend only on the turns, not on the order of edits, so a conversation
that is opened again matches its saved cache.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from localspec.conversation.media_spans import MediaSpan, replaced
from localspec.conversation.reasoning import tags_for
from localspec.conversation.thinking import thinking_switch
from localspec.conversation.turns import EMPTY, TokenizedText, Turn
from localspec.engine.media_marks import (
    mark_of,
    only_for_chats,
    read_media,
    reads,
    require_written,
)
from localspec.engine.prompt import Wording, template_tokens, text_tokens, written_for
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import Message, mentions
from localspec.llama.model import Model

_REASONING_KEY = "reasoning_content"


class Transcript:
    """Renders turns and tokenizes them for one model.

    model: the model that reads the prompt. template: its chat template; without one, the texts of
    the turns are joined. tools, options: variables for the template. began: the date and time that
    the template sees. rotations: how the model's are scaled, in words; "" as in its file.

    merged: whether the template refused the turns, so that consecutive turns of one role, or the
    system prompt and the first question, were merged. unread: a chip that stood in a prompt for an
    image or a sound which the model does not read; None if there was none. leaves_out: whether
    the template left out an image of an earlier message.
    """

    def __init__(
        self,
        model: Model,
        template: str | None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        began: datetime | None = None,
        rotations: str = "",
    ) -> None:
        self.merged = False
        self.unread: str | None = None
        self.leaves_out = False
        self._rotations = rotations
        self.model = model
        self.template = template
        self.tags = tags_for(template)
        self.tools = tools
        self.options = dict(options or {})
        self._began = began
        self._answered_prompts: dict[tuple[str, str, str, int], tuple[TokenizedText, ...]] = {}
        self._reads_reasoning = template is not None and mentions(template, _REASONING_KEY)

    @property
    def switch(self) -> bool | None:
        """Whether reasoning is switched on; None if it cannot be switched."""
        return thinking_switch(self.template, self.options)

    def fingerprint(self, turns: Iterable[Turn]) -> str:
        """Tells the template, rotations and adapters from others; also where there is none.

        It tells, too, which images of these turns are not read.
        """
        told = (self.template or "") + (f"\0{self._rotations}" if self._rotations else "")
        told += "".join(f"\0{json.dumps(each)}" for each in self.model.adapters)
        told += "".join(f"\0{span.key}" for turn in turns for span in self._unread(turn))
        return hashlib.sha256(told.encode("utf-8", "replace")).hexdigest()[:16]

    def require_reads(self, turn: Turn, before: Turn | None = None) -> None:
        """Raise InvalidValueError for a turn with an image or a sound that is not read.

        before: the turn that it replaces, which may have images that are not read.
        """
        known = {span.key for span in self._unread(before)} if before else ()
        for span in turn.media:
            if span.key in known:
                continue
            if self.template is None:
                raise InvalidValueError(only_for_chats(self.model))
            try:
                read_media(span.data, self.model)
            except InvalidValueError as error:
                raise InvalidValueError(f"{span.chip}: {error}") from error

    def prompt(self, system: str | None, turns: Sequence[Turn]) -> TokenizedText:
        """The prompt for the next answer; if the last turn is an answer, the prompt continues it.

        Raises InvalidValueError where the template refuses these turns.
        """
        pieces = self._up_to_last_answer(system, turns)
        if not (turns and self._is_answer_of_model(turns[-1])):
            pieces = self._tokenize_rest(pieces, self._text(system, turns))
        texts, tokens = zip(*pieces, strict=True) if pieces else ((), ())
        return TokenizedText("".join(texts), tuple(chain.from_iterable(tokens)))

    def wording(self, system: str | None, turns: Sequence[Turn]) -> Wording | None:
        """The turns in the chat templates of drafters; None where this model reads a raw text."""
        if self.template is None:
            return None

        def worded(model: Model) -> str | None:
            if not model.chat_template:
                return None
            own = Transcript(
                model,
                model.chat_template,
                tools=self.tools,
                options=self.options,
                began=self._began,
            )
            try:
                return own._text(system, turns)
            except InvalidValueError:
                return None

        return worded

    def _up_to_last_answer(
        self, system: str | None, turns: Sequence[Turn]
    ) -> tuple[TokenizedText, ...]:
        """The pieces of the prompt up to the last answer, with the tokens of its generation."""
        pieces: tuple[TokenizedText, ...] = ()
        for count, turn in enumerate(turns):
            if not self._is_answer_of_model(turn):
                continue
            # An answer that is continued gets longer.
            key = system or "", turns[0].key, turn.key, len(turn.written.tokens)
            if key not in self._answered_prompts:
                try:
                    prompt = self._tokenize_rest(pieces, self._text(system, turns[:count]))
                except InvalidValueError:
                    continue  # the template refuses these turns, so the answer is not this model's
                self._answered_prompts[key] = (*prompt, turn.written)
            pieces = self._answered_prompts[key]
        return pieces

    def _is_answer_of_model(self, turn: Turn) -> bool:
        """Whether the turn is an answer with tokens of this model's vocabulary."""
        return bool(turn.written.tokens) and turn.vocabulary == self.model.vocabulary_fingerprint

    def _tokenize_rest(
        self, pieces: Iterable[TokenizedText], text: str
    ) -> tuple[TokenizedText, ...]:
        """A text as known pieces, as far as it begins with them; the rest is tokenized."""
        kept: list[TokenizedText] = []
        at = 0
        for piece in pieces:
            whole = text.startswith(piece.text, at)
            if not whole:
                # Most templates strip the content of a message.
                piece = self._without_trailing_space(piece)
            if whole or (piece.text and text.startswith(piece.text, at)):
                kept.append(piece)
                at += len(piece.text)
            if not whole:
                break
        if rest := text[at:]:
            kept.append(TokenizedText(rest, tuple(self._tokens(rest, after=bool(kept)))))
        return tuple(kept)

    def _without_trailing_space(self, piece: TokenizedText) -> TokenizedText:
        """The piece without its trailing whitespace, if whole tokens spell that; else EMPTY."""
        text, tokens = piece.text.rstrip(), piece.tokens
        excess = len(piece.text.encode()) - len(text.encode())
        while tokens and excess > 0:
            excess -= len(self.model.piece(tokens[-1]))
            tokens = tokens[:-1]
        return TokenizedText(text, tokens) if not excess else EMPTY

    def _tokens(self, text: str, *, after: bool) -> list[int]:
        if self.template is None:
            model = self.model
            return text_tokens(text, model.tokenize_after if after else model.tokenize)
        return template_tokens(text, self.model, after=after)

    def _text(self, system: str | None, turns: Sequence[Turn]) -> str:
        unread = (span.chip for turn in turns for span in self._unread(turn))
        self.unread = next(unread, self.unread)
        if self.template is None:
            contents = [turn.raw or turn.content for turn in turns]
            return "".join([system or "", *contents])
        messages = [self._message(turn) for turn in turns]
        refusal: InvalidValueError | None = None
        for number, attempt in enumerate(arrangements(system, messages)):
            try:
                text = self._render(attempt)
                self.leaves_out = require_written(text, messages)
                self.merged = number > 0
                return text
            except InvalidValueError as error:
                refusal = refusal or error
        raise refusal or AssertionError

    def _render(self, messages: Sequence[Message]) -> str:
        template, rest = self.template or "", {"tools": self.tools, "now": self._began}
        return written_for(self.model, template, messages, options=self.options, **rest)

    def _message(self, turn: Turn) -> Message:
        if turn.role != "assistant":
            return {"role": turn.role, "content": self._content(turn)}
        if not self._reads_reasoning:
            return {"role": turn.role, "content": turn.raw or turn.content}
        thought = {_REASONING_KEY: turn.thought} if turn.thought else {}
        return {"role": turn.role, "content": turn.content, **thought}

    def _content(self, turn: Turn) -> str:
        """What the model reads of a turn: marks of images, and chips of those that it cannot."""
        unread = self._unread(turn)
        marks = (
            (span.start, span.end, mark_of(span.key, span.data))
            for span in turn.media
            if span not in unread
        )
        return replaced(turn.content, marks)

    def _unread(self, turn: Turn) -> Sequence[MediaSpan]:
        """The images and sounds of a turn that the model does not read."""
        if self.template is None:
            return turn.media
        return [span for span in turn.media if not reads(self.model, span.data)]


def arrangements(system: str | None, messages: Sequence[Message]) -> Sequence[Sequence[Message]]:
    """The messages behind a system prompt, in the ways that a template may take them."""
    first: list[Message] = [{"role": "system", "content": system}] if system else []
    return (
        [*first, *messages],
        _merged_roles([*first, *messages]),
        _system_as_user(system, messages),
    )


def _merged_roles(messages: Sequence[Message]) -> list[Message]:
    """The messages, consecutive ones of one role merged."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            before = joined.pop()
            message = {**before, "content": f"{before['content']}\n\n{message['content']}"}
        joined.append(message)
    return joined


def _system_as_user(system: str | None, messages: Sequence[Message]) -> list[Message]:
    """The messages, with the system prompt as a user message at the beginning."""
    first: list[Message] = [{"role": "user", "content": system}] if system else []
    return _merged_roles([*first, *messages])
