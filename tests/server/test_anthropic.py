"""Messages, by Anthropic's own client and in the shape that Claude Code sends."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import jsonschema
import pytest
from anthropic import Anthropic
from anthropic.types import Message, RawMessageStreamEvent
from fakes.served import Served
from pydantic import TypeAdapter

from localspec.engine.engine import Engine
from localspec.server import anthropic_input, anthropic_messages
from localspec.server.anthropic_messages import _Blocks
from localspec.server.fields import Fields
from localspec.server.options import TextSettings
from localspec.server.text_request import TextRequest
from localspec.server.tool_calls import Arguments, CallBegun, Text
from localspec.stats import Stats

MODEL = "terminal-9m-q8_0"
# The client has no such argument any more, and sends what it is told to.
GREEDY = {"temperature": 0}
QUESTION = [{"role": "user", "content": "How do I list files by size?"}]


def ask(claude: Anthropic, **options: Any) -> Any:
    usual = {"model": MODEL, "messages": QUESTION, "max_tokens": 200, "extra_body": GREEDY}
    return claude.messages.create(**{**usual, **options})


def test_the_text_is_that_of_the_engine(claude: Anthropic, alone: Engine) -> None:
    expected = alone.generate(QUESTION, max_tokens=200, temperature=0)
    answer = ask(claude)
    (block,) = answer.content
    assert (block.type, block.text) == ("text", expected.text)
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)
    assert answer.usage.output_tokens == len(expected.token_ids)
    read = answer.usage.input_tokens + answer.usage.cache_read_input_tokens
    assert read == expected.stats.prompt_tokens
    with claude.messages.stream(
        model=MODEL, messages=QUESTION, max_tokens=200, extra_body=GREEDY
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert final.content[0].text == expected.text
    assert final.usage.output_tokens == len(expected.token_ids)
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    for kind in ("content_block_start", "content_block_stop", "message_delta"):
        assert kinds.count(kind) == 1


TEXTS: Any = [{"type": "text", "text": "one two"}, {"type": "text", "text": "three"}]
READ = {
    "search result": {"type": "search_result", "title": "t", "source": "s", "content": TEXTS},
    "blocks": {"type": "document", "source": {"type": "content", "content": TEXTS}},
    "content": {"type": "document", "source": {"type": "content", "content": "one two\nthree"}},
    "text": {"type": "document", "source": {"type": "text", "data": "one two\nthree"}},
}


@pytest.mark.parametrize("name", READ)
def test_the_text_of_documents_and_search_results_is_read(claude: Anthropic, name: str) -> None:
    """In the last message, in an earlier one, and as what a tool gave back."""
    written = "t\ns\none two\nthree" if name == "search result" else "one two\nthree"

    def tokens(block: Any) -> list[int]:
        call = {"type": "tool_use", "id": "t", "name": "search", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
        said = {"role": "user", "content": [block, *TEXTS]}
        called: list[Any] = [{"role": "assistant", "content": [call]}]
        histories: list[Any] = [[said], [said, *called, {"role": "user", "content": [result]}]]
        counted = [claude.messages.count_tokens(model=MODEL, messages=each) for each in histories]
        return [each.input_tokens for each in counted]

    assert tokens(READ[name]) == tokens({"type": "text", "text": written})


def test_a_picture_in_a_document_is_named_in_its_place(claude: Anthropic) -> None:
    picture = {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}}
    source = {"type": "content", "content": [*TEXTS, picture]}
    document = {"type": "document", "title": "t", "source": source}
    named = "t\none two\nthree\n[image left out: this model reads text only]"
    counted = []
    for block in (document, {"type": "text", "text": named}):
        result: Any = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
        call: Any = {"type": "tool_use", "id": "t", "name": "search", "input": {}}
        messages: Any = [
            *QUESTION,
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [result]},
        ]
        counted.append(claude.messages.count_tokens(model=MODEL, messages=messages).input_tokens)
    assert counted[0] == counted[1]


def test_stop_sequences_and_length(claude: Anthropic) -> None:
    whole = ask(claude).content[0].text
    cut = ask(claude, stop_sequences=["zzz", "```", "``"])
    assert cut.content[0].text == whole.partition("``")[0]
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", "``")
    assert ask(claude, max_tokens=2).stop_reason == "max_tokens"


def test_tokens_are_counted(claude: Anthropic, alone: Engine) -> None:
    counted = claude.messages.count_tokens(model=MODEL, messages=QUESTION)
    expected = alone.generate(QUESTION, max_tokens=1).stats.prompt_tokens
    assert counted.input_tokens == expected
    # Also of what does not fit: a client counts to know when it must shorten a conversation.
    long = [{"role": "user", "content": "word " * 2000}]
    assert claude.messages.count_tokens(model=MODEL, messages=long).input_tokens > 2000


def test_the_model_is_listed(claude: Anthropic) -> None:
    (model,) = claude.models.list()
    assert (model.id, model.display_name, model.lifecycle) == (MODEL, MODEL, "active")
    assert model.created_at.year > 2000


def test_an_answer_of_json(claude: Anthropic) -> None:
    schema = {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"]}
    wanted: Any = {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}
    answer = ask(claude, output_config=wanted)
    jsonschema.validate(json.loads(answer.content[0].text), schema)


def test_a_stream_that_ends_before_its_first_token_has_a_beginning() -> None:
    """As where the server ends while a long prompt is read."""

    class Nothing:
        stop_reason, stop_string, stats = None, None, Stats()
        origins, number, budget_spent, not_used = set[str](), 0, False, ()
        thinking_budget = SimpleNamespace(used=0)
        asked = SimpleNamespace(settings=TextSettings())

        @asynccontextmanager
        async def deltas(self) -> Any:
            async def none() -> Any:
                for _ in ():
                    yield

            yield none()

    @asynccontextmanager
    async def reply(_asked: Any) -> Any:
        yield Nothing()

    async def chat(*_given: Any, **_options: Any) -> TextRequest:
        return TextRequest((), TextSettings())

    service: Any = SimpleNamespace(
        name=MODEL, require_model=lambda _: None,
        template_options={},
        engine=SimpleNamespace(context=512, model=SimpleNamespace(projector=None)),
        settings_of=lambda *_body, **_given: TextSettings(), reply=reply,
        inputs=SimpleNamespace(chat=chat),
    )  # fmt: skip
    request = anthropic_input.read(Fields({"messages": QUESTION, "max_tokens": 4}), service)

    async def read() -> list[str]:
        return [line async for line in anthropic_messages.events(request, service)]

    kinds = [line.partition("\n")[0].removeprefix("event: ") for line in asyncio.run(read())]
    assert kinds == ["message_start", "message_delta", "message_stop"]


def test_each_event_has_its_declared_type(served: Served) -> None:
    """The client itself takes anything; its types say what it may rely on."""
    event, whole = TypeAdapter(RawMessageStreamEvent), TypeAdapter(Message)
    tool = {"name": "f", "input_schema": {"type": "object"}}
    for more in ({}, {"tools": [tool], "tool_choice": {"type": "any"}}):
        body = {"model": MODEL, "messages": QUESTION, "max_tokens": 60, **more}
        lines = served.post("/v1/messages", {**body, "stream": True}).text.splitlines()
        for line in lines:
            if line.startswith("data: "):
                event.validate_json(line.removeprefix("data: "))
        whole.validate_json(served.post("/v1/messages", body).content)


def test_the_shape_of_claude_code(claude: Anthropic, served: Served) -> None:
    """Its billing block changes with each request; the prompt behind it is found all the same."""

    def system(number: int) -> list[dict[str, Any]]:
        billing = f"x-anthropic-billing-header: cc_version=2.1; cch={number:05x}"
        told = "You answer questions about the terminal, in one line each, and nothing else."
        cached = {"type": "text", "text": told, "cache_control": {"type": "ephemeral"}}
        return [{"type": "text", "text": billing}, cached]

    history: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "list files"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "I look.", "signature": "x"},
            {"type": "tool_use", "id": "toolu_1", "name": "ls", "input": {"path": "."}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [
                {"type": "text", "text": "a.txt"}]},
            {"type": "text", "text": "and now?"}]},
    ]  # fmt: skip
    first = ask(claude, system=system(1), messages=history, metadata={"user_id": "u"})
    again = ask(claude, system=system(2), messages=history)
    assert first.content == again.content
    assert again.usage.input_tokens == 1
    assert again.usage.cache_read_input_tokens > 20
    assert any("billing" in line for line in served.lines)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"model": "claude-9"}, 404, "ask for terminal-9m-q8_0"),
        ({"max_tokens": None}, 400, "max_tokens is missing"),
        ({"messages": []}, 400, "messages is empty"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "is 'image'"),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, 400, "tokens > 1023 maximum"),
        ({"mcp_servers": [{"name": "x"}]}, 400, "mcp_servers is"),
        ({"output_config": {"format": {"type": "xml"}}}, 400, "output_config.format.type is 'xml'"),
    ],
    ids=["model", "length", "none", "image", "long", "mcp", "format"],
)
def test_errors_have_its_shape(
    served: Served, changed: dict[str, Any], status: int, said: str
) -> None:
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 4, **changed}
    answer = served.post("/v1/messages", body)
    assert answer.status_code == status
    error = answer.json()
    assert error["type"] == "error"
    assert error["error"]["type"] in ("invalid_request_error", "not_found_error")
    assert said in error["error"]["message"]


def test_the_client_raises_its_own_errors(claude: Anthropic, served: Served) -> None:
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, model="claude-9")
    answer = httpx.get(f"{served.url}/v1/messages")
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"path": "."}', {"path": "."}),
        ("", {}),
        ("{", {"INVALID_JSON": "{"}),
        ('{"path": "/tm', {"INVALID_JSON": '{"path": "/tm'}),
    ],
)
def test_a_call_that_is_cut_off_is_no_whole_one(written: str, read: Any) -> None:
    blocks = _Blocks(continues=False)
    for event in (CallBegun(0, "ls"), Arguments(0, written)):
        _ = [*blocks.add(event)]
    _ = [*blocks.end()]
    [block] = blocks.blocks
    assert (block["type"], block["input"]) == ("tool_use", read)


@pytest.mark.parametrize("continues", [True, False])
def test_spaces_in_front_are_a_part_of_a_text_that_goes_on(continues: bool) -> None:
    blocks = _Blocks(continues=continues)
    for text in ("\n", "    ", "return 1"):
        _ = [*blocks.add(Text(text))]
    [block] = blocks.blocks
    assert block["text"] == ("\n    return 1" if continues else "return 1")
