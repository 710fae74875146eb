"""Tools over the wire: calls that a request asks for, in each protocol."""

import json
import re
from typing import Any

import jsonschema
import pytest
from anthropic import Anthropic
from fakes.served import Served
from openai import OpenAI

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"mode": {"enum": ["r", "w"]}, "size": {"enum": [1, 2]}},
    "required": ["mode"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "open_file", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "close_file"}},
]
OPEN_FILE: Any = {"type": "function", "function": {"name": "open_file"}}
QUESTION: Any = [{"role": "user", "content": "Open the file."}]


def test_a_call_that_is_required(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="localspec", messages=QUESTION, tools=TOOLS, tool_choice=OPEN_FILE, max_tokens=80
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.function.name == "open_file" and call.id
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    again = client.chat.completions.create(
        model="localspec",
        messages=[
            *QUESTION,
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "opened"},
        ],
        tools=TOOLS,
        max_tokens=4,
    )
    assert again.choices[0].message.content


def test_a_call_in_a_stream(client: OpenAI) -> None:
    """The same call as in one piece."""
    settings: Any = {
        "model": "localspec",
        "messages": QUESTION,
        "tools": TOOLS,
        "tool_choice": OPEN_FILE,
        "max_tokens": 80,
        "seed": 3,
    }
    whole = client.chat.completions.create(**settings).choices[0].message.tool_calls[0]
    name, arguments = "", ""
    for chunk in client.chat.completions.create(**settings, stream=True):
        for choice in chunk.choices:
            assert choice.delta.content is None  # clients show an empty text
            parts = choice.delta.tool_calls or []
            assert len({part.index for part in parts}) == len(parts)
            for part in parts:
                assert part.index == 0 and part.function
                name += part.function.name or ""
                arguments += part.function.arguments or ""
    assert (name, arguments) == (whole.function.name, whole.function.arguments)


def test_an_answer_says_what_its_schema_is_not_held_to(served: Served, client: OpenAI) -> None:
    """As `uniqueItems`, with which pydantic writes a set; clients keep members that are new."""
    tags = {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2, "uniqueItems": True}
    schema = {"type": "object", "properties": {"tags": tags}, "required": ["tags"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    settings: Any = {"model": "localspec", "messages": QUESTION, "max_tokens": 80, "n": 2}
    raw = client.chat.completions.with_raw_response.create(**settings, response_format=wanted)
    assert raw.parse().localspec["not_enforced"] == ["answer: uniqueItems"]
    assert any("not enforced of a schema: answer: uniqueItems" in each for each in served.lines)
    called = {"function": {"name": "tag", "parameters": schema}, "type": "function"}
    asked = {**settings, "tools": [called, *TOOLS], "tool_choice": "required", "n": 1}
    *_, last = client.chat.completions.create(**asked, stream=True)
    assert last.localspec["not_enforced"] == ["calls of tag: uniqueItems"]
    free = client.chat.completions.create(**{**asked, "tool_choice": "auto", "max_tokens": 4})
    assert free.localspec["not_enforced"] == []


def test_a_pattern_that_no_grammar_can_follow_is_left_out_and_said(client: OpenAI) -> None:
    """As zod writes a duration; pydantic's of a Decimal is followed."""
    money = {"type": "string", "pattern": r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d{0,2}0*$", "maxLength": 9}
    lasts = {"type": "string", "pattern": r"^P(?!$)(\d+D)?(T(?=\d)\d+H)?$", "maxLength": 9}
    properties = {"total": money, "lasts": lasts}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    settings: Any = {"model": "localspec", "messages": QUESTION, "max_tokens": 250, "seed": 3}
    answer = client.chat.completions.create(**settings, response_format=wanted)
    left_out = f"pattern {lasts['pattern']}"
    assert answer.localspec["not_enforced"] == [f"answer: {left_out}"]
    total = json.loads(answer.choices[0].message.content or "")["total"]
    assert re.fullmatch(money["pattern"], total)
    called: Any = {"type": "function", "function": {"name": "pay", "parameters": schema}}
    asked = {**settings, "tools": [called], "tool_choice": "required"}
    answer = client.chat.completions.create(**asked)
    assert answer.localspec["not_enforced"] == [f"calls of pay: {left_out}"]
    offered = client.chat.completions.create(
        **{**asked, "tool_choice": "auto", "response_format": wanted}
    )
    assert offered.localspec["not_enforced"] == [f"answer: {left_out}", f"calls of pay: {left_out}"]


def test_a_call_of_the_messages_protocol(claude: Anthropic) -> None:
    answer = claude.messages.create(
        model="localspec",
        messages=QUESTION,
        tools=[{"name": "open_file", "input_schema": SCHEMA}],
        tool_choice={"type": "tool", "name": "open_file"},
        max_tokens=80,
    )
    (block,) = [block for block in answer.content if block.type == "tool_use"]
    assert answer.stop_reason == "tool_use" and block.name == "open_file"
    jsonschema.validate(block.input, SCHEMA)


ANSWER = {"type": "object", "properties": {"answer": {"const": 1}, "set": {"uniqueItems": True}}}


def test_a_required_call_beside_the_format_of_an_answer(client: OpenAI, claude: Anthropic) -> None:
    """As instructor sends them: the format says nothing of a call."""
    settings: Any = {"model": "localspec", "max_tokens": 80, "seed": 3}
    wanted = {"name": "x", "schema": ANSWER}
    chat = client.chat.completions.create(
        **settings,
        messages=QUESTION,
        tools=TOOLS,
        tool_choice=OPEN_FILE,
        response_format={"type": "json_schema", "json_schema": wanted},
    )
    (call,) = chat.choices[0].message.tool_calls
    jsonschema.validate(json.loads(call.function.arguments), SCHEMA)
    assert chat.localspec["not_enforced"] == []
    response = client.responses.create(
        model="localspec",
        input=QUESTION,
        max_output_tokens=80,
        tools=[{"type": "function", "name": "open_file", "parameters": SCHEMA}],
        tool_choice={"type": "function", "name": "open_file"},
        text={"format": {"type": "json_schema", **wanted}},
    )
    (item,) = response.output
    assert item.type == "function_call"
    jsonschema.validate(json.loads(item.arguments), SCHEMA)
    message = claude.messages.create(
        model="localspec",
        messages=QUESTION,
        max_tokens=80,
        tools=[{"name": "open_file", "input_schema": SCHEMA}],
        tool_choice={"type": "tool", "name": "open_file"},
        output_config={"format": {"type": "json_schema", "schema": ANSWER}},
    )
    (block,) = message.content
    assert block.type == "tool_use"
    jsonschema.validate(block.input, SCHEMA)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"grammar": 'root ::= "a"'}, "tool_choice asks for a call, and grammar"),
        (
            {
                "tools": [
                    {"function": {"name": "f", "parameters": {"type": "object", "$ref": "#/x"}}}
                ]
            },
            "the parameters of the tool f",
        ),
    ],
    ids=["grammar", "schema"],
)
def test_calls_that_cannot_be_required(served: Served, more: Any, message: str) -> None:
    body = {"messages": QUESTION, "tools": TOOLS, "tool_choice": "required", **more}
    answer = served.post("/v1/chat/completions", body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
