"""What coding agents send and need, with a model whose template is strict and that reasons.

Each test is about something that some server answered wrongly.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import Anthropic
from fakes.served import Served, wait_for
from openai import OpenAI

# What the model is made to write.
SAID = {"grammar": 'root ::= "hm</think>yes"', "temperature": 0}
QUESTION: Any = [{"role": "user", "content": "ls"}]
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"mode": {"enum": ["r", "w"]}},
    "required": ["mode"],
    "additionalProperties": False,
}
FUNCTION = {"name": "open_file", "parameters": PARAMETERS}


@pytest.fixture
def openai(strict: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{strict.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic(strict: Served) -> Iterator[Anthropic]:
    with Anthropic(base_url=strict.url, api_key="none", max_retries=0) as client:
        yield client


def test_chat_tells_reasoning_from_the_answer(openai: OpenAI) -> None:
    settings: Any = {"model": "strict", "messages": QUESTION, "extra_body": SAID}
    message: Any = openai.chat.completions.create(**settings).choices[0].message
    assert (message.reasoning_content, message.content) == ("hm", "yes")
    deltas: list[Any] = [
        choice.delta
        for chunk in openai.chat.completions.create(stream=True, **settings)
        for choice in chunk.choices
    ]
    reasoning = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
    assert "".join(reasoning) == "hm"
    assert "".join(delta.content or "" for delta in deltas) == "yes"


def test_messages_tell_reasoning_from_the_answer(anthropic: Anthropic) -> None:
    settings: Any = {"model": "strict", "messages": QUESTION, "max_tokens": 50, "extra_body": SAID}
    settings["thinking"] = {"type": "adaptive"}
    blocks: list[Any] = [*anthropic.messages.create(**settings).content]
    assert [block.type for block in blocks] == ["thinking", "text"]
    assert (blocks[0].thinking, blocks[1].text) == ("hm", "yes")
    # Without a signature the AI SDK sends no thinking back.
    assert blocks[0].signature
    with anthropic.messages.stream(**settings) as stream:
        kinds = [event.delta.type for event in stream if event.type == "content_block_delta"]
        streamed: list[Any] = [*stream.get_final_message().content]
    assert {"thinking_delta", "signature_delta", "text_delta"} == {*kinds}
    assert kinds.count("signature_delta") == 1
    assert kinds.index("signature_delta") == kinds.index("text_delta") - 1
    assert (streamed[0].thinking, streamed[1].text) == ("hm", "yes")
    assert streamed[0].signature == blocks[0].signature


def test_messages_leave_out_the_text_of_reasoning_where_that_is_asked_for(
    anthropic: Anthropic,
) -> None:
    """The model finds it all the same in the request behind, as with the text."""
    settings: Any = {"model": "strict", "max_tokens": 50, "extra_body": SAID}
    answers: list[Any] = []
    for display in ("summarized", "omitted"):
        settings["thinking"] = {"type": "adaptive", "display": display}
        answers.append(anthropic.messages.create(messages=QUESTION, **settings).content)
    shown, omitted = answers
    assert [block.type for block in omitted] == ["thinking", "text"]
    assert (shown[0].thinking, omitted[0].thinking) == ("hm", "")
    with anthropic.messages.stream(messages=QUESTION, **settings) as stream:
        kinds = [event.delta.type for event in stream if event.type == "content_block_delta"]
        assert stream.get_final_message().content[0] == omitted[0]
    assert [kind for kind in kinds if kind != "text_delta"] == ["signature_delta"]
    counts = []
    for content in ([shown[1]], shown, omitted):
        history: Any = [*QUESTION, {"role": "assistant", "content": content}, *QUESTION]
        counted = anthropic.messages.count_tokens(model="strict", messages=history)
        counts.append(counted.input_tokens)
    assert counts[0] < counts[1] == counts[2]


def test_edits_of_a_conversation_are_told(strict: Served) -> None:
    """Claude Code asks for all thinking to be kept, which is always done."""
    kept = {"type": "clear_thinking_20251015", "keep": "all"}
    edits = [kept, {"type": "clear_tool_uses_20250919"}, {**kept, "keep": {"value": 1}}]
    body = {"messages": QUESTION, "max_tokens": 2, "context_management": {"edits": edits}}
    told = strict.post("/v1/messages", body).json()["localspec"]["not_used"]
    assert told == [
        "context_management.edits[1]: nothing is cleared here, clear_tool_uses_20250919 has no "
        "effect",
        "context_management.edits[2]: nothing is cleared here, clear_thinking_20251015 has no "
        "effect",
    ]


def test_messages_count_the_tokens_of_reasoning(strict: Served) -> None:
    """As chat completions do; clients show the number."""
    body = {"messages": QUESTION, "max_tokens": 50, **SAID}
    chat = strict.post("/v1/chat/completions", body).json()
    thoughts = chat["usage"]["completion_tokens_details"]["reasoning_tokens"]
    body |= {"thinking": {"type": "adaptive"}}
    usage = strict.post("/v1/messages", body).json()["usage"]
    assert usage["output_tokens_details"] == {"thinking_tokens": thoughts}
    assert usage["output_tokens"] > thoughts > 0
    lines = strict.post("/v1/messages", {**body, "stream": True}).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    [last] = [event["usage"] for event in events if event["type"] == "message_delta"]
    assert last["output_tokens_details"] == {"thinking_tokens": thoughts}


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({}, "text"),
        ({"thinking": {"type": "disabled"}}, "text"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"output_config": {"effort": "high"}}, "thinking"),
    ],
    ids=["nothing", "off", "on", "effort"],
)
def test_messages_think_where_that_is_asked_for(
    anthropic: Anthropic, asked: dict[str, Any], kind: str
) -> None:
    """Programs read `content[0].text`, and leave a title few tokens."""
    settings: Any = {"model": "strict", "messages": QUESTION, **asked}
    answer = anthropic.messages.create(max_tokens=50, extra_body=SAID, **settings)
    assert answer.content[0].type == kind
    counted = anthropic.messages.count_tokens(**settings).input_tokens
    assert counted == answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0)


def test_responses_tell_reasoning_from_the_answer(openai: OpenAI) -> None:
    settings: Any = {"model": "strict", "input": "ls", "extra_body": SAID}
    items: list[Any] = [*openai.responses.create(**settings).output]
    assert [item.type for item in items] == ["reasoning", "message"]
    assert items[0].content[0].text == "hm"
    assert items[1].content[0].text == "yes"
    events: list[Any] = [*openai.responses.create(stream=True, **settings)]
    deltas = [each.delta for each in events if each.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == "hm"


def test_reasoning_that_comes_back_is_given_to_the_template(strict: Served) -> None:
    history = [
        *QUESTION,
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
        {"role": "user", "content": "go on"},
    ]
    prompt = strict.post("/apply-template", {"messages": history}).json()["prompt"]
    assert "<s>a <think>hm</think>yes</s>" in prompt
    wanted = len(
        strict.post("/tokenize", {"content": prompt, "add_special": True}).json()["tokens"]
    )
    blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "yes"}]
    items = [
        *QUESTION,
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
        history[-1],
    ]
    messages = [QUESTION[0], {"role": "assistant", "content": blocks}, history[-1]]
    thinking = {"type": "adaptive"}
    counted = strict.post(
        "/v1/messages/count_tokens", {"messages": messages, "thinking": thinking}
    ).json()
    answer = strict.post("/v1/responses", {"input": items, "max_output_tokens": 1}).json()
    # BOS is written by the template too.
    assert {counted["input_tokens"], answer["usage"]["input_tokens"]} <= {wanted, wanted - 1}


def test_reasoning_may_be_named(openai: OpenAI) -> None:
    """As an item of an earlier answer, beside that of its text."""
    settings: Any = {"model": "strict", "extra_body": SAID}
    first = openai.responses.create(input=QUESTION, **settings)
    references: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
    usages = [
        openai.responses.create(input=items, **settings).usage
        for items in (
            [*QUESTION, *references, *QUESTION],
            [*QUESTION, *(item.model_dump() for item in first.output), *QUESTION],
            [*QUESTION, references[-1], *QUESTION],
        )
    ]
    named, whole, text = [usage.input_tokens for usage in usages if usage]
    assert text < named == whole


TWO_SYSTEMS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": "a"},
            {"role": "developer", "content": "b"},
            *QUESTION,
            {"role": "system", "content": "c"},
        ]
    },
    "/v1/responses": {
        "instructions": "a",
        "input": [{"role": "developer", "content": "b"}, *QUESTION],
    },
    "/v1/messages": {
        "max_tokens": 1,
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [*QUESTION, {"role": "system", "content": "c"}],
    },
}


@pytest.mark.parametrize("path", list(TWO_SYSTEMS))
def test_several_system_messages_are_no_error(strict: Served, path: str) -> None:
    limits = {"max_tokens": 1, "max_output_tokens": 16}
    answer = strict.post(path, {**limits, **TWO_SYSTEMS[path]})
    assert answer.status_code == 200, answer.text


def test_reminders_in_a_conversation_end_no_cache(anthropic: Anthropic) -> None:
    """Claude Code sends system messages in mid-conversation."""
    told = "You answer questions about the terminal, in one line each, and nothing else. " * 2
    first: list[Any] = [*QUESTION, {"role": "assistant", "content": "a.txt"}]
    reminder = {"role": "system", "content": "Today is another day."}
    settings: Any = {"model": "strict", "system": told, "max_tokens": 1}
    anthropic.messages.create(messages=[*first, *QUESTION], **settings)
    again = anthropic.messages.create(messages=[*first, reminder, *QUESTION], **settings)
    assert (again.usage.cache_read_input_tokens or 0) > 150


CUT = '{"mode": "r", "pa'


def test_arguments_that_were_cut_off_are_no_error(strict: Served) -> None:
    function = {"name": "open_file", "arguments": CUT}
    call = {"id": "c", "type": "function", "function": function}
    chat = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
    ]
    items = [
        *QUESTION,
        {"type": "function_call", "call_id": "c", "name": "open_file", "arguments": CUT},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
    ]
    for path, body in (
        ("/v1/chat/completions", {"messages": chat, "max_tokens": 1}),
        ("/v1/responses", {"input": items, "max_output_tokens": 16}),
    ):
        answer = strict.post(path, body)
        assert answer.status_code == 200, answer.text


def test_what_a_tool_gave_back_and_no_model_here_reads(strict: Served) -> None:
    """A picture comes again with every later turn: it is named, and none of its bytes are read."""
    picture = {"type": "image", "source": {"type": "base64", "data": "A" * 5000}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [picture]}
    messages = [
        *QUESTION,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f"}]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    counted = strict.post("/v1/messages/count_tokens", {"messages": messages})
    assert 40 < counted.json()["input_tokens"] < 200
    output = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "A" * 5000}]
    items = [
        *QUESTION,
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": output},
    ]
    answer = strict.post("/v1/responses", {"input": items, "max_output_tokens": 16})
    assert 40 < answer.json()["usage"]["input_tokens"] < 200


def test_what_a_client_sends_with_every_request_is_said_once(strict: Served) -> None:
    told = ["the block x-anthropic-billing", "the tool 'often_1'", "a tool of the type 'often_2'"]
    billing = [{"type": "text", "text": "x-anthropic-billing-header: a"}]
    claude = {"messages": QUESTION, "max_tokens": 1, "system": billing}
    claude["tools"] = [{"type": "web_search_20250305", "name": "often_1"}]
    codex = {"input": "ls", "max_output_tokens": 16, "tools": [{"type": "often_2"}]}
    for _ in range(2):
        assert strict.post("/v1/messages", claude).status_code == 200
        assert strict.post("/v1/responses", codex).status_code == 200
    # The log has its lines in order.
    strict.post("/v1/messages", {**claude, "last_of_all": 1})
    wait_for(lambda: any("last_of_all" in line for line in strict.lines))
    counts = [sum(f"left out {each}" in line for line in strict.lines) for each in told]
    assert counts == [1, 1, 1]


def test_blocks_of_another_server_are_left_out(strict: Served) -> None:
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "found"},
    ]
    messages = [*QUESTION, {"role": "assistant", "content": blocks}, *QUESTION]
    answer = strict.post("/v1/messages", {"messages": messages, "max_tokens": 1})
    assert answer.status_code == 200
    wait_for(lambda: any("server_tool_use" in line for line in strict.lines))


def test_a_call_within_reasoning_is_a_call(openai: OpenAI, anthropic: Anthropic) -> None:
    """Qwen3.5 and others forget the closing tag; an agent would stop there."""
    call = f"<tool_call>{json.dumps({'name': 'open_file', 'arguments': {'mode': 'r'}})}</tool_call>"
    said = {"grammar": f"root ::= {json.dumps(f'hm {call}')}", "temperature": 0}
    settings: Any = {"model": "strict", "messages": QUESTION, "extra_body": said}
    tools: Any = [{"type": "function", "function": FUNCTION}]
    choice: Any = openai.chat.completions.create(tools=tools, **settings).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.reasoning_content == "hm "
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"mode": "r"}
    settings |= {"thinking": {"type": "adaptive"}, "max_tokens": 200}
    tools = [{"name": "open_file", "input_schema": PARAMETERS}]
    with anthropic.messages.stream(tools=tools, **settings) as stream:
        final: Any = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    assert [block.type for block in final.content] == ["thinking", "tool_use"]
    assert final.content[1].input == {"mode": "r"}


def test_a_call_in_a_stream_of_messages(claude: Anthropic) -> None:
    with claude.messages.stream(
        model="localspec",
        messages=QUESTION,
        max_tokens=200,
        tools=[{"name": "open_file", "input_schema": PARAMETERS}],
        tool_choice={"type": "tool", "name": "open_file"},
    ) as stream:
        events: list[Any] = [event for event in stream if event.type.startswith(("cont", "mess"))]
        final = stream.get_final_message()
    call: Any = final.content[-1]
    starts = [event for event in events if event.type == "content_block_start"]
    assert starts[-1].content_block.type == "tool_use"
    assert (starts[-1].content_block.id, starts[-1].content_block.input) == (call.id, {})
    parts = [
        event.delta.partial_json
        for event in events
        if event.type == "content_block_delta" and event.delta.type == "input_json_delta"
    ]
    assert json.loads("".join(parts)) == call.input
    assert call.input["mode"] in ("r", "w")
    assert [event.type for event in events[-3:]] == [
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert final.stop_reason == "tool_use"


def test_a_call_in_a_stream_of_responses(client: OpenAI) -> None:
    """Its ids are those at the end, and an event says that its arguments are whole."""
    tool: Any = {"type": "function", "strict": True, **FUNCTION}
    events: list[Any] = [
        *client.responses.create(
            model="localspec",
            input="ls",
            tools=[tool],
            tool_choice={"type": "function", "name": "open_file"},
            stream=True,
        )
    ]
    assert events[-1].type == "response.completed"
    final = events[-1].response.output
    added = [event.item for event in events if event.type == "response.output_item.added"]
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.id for item in added] == [item.id for item in done] == [item.id for item in final]
    call = final[-1]
    assert added[-1].call_id == done[-1].call_id == call.call_id
    assert added[-1].arguments == ""
    parts = [e for e in events if e.type == "response.function_call_arguments.delta"]
    (whole,) = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert {part.item_id for part in parts} == {whole.item_id} == {call.id}
    assert "".join(part.delta for part in parts) == whole.arguments == call.arguments
    assert json.loads(call.arguments)["mode"] in ("r", "w")


def test_a_call_in_a_stream_of_chat(client: OpenAI) -> None:
    """Index, id and name come first, then pieces of the arguments, then why it ended and usage."""
    chunks: list[Any] = [
        *client.chat.completions.create(
            model="localspec",
            messages=QUESTION,
            tools=[{"type": "function", "function": FUNCTION}],  # type: ignore[list-item]
            tool_choice={"type": "function", "function": {"name": "open_file"}},
            stream=True,
            stream_options={"include_usage": True},
        )
    ]
    assert (chunks[-1].choices, chunks[-1].usage is not None) == ([], True)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["tool_calls"]
    parts = [part for choice in choices for part in choice.delta.tool_calls or []]
    assert (parts[0].index, parts[0].function.name) == (0, "open_file")
    assert parts[0].id and parts[0].type == "function"
    assert not any(part.id or part.function.name for part in parts[1:])
    assert json.loads("".join(part.function.arguments for part in parts))["mode"] in ("r", "w")


def test_what_is_in_a_cache_is_said_in_each_protocol(strict: Served) -> None:
    question = [{"role": "user", "content": "which files are large " * 8}]
    limits = {"max_tokens": 1, "max_output_tokens": 16}
    places = {
        "/v1/chat/completions": ("prompt_tokens_details", "cached_tokens"),
        "/v1/responses": ("input_tokens_details", "cached_tokens"),
        "/v1/messages": ("cache_read_input_tokens",),
    }
    for path, (*names, last) in places.items():
        name = "input" if path == "/v1/responses" else "messages"
        for _ in range(2):
            usage = strict.post(path, {**limits, name: question}).json()["usage"]
        for each in names:
            usage = usage[each]
        assert usage[last] > 100


def test_an_answer_is_continued_from_a_cache(client: OpenAI) -> None:
    first = client.responses.create(model="localspec", input="list files", temperature=0)
    again = client.responses.create(
        model="localspec", input="And the largest?", previous_response_id=first.id, temperature=0
    )
    assert first.usage and again.usage
    # All of the first prompt and its answer, but for the last token.
    known = first.usage.input_tokens + first.usage.output_tokens
    assert again.usage.input_tokens_details.cached_tokens >= known - 2


def test_the_list_of_models_is_that_of_both_clients(openai: OpenAI, anthropic: Anthropic) -> None:
    (one,), (other,) = openai.models.list(), anthropic.models.list()
    assert one.id == other.id == "strict"
    assert other.created_at.timestamp() == one.created
    assert other.max_input_tokens == 2048
