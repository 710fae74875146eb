"""Responses, by OpenAI's own client and in the shape that Codex sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Literal

import openai
import pytest
from fakes.served import Served
from openai import OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from localspec.engine.engine import Engine
from localspec.errors import LocalspecError
from localspec.server import openai_responses
from localspec.server.fields import Fields
from localspec.server.options import TextSettings
from localspec.server.response_builder import ResponseBuilder
from localspec.server.stored_responses import StoredResponses

MODEL = "terminal-9m-q8_0"
TEXT = "How do I list files by size?"
QUESTION = [{"role": "user", "content": TEXT}]


def ask(client: OpenAI, **options: Any) -> Any:
    return client.responses.create(**{"model": MODEL, "input": TEXT, "temperature": 0, **options})


def test_the_text_is_that_of_the_engine(client: OpenAI, alone: Engine) -> None:
    expected = alone.generate(QUESTION, max_tokens=200, temperature=0)
    answer = ask(client)
    assert answer.output_text == expected.text
    assert answer.status == "completed"
    assert answer.usage.output_tokens == len(expected.token_ids)
    assert answer.usage.input_tokens == expected.stats.prompt_tokens
    assert client.responses.retrieve(answer.id).output_text == expected.text


def test_events_and_their_ids(client: OpenAI, alone: Engine) -> None:
    expected = alone.generate(QUESTION, max_tokens=200, temperature=0)
    events = list(ask(client, stream=True))
    kinds = [event.type for event in events]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    assert "".join(event.delta for event in deltas) == expected.text
    final = events[-1].response
    assert final.output_text == expected.text
    assert {event.item_id for event in deltas} == {final.output[0].id}
    assert events[2].item.id == final.output[0].id
    assert events[0].response.id == final.id
    with client.responses.stream(model=MODEL, input=TEXT, temperature=0) as stream:
        stream.until_done()
        assert stream.get_final_response().output_text == expected.text


def test_a_conversation_goes_on(client: OpenAI, alone: Engine) -> None:
    first = ask(client)
    second = ask(client, input="And the largest?", previous_response_id=first.id)
    turns = [
        *QUESTION,
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And the largest?"},
    ]
    expected = alone.generate(turns, temperature=0, max_tokens=200)
    assert second.output_text == expected.text
    with pytest.raises(openai.NotFoundError, match="there is no response resp_x"):
        ask(client, previous_response_id="resp_x")
    unstored = ask(client, store=False)
    with pytest.raises(openai.NotFoundError):
        ask(client, previous_response_id=unstored.id)


def test_items_of_earlier_answers_may_be_named(client: OpenAI) -> None:
    """The AI SDK sends no text twice: it names the items of earlier answers."""
    tool: Any = {"type": "function", "name": "ls", "parameters": {"type": "object"}}
    first = ask(client)
    second = ask(client, tools=[tool], tool_choice={"type": "function", "name": "ls"})
    last: dict[str, Any] = {"tools": [tool], "max_output_tokens": 16}
    for answer in (first, second):
        (item,) = answer.output
        more: list[Any] = [{"role": "user", "content": "go on"}]
        if item.type == "function_call":
            result = {"type": "function_call_output", "call_id": item.call_id, "output": "a.txt"}
            more = [result, *more]
        chained = ask(client, input=more, previous_response_id=answer.id, **last)
        reference: Any = {"type": "item_reference", "id": item.id}
        # Its type may be left out; once is enough.
        for references in ([reference], [{"id": item.id}], 2 * [reference]):
            named = ask(client, input=[*QUESTION, *references, *more], **last)
            assert named.usage.input_tokens == chained.usage.input_tokens
            assert named.output_text == chained.output_text


def test_an_item_of_an_answer_that_was_stopped_may_be_named(client: OpenAI, served: Served) -> None:
    stream = client.responses.create(model=MODEL, input=TEXT, stream=True, temperature=0)
    name = next(each.item.id for each in stream if each.type == "response.output_item.added")
    stream.close()
    served.wait_until_free()
    reference: Any = {"type": "item_reference", "id": name}
    assert ask(client, input=[*QUESTION, reference, *QUESTION], max_output_tokens=16).output


def test_an_item_may_be_named_where_the_client_left_behind_the_last_token() -> None:
    item = {"id": "msg_1", "type": "message"}
    answer: Any = SimpleNamespace(
        begin=list, end=lambda _reply: [("done", {}), ("completed", {})], items=[item]
    )

    @asynccontextmanager
    async def no_deltas() -> AsyncIterator[Any]:
        async def nothing() -> AsyncIterator[Any]:
            for each in ():
                yield each

        yield nothing()

    @asynccontextmanager
    async def reply(_asked: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(deltas=no_deltas)

    async def chat(_chat: Any) -> None:
        pass

    service: Any = SimpleNamespace(inputs=SimpleNamespace(chat=chat), reply=reply)
    request: Any = SimpleNamespace(chat=None, store=True, conversation=[])
    stored = StoredResponses()

    async def leave() -> None:
        lines = openai_responses._lines(request, service, stored, answer)
        await anext(lines)
        await lines.aclose()

    asyncio.run(leave())
    assert stored.item("msg_1") == item


def test_an_item_that_is_not_there_is_said(client: OpenAI) -> None:
    reference: Any = {"type": "item_reference", "id": "msg_x"}
    with pytest.raises(openai.NotFoundError, match="there is no item msg_x") as raised:
        ask(client, input=[*QUESTION, reference])
    assert raised.value.code == "item_not_found"
    (item,) = ask(client, store=False, max_output_tokens=16).output
    with pytest.raises(openai.NotFoundError, match="there is no item msg_"):
        ask(client, input=[*QUESTION, {"type": "item_reference", "id": item.id}])


def test_instructions_are_for_one_answer(client: OpenAI) -> None:
    """Those of an earlier answer do not come back, nor once more."""
    told = {"instructions": "Answer in one line.", "max_output_tokens": 4}
    first = ask(client, **told)
    again = ask(client, input="And then?", previous_response_id=first.id, **told)
    turns = [
        *QUESTION,
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And then?"},
    ]
    whole = ask(client, input=turns, **told)
    assert again.usage.input_tokens == whole.usage.input_tokens
    assert again.output_text == whole.output_text


def test_a_stream_that_fails_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the event that clients wait for."""

    async def lines(_request: Any, _service: Any, _stored: Any, response: Any) -> Any:
        for line in response.begin():
            yield line
        raise LocalspecError("the model broke")

    monkeypatch.setattr(openai_responses, "_lines", lines)
    service: Any = SimpleNamespace(
        name=MODEL,
        require_model=lambda _: None,
        settings_of=lambda *_body, **_given: TextSettings(),
        template_options={},
        engine=SimpleNamespace(
            context=512, model=SimpleNamespace(chat_template=None, projector=None)
        ),
    )
    request = openai_responses.read(Fields({"input": "x"}), service, StoredResponses())

    async def read() -> list[str]:
        answer = ResponseBuilder(request, service)
        found = openai_responses.events(request, service, StoredResponses(), answer)
        return [line async for line in found]

    last = asyncio.run(read())[-1]
    kind, _, data = last.partition("\n")
    body = json.loads(data.removeprefix("data: "))
    assert kind == "event: response.failed"
    assert body["sequence_number"] == 2
    assert body["response"]["error"]["message"] == "the model broke"


