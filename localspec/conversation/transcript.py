"""Transcript: from what was said to the tokens a target sees.

A template may change anything earlier when a turn is added, so the whole conversation is rendered
each time, and only what reads as before keeps its tokens: above all answers, whose own tokens are
in the caches and need not be those a tokenizer would choose. The tokens depend on the turns alone,
not on how they came about; so a conversation opened again finds what was cached of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from localspec.conversation.turns import NOTHING, Turn, Written
from localspec.engine.prompt import special_texts, template_tokens, text_tokens
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import Message, mentions, render
from localspec.llama.model import Model

_THOUGHT = "reasoning_content"


class Transcript:
    """Turns in the words and tokens of one model.

    model: whose vocabulary. template: its chat template; without one, turns are joined as they are.
    tools: told to the template. options: further variables for it. began: the time it is told.

    merged: whether the template refused the turns as they are, and got consecutive ones of a role,
    or the system prompt and the first question, as one.
    """

    def __init__(
        self,
        model: Model,
        template: str | None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        began: datetime | None = None,
    ) -> None:
        self.merged = False
        self.model = model
        self.template = template
        self._tools = tools
        self._options = dict(options or {})
        self._began = began
        self._known: dict[tuple[str, str, str], tuple[Written, ...]] = {}
        self._takes_thoughts = template is not None and mentions(template, _THOUGHT)

    def prompt(self, system: str | None, turns: Sequence[Turn]) -> Written:
        """What is to be answered, or gone on with, if the last turn is an answer.

        Raises InvalidValueError where the template refuses these turns.
        """
        pieces = self._answered(system, turns)
        if not (turns and self._is_spelt(turns[-1])):
            pieces = self._spell(pieces, self._text(system, turns))
        texts, tokens = zip(*pieces, strict=True) if pieces else ((), ())
        return Written("".join(texts), tuple(chain.from_iterable(tokens)))

    def _answered(self, system: str | None, turns: Sequence[Turn]) -> tuple[Written, ...]:
        """All up to the last answer, as it was when that was written."""
        pieces: tuple[Written, ...] = ()
        for count, turn in enumerate(turns):
            if not self._is_spelt(turn):
                continue
            key = system or "", turns[0].key, turn.key
            if key not in self._known:
                try:
                    spelt = self._spell(pieces, self._text(system, turns[:count]))
                except InvalidValueError:
                    continue  # such turns cannot have led to an answer of this model
                pieces = (*spelt, turn.written)
                if turn.stop_reason is None:
                    continue  # it is still being written
                self._known[key] = pieces
            pieces = self._known[key]
        return pieces

    def _is_spelt(self, turn: Turn) -> bool:
        """Whether it is an answer whose tokens are those of this model."""
        return bool(turn.written.tokens) and turn.vocabulary == self.model.vocabulary_fingerprint

    def _spell(self, pieces: Iterable[Written], text: str) -> tuple[Written, ...]:
        """A text by the pieces it begins with, the rest tokenized."""
        kept: list[Written] = []
        at = 0
        for piece in pieces:
            whole = text.startswith(piece.text, at)
            if not whole:
                # Most templates strip what they are given.
                piece = self._stripped(piece)
            if whole or (piece.text and text.startswith(piece.text, at)):
                kept.append(piece)
                at += len(piece.text)
            if not whole:
                break
        if rest := text[at:]:
            kept.append(Written(rest, tuple(self._tokens(rest, after=bool(kept)))))
        return tuple(kept)

    def _stripped(self, piece: Written) -> Written:
        """Without the white space at its end, where that has tokens of its own."""
        text, tokens = piece.text.rstrip(), piece.tokens
        excess = len(piece.text.encode()) - len(text.encode())
        while tokens and excess > 0:
            excess -= len(self.model.piece(tokens[-1]))
            tokens = tokens[:-1]
        return Written(text, tokens) if not excess else NOTHING

    def _tokens(self, text: str, *, after: bool) -> list[int]:
        if after:
            return text_tokens(text, self.model.tokenize_after)
        if self.template is None:
            return text_tokens(text, self.model.tokenize)
        return template_tokens(text, self.model)

    def _text(self, system: str | None, turns: Sequence[Turn]) -> str:
        if self.template is None:
            contents = [turn.raw or turn.content for turn in turns]
            return "".join([system or "", *contents])
        messages = [self._message(turn) for turn in turns]
        first: list[Message] = [{"role": "system", "content": system}] if system else []
        ways = ([*first, *messages], _joined([*first, *messages]), _told_first(system, messages))
        refusal: InvalidValueError | None = None
        for number, way in enumerate(ways):
            try:
                text = self._render(way)
                self.merged = number > 0
                return text
            except InvalidValueError as error:
                refusal = refusal or error
        raise refusal or AssertionError

    def _render(self, messages: Sequence[Message]) -> str:
        bos, eos = special_texts(self.model)
        return render(
            self.template or "",
            messages,
            bos=bos,
            eos=eos,
            tools=self._tools,
            now=self._began,
            options=self._options,
        )

    def _message(self, turn: Turn) -> Message:
        if turn.role != "assistant":
            return {"role": turn.role, "content": turn.content}
        if not self._takes_thoughts:
            return {"role": turn.role, "content": turn.raw or turn.content}
        thought = {_THOUGHT: turn.thought} if turn.thought else {}
        return {"role": turn.role, "content": turn.content, **thought}


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Consecutive messages of one role as one."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            before = joined.pop()
            message = {**before, "content": f"{before['content']}\n\n{message['content']}"}
        joined.append(message)
    return joined


def _told_first(system: str | None, messages: Sequence[Message]) -> list[Message]:
    """The system prompt as what the user says first."""
    first: list[Message] = [{"role": "user", "content": system}] if system else []
    return _joined([*first, *messages])
