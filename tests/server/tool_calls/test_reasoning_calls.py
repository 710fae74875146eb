"""Calls at the end of reasoning that is never closed; all other text stays reasoning."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.server.tool_calls import (
    Arguments,
    CallBegun,
    Event,
    Family,
    ReasoningCalls,
    Tool,
    families,
    joined,
    parser_for,
)

TOOLS = [Tool("f", {"type": "object", "properties": {"x": {"type": "string"}}})]
HERMES_CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "1"}}\n</tool_call>'
QWEN_CALL = "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>"
each_family = pytest.mark.parametrize(
    ("family", "call"),
    [(families.HERMES, HERMES_CALL), (families.QWEN_XML, QWEN_CALL)],
    ids=["hermes", "qwen"],
)


def read(family: Family, *pieces: str) -> tuple[str, list[Event]]:
    """The reasoning and the calls of an answer that never closes its reasoning."""
    calls = ReasoningCalls(parser_for(family, TOOLS))
    given = "".join(map(calls.push, pieces))
    rest, events = calls.finish()
    return given + rest, joined(events)


def names(events: list[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, CallBegun)]


@each_family
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_calls_at_the_end_count(family: Family, call: str, size: int) -> None:
    for text in (f"I look.\n{call}", f"I look.\n{call}\n{call}\n"):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        thought, events = read(family, *pieces)
        assert thought == "I look.\n"
        assert names(events) == ["f"] * text.count("<tool_call>")
        arguments = [json.loads(event.json) for event in events if isinstance(event, Arguments)]
        assert arguments[0] == {"x": "1"}


@each_family
def test_calls_that_count_have_numbers_from_0(family: Family, call: str) -> None:
    """Whatever was only thought of before."""
    thought, events = read(family, f"{call} hmm, no.\n{call}\n{call}")
    assert thought.endswith("hmm, no.\n")
    begun = [event.index for event in events if isinstance(event, CallBegun)]
    assert begun == [0, 1]
    assert {event.index for event in events if isinstance(event, Arguments)} == {0, 1}


@each_family
def test_what_is_no_call_at_the_end_stays_reasoning(family: Family, call: str) -> None:
    for text in (
        "I look.",
        "a <tool_call> is a mark",
        f"I could write {call}, but no.",
        f"{call} or {call}?",
        call.replace("f", "g"),
        f"Hm {call[:-40]}",
        f"Hm {call} <tool",
    ):
        for pieces in ([text], list(text)):
            assert read(family, *pieces) == (text, [])


def test_reasoning_that_is_closed_calls_nothing() -> None:
    calls = ReasoningCalls(parser_for(families.HERMES, TOOLS))
    assert calls.push(f"a {HERMES_CALL}") + calls.close() == f"a {HERMES_CALL}"


MARKS = ["<tool_call>", "</tool_call>", "<", "}"]
PARTS = [HERMES_CALL, HERMES_CALL[:30], *MARKS, "a", " ", "\n"]


@given(parts=st.lists(st.sampled_from(PARTS), max_size=8), size=st.integers(1, 40))
def test_no_character_is_lost_or_said_twice(parts: list[str], size: int) -> None:
    text = "".join(parts)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    thought, events = read(families.HERMES, *pieces)
    assert (thought, events) == read(families.HERMES, text)
    assert text.startswith(thought)
    assert bool(events) == (thought != text)
    calls = ReasoningCalls(parser_for(families.HERMES, TOOLS))
    assert "".join(map(calls.push, pieces)) + calls.close() == text