def test_a_cut_answer_is_incomplete(client: OpenAI) -> None:
    answer = ask(client, max_output_tokens=2)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"
    events = list(ask(client, max_output_tokens=2, stream=True))
    assert events[-1].type == "response.incomplete"


def test_a_call_that_is_cut_off_is_incomplete(client: OpenAI) -> None:
    """Its arguments are not to be used."""
    tool: Any = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {
        "x": {"enum": ["long " * 30]}}, "required": ["x"]}}  # fmt: skip
    events = list(
        ask(client, tools=[tool], tool_choice="required", max_output_tokens=25, stream=True)
    )
    assert events[-1].type == "response.incomplete"
    (call,) = events[-1].response.output
    assert (call.type, call.status) == ("function_call", "incomplete")
    (done,) = [event for event in events if event.type == "response.output_item.done"]
    assert done.item.status == "incomplete"


def test_each_event_has_its_declared_type(served: Served) -> None:
    """The client itself takes anything; its types say what it may rely on."""
    event, whole = TypeAdapter(ResponseStreamEvent), TypeAdapter(Response)
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
    for more in ({}, {"tools": [tool], "tool_choice": "required"}):
        body = {"model": MODEL, "input": TEXT, "max_output_tokens": 60, **more}
        lines = served.post("/v1/responses", {**body, "stream": True}).text.splitlines()
        for line in lines:
            if line.startswith("data: "):
                event.validate_json(line.removeprefix("data: "))
        whole.validate_json(served.post("/v1/responses", body).content)


def test_what_fails_before_the_first_token_has_a_status(served: Served) -> None:
    """In a stream too: a grammar that no token of the vocabulary can begin, say."""
    for stream in (False, True):
        body = {"model": MODEL, "input": TEXT, "logit_bias": {"99999": 1}, "stream": stream}
        answer = served.post("/v1/responses", body)
        assert answer.status_code == 400
        assert "logit_bias token is 99999" in answer.json()["error"]["message"]


