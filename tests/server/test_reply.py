"""Replies: what a text becomes on its way to a protocol, without a model."""

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.conversation.reasoning import THINK
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.generation import Token
from localspec.server.openai_parts import finish_reason
from localspec.server.options import TextSettings
from localspec.server.reply import Delta, Reply
from localspec.server.text_request import TextRequest
from localspec.server.tool_calls import Family, Tool, parser_for
from localspec.server.tool_calls.families import HARMONY, HERMES, LLAMA, PYTHONIC
from localspec.stats import Stats


class Model:
    """A vocabulary of texts; those of `control` are control tokens."""

    def __init__(self, texts: Sequence[str], control: Sequence[str] = ()) -> None:
        self._texts, self._control = texts, control

    def piece(self, token: int) -> bytes:
        text = self._texts[token]
        return b"" if text in self._control else text.encode()

    def piece_text(self, token: int) -> str:
        return self._texts[token]

    def ends_generation(self, _token: int) -> bool:
        return False


class Running:
    """A generation of all tokens of a vocabulary, one after the other."""

    sampler_state = None

    def __init__(self, model: Model, count: int, stop: Sequence[str], ends: Any) -> None:
        self.stats, self.stop_reason, self.tokens = Stats(), None, list[Token]()
        self._model, self._count, self._detokenizer = model, count, Detokenizer(stop)
        self._ends = ends

    def commit_at_most(self, _most: object) -> None:
        pass

    def reading(self) -> Any:
        return iter(())

    def close(self) -> None:
        self.stop_reason = self.stop_reason or "cancelled"

    def __iter__(self) -> Any:
        for token in range(self._count):
            text = self._detokenizer.push(self._model.piece(token))
            last = token == self._count - 1 or self._detokenizer.stopped
            if last:
                self.stop_reason = "stop" if self._detokenizer.stopped else self._ends
                text += self._detokenizer.flush()
            self.tokens.append(Token(text, token, "plain", None))
            yield self.tokens[-1]
            if last:
                return


def replied(
    texts: Sequence[str],
    *,
    control: Sequence[str] = (),
    stop: Sequence[str] = (),
    ends: str = "length",
    **asked: Any,
) -> tuple[Reply, list[Delta]]:
    """A reply whose model writes these tokens, and its deltas. ends: why it ends."""
    model = Model(texts, control)
    slot: Any = SimpleNamespace(
        lock=nullcontext(),
        target=SimpleNamespace(model=model, n_ctx=100),
        start=lambda _tokens, settings, **_: Running(model, len(texts), settings.stop, ends),
    )
    settings = TextSettings(stop=tuple(stop))
    reply = Reply(slot, TextRequest((1,), settings, **asked), lambda: False)

    async def read() -> list[Delta]:
        async with reply.deltas() as deltas:
            return [delta async for delta in deltas]

    return reply, asyncio.run(read())


