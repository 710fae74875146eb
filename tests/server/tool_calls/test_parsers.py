"""Calls in the answers of each family: whole, in pieces, broken, cut off, and only alike."""

import json
from collections.abc import Sequence

import pytest
from fakes.tool_answers import ANSWERS, TOOLS, Answer, Call, contents, parsed
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from localspec.errors import InvalidValueError
from localspec.server.tool_calls import Family, Text, Tool, by_name, parser_for
from localspec.server.tool_calls.families import FAMILIES, HARMONY, PLAIN

each_answer = pytest.mark.parametrize(
    "answer", ANSWERS, ids=[f"{answer.family.name}: {answer.name}" for answer in ANSWERS]
)
each_family = pytest.mark.parametrize("family", FAMILIES, ids=[f.name for f in FAMILIES])


@each_answer
def test_an_answer_at_once(answer: Answer) -> None:
    assert contents(parsed(answer.family, [answer.text])) == answer.holds


@each_answer
def test_an_answer_in_pieces(answer: Answer) -> None:
    """Cut anywhere, and into single characters, the events join to the same."""
    whole = parsed(answer.family, [answer.text])
    assert parsed(answer.family, answer.text) == whole
    for cut in range(len(answer.text) + 1):
        assert parsed(answer.family, [answer.text[:cut], answer.text[cut:]]) == whole, cut


@each_answer
def test_half_a_call_is_none(answer: Answer) -> None:
    """Where a limit of tokens cuts an answer off; clients may take no arguments for an empty {}."""
    whole = calls_in(answer.family, answer.text)
    for end in range(len(answer.text)):
        *calls, last = calls_in(answer.family, answer.text[:end]) or [None]
        assert calls == whole[: len(calls)]
        if last and not last.complete:
            assert last.arguments.startswith("{")
            with pytest.raises(ValueError):
                json.loads(last.arguments)
        elif last:
            assert last == whole[len(calls)]


def calls_in(family: Family, text: str) -> list[Call]:
    return [part for part in contents(parsed(family, [text])) if isinstance(part, Call)]


def test_every_family_has_answers() -> None:
    assert {answer.family for answer in ANSWERS} == {*FAMILIES} - {PLAIN}


def scraps(family: Family) -> list[str]:
    """Pieces of a family's answers: whole ones, halves, marks, and what is usual between."""
    texts = [answer.text for answer in ANSWERS if answer.family == family]
    halves = [half for text in texts for half in (text[: len(text) // 2], text[len(text) // 2 :])]
    usual = [*"<[{}]>\n \"',:;", "get_weather", "get_time", '{"city": "a"}', "null", "x", "é"]
    return [*texts, *halves, *family.marks, *usual]


@given(family=st.sampled_from(FAMILIES), data=st.data())
@settings(max_examples=400)
def test_the_same_however_it_is_cut(family: Family, data: st.DataObject) -> None:
    text = data.draw(st.lists(st.sampled_from(scraps(family)), max_size=6).map("".join))
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    assert parsed(family, pieces(text, places)) == parsed(family, [text])


def pieces(text: str, places: Sequence[int]) -> list[str]:
    ends = [*places, len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@given(family=st.sampled_from(FAMILIES), data=st.data())
def test_without_tools_all_is_text_at_once(family: Family, data: st.DataObject) -> None:
    """Only gpt-oss's channels are read even then."""
    assume(family != HARMONY)
    parts = data.draw(st.lists(st.sampled_from(scraps(family)), max_size=6))
    parser = parser_for(family, ())
    for part in parts:
        assert parser.push(part) == ([Text(part)] if part else [])
    assert parser.finish() == []


@given(family=st.sampled_from(FAMILIES), data=st.data())
def test_text_without_declared_names_is_text(family: Family, data: st.DataObject) -> None:
    """Marks and JSON alone are no calls: what is said is the text, byte for byte."""
    assume(family != HARMONY)
    text = data.draw(st.lists(st.sampled_from(scraps(family)), max_size=6).map("".join))
    assert parsed(family, text, [Tool("something.else")]) == ([Text(text)] if text else [])


@each_family
def test_text_is_not_held_back(family: Family) -> None:
    parser = parser_for(family, TOOLS)
    assert parser.push("Hello") == [Text("Hello")]
    assert parser.push(", you there. ") == [Text(", you there. ")]


def test_arguments_are_passed_on_as_they_come() -> None:
    parser = parser_for(PLAIN, TOOLS)
    parser.push('<tool_call>{"name": "get_weather", "arguments": ')
    assert [len(parser.push(piece)) for piece in ('{"ci', 'ty": "', "Par", "is")] == [2, 1, 1, 1]


def test_two_tools_of_one_name() -> None:
    with pytest.raises(InvalidValueError, match="two tools are named a"):
        by_name([Tool("a"), Tool("a")])


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (7, "a tool is 7; give"),
        ({"type": "web_search"}, "a tool is .*web_search"),
        ({"function": {}}, "a tool is named ''"),
        ({"function": {"name": "a b"}}, "a tool is named 'a b'; use 1 to 128 letters"),
        ({"function": {"name": ["a"]}}, "a tool is named"),
        ({"function": {"name": "a", "parameters": [1]}}, r"parameters of the tool a are \[1\]"),
    ],
    ids=["number", "search", "no name", "space", "list", "schema"],
)
def test_declarations_that_are_refused(declared: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        Tool.of(declared)


def test_hostile_answers_end() -> None:
    """Deep nesting is no call, or a broken one, and no error."""
    for family in FAMILIES:
        for bracket in "[{(":
            opening = family.marks[0] if family.marks else ""
            for text in (
                opening + bracket * 5000,
                f"{opening}call:get_weather{{near:" + bracket * 5000,
                f"[get_weather(near={bracket * 5000}",
                f'<tool_call>{{"name": "get", "arguments": {{"a": {bracket * 5000}',
            ):
                parsed(family, [text])