def test_the_shape_of_codex(served: Served) -> None:
    """Unknown tools and items are left out with a word in the log, and nothing is refused."""
    output = [{"type": "input_text", "text": "a.txt"}]
    patch = {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** x"}
    body = {
        "model": MODEL,
        "instructions": "You are a coding agent.",
        "input": [
            {"type": "message", "role": "developer", "content": [
                {"type": "input_text", "text": "Sandboxed."}]},
            {"type": "additional_tools", "tools": [
                {"type": "namespace", "name": name, "tools": [
                    {"type": "function", "name": "inner", "parameters": {}},
                    {"type": "custom", "name": "free"}]} for name in ("n", "other")]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "ls"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "x"},
            {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": '{"a": '},
            {"type": "function_call_output", "call_id": "c1", "output": output},
            patch,
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
            {"type": "agent_message", "content": [{"type": "output_text", "text": "Listed."}]},
            {"type": "web_search_call", "id": "w", "status": "completed"},
            {"type": "message", "role": "user", "content": "and now?"},
        ],
        "tools": [
            {"type": "function", "name": "shell", "parameters": {"type": "object"}, "strict": True},
            {"type": "custom", "name": "patch", "format": {"type": "grammar"}},
            {"type": "web_search"},
            {"type": "image_generation"},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "max_output_tokens": 8,
    }  # fmt: skip
    answer = served.post("/v1/responses", body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"]
    assert any("web_search" in line for line in served.lines)


def namespace(name: str, function: str) -> Any:
    """A server's tools as Codex sends them."""
    inner = {"type": "function", "name": function, "parameters": {
        "type": "object", "properties": {"x": {"enum": [name]}}, "required": ["x"],
        "additionalProperties": False}}  # fmt: skip
    return {"type": "namespace", "name": name, "description": "d", "tools": [inner]}


SERVERS = [namespace("mcp__web", "search"), namespace("mcp__mail", "search")]


def test_a_call_of_a_namespace_has_its_name_and_its_namespace(client: OpenAI) -> None:
    """Codex runs no call whose namespace it must guess; two servers may have tools of one name."""
    choice: Any = {"type": "function", "name": "search", "namespace": "mcp__mail"}
    events = list(ask(client, tools=SERVERS, tool_choice=choice, stream=True))
    (call,) = [item for item in events[-1].response.output if item.type == "function_call"]
    assert (call.name, call.namespace) == ("search", "mcp__mail")
    assert json.loads(call.arguments) == {"x": "mcp__mail"}
    for kind in ("response.output_item.added", "response.output_item.done"):
        item = [event.item for event in events if event.type == kind][-1]
        assert (item.name, item.namespace) == ("search", "mcp__mail")
    plain: Any = {"type": "function", "name": "ls", "parameters": {"type": "object"}}
    answer = ask(client, tools=[*SERVERS, plain], tool_choice={"type": "function", "name": "ls"})
    assert (answer.output[-1].name, answer.output[-1].namespace) == ("ls", None)


def test_a_past_call_of_a_namespace_is_what_the_model_has_written(client: OpenAI) -> None:
    """So its prompt goes on with the text in the cache."""
    choice: Any = {"type": "function", "name": "search", "namespace": "mcp__web"}
    first = ask(client, tools=SERVERS, tool_choice=choice)
    call = first.output[-1]
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "found"}
    items: list[Any] = [*QUESTION, call.model_dump(exclude_none=True), result]
    last: dict[str, Any] = {"tools": SERVERS, "max_output_tokens": 16}
    whole = ask(client, input=items, **last)
    chained = ask(client, input=[result], previous_response_id=first.id, **last)
    assert whole.usage.input_tokens == chained.usage.input_tokens
    # "search" alone is shorter.
    bare: list[Any] = [*QUESTION, {**items[1], "namespace": ""}, result]
    assert ask(client, input=bare, **last).usage.input_tokens < whole.usage.input_tokens


def test_tokens_are_counted(client: OpenAI) -> None:
    counted = client.responses.input_tokens.count(model=MODEL, input=TEXT)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens == ask(client, input=TEXT).usage.input_tokens


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"input": None}, "input is missing"),
        ({"input": []}, "input is empty"),
        ({"input": [{"role": "king", "content": "x"}]}, "input[0].role is 'king'"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id is missing"),
        ({"background": True}, "background is true; it must be false"),
        ({"text": {"format": {"type": "xml"}}}, "its type is text"),
    ],
    ids=["no input", "empty", "role", "reference", "background", "format"],
)
def test_what_cannot_be_answered(served: Served, changed: dict[str, Any], said: str) -> None:
    answer = served.post("/v1/responses", {"model": MODEL, "input": TEXT, **changed})
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_log_probabilities_of_a_text(client: OpenAI) -> None:
    """Those of chat completions, in a stream with the text that they belong to."""
    wanted: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 3}
    wanted |= {"max_output_tokens": 12, "temperature": 0}
    (part,) = ask(client, **wanted).output[0].content
    assert "".join(entry.token for entry in part.logprobs) == part.text
    for entry in part.logprobs:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy
    chat = client.chat.completions.create(
        model=MODEL,
        messages=QUESTION,
        logprobs=True,
        top_logprobs=3,
        max_completion_tokens=12,
        temperature=0,
    )
    expected = [each.logprob for each in chat.choices[0].logprobs.content]
    found = [entry.logprob for entry in part.logprobs]
    assert found == pytest.approx(expected[: len(found)], abs=1e-3) and len(found) > 4
    deltas, done = [], None
    for event in ask(client, **wanted, stream=True):
        if event.type == "response.output_text.delta":
            deltas.append(("".join(each.token for each in event.logprobs), event.delta))
        elif event.type == "response.output_text.done":
            done = event
    assert deltas and all(tokens == text for tokens, text in deltas)
    assert done is not None and len(done.logprobs) == len(found)
    assert ask(client, max_output_tokens=2).output[0].content[0].logprobs == []