def said(deltas: Sequence[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


CALL = ['<tool_call>{"name": "f", "arguments": {}}', "</tool_call>", "\n"]
TOOLS: dict[str, Any] = {
    "tool_calls": lambda: parser_for(HERMES, [Tool("f")]),
    "marks": HERMES.marks,
}


def test_marks_that_are_control_tokens_are_read() -> None:
    tokens = ["<think>", "why", "</think>", "so", "<|end|>"]
    _, deltas = replied(tokens, control=[tokens[0], tokens[2], tokens[4]], tags=THINK)
    assert "".join(delta.thought for delta in deltas) == "why"
    assert said(deltas) == "so"


def test_a_mark_that_may_begin_a_stop_string_is_said_once() -> None:
    """Its text is held back and comes with the next token."""
    tokens = ["a", "<tool_call>", " is a tag"]
    _, deltas = replied(tokens, stop=["<tool_call>\n\n"], **TOOLS)
    assert said(deltas) == "a<tool_call> is a tag"


def test_a_text_ends_with_its_first_call_where_one_is_allowed() -> None:
    reply, deltas = replied([*CALL, *CALL, "rest"], one_call=True, **TOOLS)
    events = [event for delta in deltas for event in delta.events]
    assert [type(event).__name__ for event in events] == ["CallBegun", "Arguments", "CallEnded"]
    assert reply.stop_reason == "eos"
    several, deltas = replied([*CALL, *CALL, "rest"], **TOOLS)
    events = [event for delta in deltas for event in delta.events]
    assert sum(type(event).__name__ == "CallEnded" for event in events) == 2
    assert said(deltas).strip() == "rest"
    assert several.stop_reason == "length"


def test_half_a_call_is_none() -> None:
    """Neither where a limit cuts it off nor where it breaks; the text goes on behind it."""
    half = '<tool_call>{"name": "f", "arguments": {"a": '
    for ends, reason in (("length", "length"), ("eos", "stop")):
        reply, deltas = replied([half, "?", "rest"], one_call=True, ends=ends, **TOOLS)
        assert said(deltas) == "?rest"
        assert finish_reason(reply) == reason and not reply.has_called
    called, _ = replied(CALL, one_call=True, **TOOLS)
    assert finish_reason(called) == "tool_calls"


REASONED: dict[str, Any] = {**TOOLS, "tags": THINK, "thinking": True}


def test_a_call_within_reasoning_that_is_never_closed() -> None:
    """Some models forget the closing tag before a call; the agent would stop there."""
    reply, deltas = replied(["I look.", *CALL], ends="eos", **REASONED)
    assert "".join(delta.thought for delta in deltas) == "I look."
    events = [event for delta in deltas for event in delta.events]
    assert [type(event).__name__ for event in events[1:]] == ["CallBegun", "Arguments", "CallEnded"]
    _, deltas = replied(["I look.", *CALL, *CALL], ends="eos", one_call=True, **REASONED)
    events = [event for delta in deltas for event in delta.events]
    assert sum(type(event).__name__ == "CallEnded" for event in events) == 1
    assert reply.thinking_budget.used > 0


def test_a_call_that_is_only_thought_of() -> None:
    for rest, ends in ((["</think>", "No."], "eos"), (["No."], "eos"), ([], "length")):
        _, deltas = replied(["I look.", *CALL, *rest], ends=ends, **REASONED)
        thought = "".join(["I look.", *CALL]).rstrip("\n")
        assert "".join(delta.thought for delta in deltas).startswith(thought)
        events = [event for delta in deltas for event in delta.events]
        assert {type(event).__name__ for event in events} <= {"Reasoning", "Text"}
        assert said(deltas) == ("No." if len(rest) > 1 else "")


def test_a_text_in_a_channel_goes_on() -> None:
    tokens = ["went", "<|end|>"]
    channels: dict[str, Any] = {
        "tool_calls": lambda: parser_for(HARMONY, []),
        "control": tokens[1:],
    }
    marks = HARMONY.marks
    for channel, thought in (("final", ""), ("analysis", "went")):
        given = {"continued": "I ", "channel": f"<|channel|>{channel}<|message|>"}
        _, deltas = replied(tokens, tags=THINK, marks=marks, **given, **channels)
        assert "".join(delta.thought for delta in deltas) == thought
        assert said(deltas) == ("went" if not thought else "")


def test_reasoning_goes_on_with_its_own_newlines() -> None:
    tokens = ["\nm", "</think>", "yes"]
    for continued, thought in (("h", "\nm"), ("", "m"), (" ", "m")):
        _, deltas = replied(tokens, tags=THINK, thinking=True, continued=continued)
        assert "".join(delta.thought for delta in deltas) == thought
        assert said(deltas) == "yes"


def test_a_call_may_follow_a_text_that_goes_on() -> None:
    _, deltas = replied([" ", *CALL[:2]], continued="I look.", **TOOLS)
    assert [type(event).__name__ for delta in deltas for event in delta.events] == [
        *("Text", "CallBegun", "Arguments", "CallEnded")
    ]


@pytest.mark.parametrize(
    ("family", "call", "marked"),
    [
        (LLAMA, '{"name": "f", "parameters": {}}', "<|python_tag|>%s"),
        (PYTHONIC, "[f()]", "```tool_code\n%s\n```"),
    ],
    ids=["llama", "pythonic"],
)
def test_a_call_without_a_mark_stands_at_the_beginning(
    family: Family, call: str, marked: str
) -> None:
    """Behind a text that goes on it is text; behind reasoning the answer begins."""

    def calls(text: str, **asked: Any) -> int:
        tools = {"tool_calls": lambda: parser_for(family, [Tool("f")])}
        _, deltas = replied([text], **tools, **asked)
        events = [event for delta in deltas for event in delta.events]
        called = sum(type(event).__name__ == "CallBegun" for event in events)
        assert said(deltas).strip() == ("" if called else call)
        return called

    assert calls(call) == calls(call, continued="\n") == 1
    assert calls(f"</think>{call}", tags=THINK, thinking=True, continued="hm") == 1
    for continued in ("Here is the JSON:\n", "{", "[", "```"):
        assert calls(call, continued=continued) == 0
        assert calls(marked % call, continued=continued) == 1


def test_two_calls_in_one_token_are_one_where_one_is_allowed() -> None:
    _, deltas = replied(["".join([*CALL, *CALL])], one_call=True, **TOOLS)
    events = [event for delta in deltas for event in delta.events]
    assert [type(event).__name__ for event in events] == ["CallBegun", "Arguments", "CallEnded"]