@pytest.mark.parametrize("summary", ["auto", None])
def test_reasoning_is_its_own_summary_where_one_is_wanted(
    strict: Served, summary: Literal["auto"] | None
) -> None:
    """Clients such as the AI SDK show nothing else."""
    event_type = TypeAdapter[Any](ResponseStreamEvent)
    with OpenAI(base_url=f"{strict.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.responses.create(
            model="strict",
            input=TEXT,
            reasoning={"summary": summary},
            include=["message.output_text.logprobs"],
            extra_body={"thinking_budget_tokens": 8, "seed": 3, "ignore_eos": True},
            max_output_tokens=30,
            stream=True,
        )
        events = [event_type.validate_python(event.model_dump()) for event in stream]
    kinds = [event.type for event in events]
    thought, said = events[-1].response.output
    (text,) = thought.content
    (message,) = said.content
    written = b"".join(bytes(each.bytes) for each in message.logprobs)
    assert text.text and written.decode("utf-8", "replace").strip() == message.text.strip()
    if summary is None:
        assert thought.summary == [] and not any("summary" in kind for kind in kinds)
        return
    assert [each.text for each in thought.summary] == [text.text]
    names = ("reasoning_summary_part.added", "reasoning_summary_text.delta")
    names += ("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done")
    assert [kinds.index(f"response.{name}") for name in names] == sorted(
        kinds.index(f"response.{name}") for name in names
    )
    deltas = [each.delta for each in events if each.type == f"response.{names[1]}"]
    assert len(deltas) > 1 and "".join(deltas) == text.text


def test_an_answer_is_forgotten_where_its_client_asks(client: OpenAI) -> None:
    answer = ask(client, max_output_tokens=4)
    reference: Any = {"type": "item_reference", "id": answer.output[0].id}
    assert ask(client, input=[*QUESTION, reference], max_output_tokens=1)
    client.responses.delete(answer.id)
    for gone in (client.responses.delete, client.responses.retrieve):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            gone(answer.id)
    with pytest.raises(openai.NotFoundError, match="there is no item"):
        ask(client, input=[*QUESTION, reference])


def test_what_was_sent_for_an_answer_is_listed(client: OpenAI) -> None:
    """In pages, with what was sent for the answers before it, and these."""
    first = ask(client, max_output_tokens=4)
    said: Any = {"type": "message", "role": "user", "content": TEXT, "id": "mine"}
    call: Any = {"type": "function_call", "call_id": "c", "name": "ls", "arguments": "{}"}
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "a.txt"}
    sent = {"input": [said, call, result], "previous_response_id": first.id}
    second = ask(client, **sent, max_output_tokens=4)
    pages = client.responses.input_items.list(second.id, order="asc", limit=2)
    question, answered, mine, called, returned = pages  # the client asks for further pages
    assert (question.type, question.role, question.content[0].text) == ("message", "user", TEXT)
    assert answered.id == first.output[0].id
    assert (mine.id, mine.content[0].type) == ("mine", "input_text")
    assert (called.name, returned.output) == ("ls", "a.txt")
    listed = client.responses.input_items.list(second.id)
    assert [each.id for each in listed.data] == [
        each.id for each in (returned, called, mine, answered, question)
    ]
    with pytest.raises(openai.NotFoundError, match="there is no response"):
        client.responses.input_items.list("resp_none")
    with pytest.raises(openai.BadRequestError, match="limit is 0"):
        client.responses.input_items.list(second.id, limit=0)
