"""Ollama's API, by its own client."""

import asyncio
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import jsonschema
import ollama
import pytest
from fakes.fim import write_fim_model
from fakes.served import Served, serving, wait_for
from fakes.tiny import write_tiny
from ollama import Client

from localspec.engine.engine import Engine
from localspec.gguf.facts import facts_of

MODEL = "terminal-9m-q8_0"
QUESTION: Any = [{"role": "user", "content": "How do I list files by size?"}]
GREEDY: Any = {"temperature": 0}
# What the strict model is made to write.
SAID: Any = {"grammar": 'root ::= "hm</think>yes"', "num_predict": 50}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"mode": {"enum": ["r", "w"]}, "size": {"enum": [1, 2]}},
    "required": ["mode"],
    "additionalProperties": False,
}
OPEN_FILE: Any = {"type": "function", "function": {"name": "open_file"}}
TOOLS: Any = [{"type": "function", "function": {"name": "open_file", "parameters": SCHEMA}}]


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url) as client:
        yield client


@pytest.fixture
def thinker(strict: Served) -> Iterator[Client]:
    with Client(strict.url) as client:
        yield client


def chat(client: Client, **options: Any) -> Any:
    return client.chat(**{"model": MODEL, "messages": QUESTION, **options})


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1, "seed": 7}])
def test_the_text_is_that_of_the_engine(
    client: Client, alone: Engine, options: dict[str, Any]
) -> None:
    expected = alone.generate(QUESTION, max_tokens=1000, **options)
    answer = chat(client, options=options)
    assert (answer.message.role, answer.message.content) == ("assistant", expected.text)
    assert (answer.done, answer.done_reason) == (True, "stop")
    assert answer.prompt_eval_count == expected.stats.prompt_tokens
    assert answer.eval_count == len(expected.token_ids)
    assert 0 < answer.eval_duration < answer.total_duration
    assert not answer.message.thinking and not answer.message.tool_calls
    parts = [*chat(client, options=options, stream=True)]
    assert "".join(part.message.content for part in parts) == expected.text
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == answer.eval_count
    text = client.generate(MODEL, QUESTION[0]["content"], options=options)
    assert text.response == expected.text and text.prompt_eval_count == answer.prompt_eval_count


def test_a_stream_is_what_is_sent_unless_asked_otherwise(served: Served) -> None:
    body = {"model": MODEL, "messages": QUESTION, "options": GREEDY}
    streamed = served.post("/api/chat", body)
    assert streamed.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in streamed.text.splitlines()]
    whole = served.post("/api/chat", {**body, "stream": False}).json()
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
    for found in (whole, lines[-1]):
        assert found["model"] == f"{MODEL}:latest" and found["created_at"].endswith("Z")
        assert datetime.fromisoformat(found["created_at"]).tzinfo
        assert found["localspec"]["steps"] > 0


def continued(served: Served, prompt: str, **options: Any) -> str:
    body = {"prompt": prompt, "max_tokens": 8, **options}
    text: str = served.post("/v1/completions", body).json()["choices"][0]["text"]
    return text


def test_texts_are_continued(served: Served, client: Client, alone: Engine) -> None:
    found = client.generate(MODEL, "$ ls", raw=True, options={**GREEDY, "num_predict": 8})
    assert (found.response, found.done_reason) == (continued(served, "$ ls", **GREEDY), "length")
    assert found.eval_count == 8
    told = client.generate(MODEL, "List files.", system="Say no.", options=GREEDY)
    pairs = (("system", "Say no."), ("user", "List files."))
    messages = [{"role": role, "content": said} for role, said in pairs]
    assert told.response == alone.generate(messages, max_tokens=1000, temperature=0).text


@pytest.mark.slow
def test_a_gap_is_filled(own_cache: None, tmp_path: Any) -> None:
    path = write_fim_model(tmp_path / "fim.gguf")
    free = {"temperature": 0, "ignore_eos": True}
    options = {**free, "num_predict": 8}
    with (
        serving(str(path), "--threads", "1", "--draft", "suffix") as served,
        Client(served.url) as client,
    ):
        assert "insert" in (client.show("fim").capabilities or ())
        gap = client.generate("fim", "DEF F(X):", suffix="PRINT(F)", options=options).response
        assert gap == continued(served, "DEF F(X):", suffix="PRINT(F)", **free)
        assert gap != continued(served, "DEF F(X):", **free)


@pytest.mark.slow
def test_a_model_without_a_template_continues(own_cache: None, tmp_path: Any) -> None:
    """As with Ollama's own template for such models."""
    write_tiny(tmp_path / "bare.gguf", "llama", quantised=False, template="")
    with (
        serving(str(tmp_path / "bare.gguf"), "--threads", "1", "--draft", "suffix") as served,
        Client(served.url) as client,
    ):
        assert client.show("bare").capabilities == ["completion"]
        text = client.generate("bare", "ls", options={**GREEDY, "num_predict": 8}).response
        assert text == continued(served, "ls", **GREEDY)
        with pytest.raises(ollama.ResponseError, match="has no chat template"):
            client.generate("bare", "ls", system="Say no.")


def test_options(served: Served, client: Client) -> None:
    drafted = served.post(
        "/api/chat",
        {"messages": QUESTION, "stream": False, "options": {**GREEDY, "draft_num_predict": 3}},
    ).json()
    assert drafted["localspec"]["depth"] == 3 and drafted["timings"]["draft_n"] > 0
    plain = served.post(
        "/api/chat",
        {"messages": QUESTION, "stream": False, "options": {**GREEDY, "draft_num_predict": -1}},
    ).json()
    assert "draft_n" not in plain["timings"] and plain["message"] == drafted["message"]
    for name in ("max_tokens", "n_predict", "num_predict"):
        assert chat(client, options={**GREEDY, name: 2}).eval_count == 2
    stopped = chat(client, options={**GREEDY, "stop": ["```"], "num_predict": -2})
    assert stopped.message.content == drafted["message"]["content"].partition("```")[0]
    chat(client, options={**GREEDY, "num_ctx": 123456, "num_gpu": 99, "num_predict": 1})
    wait_for(lambda: any("num_ctx is 123456" in line for line in served.lines))


def test_reasoning_is_apart(thinker: Client) -> None:
    for think in (True, "high"):
        answer = chat(thinker, model="strict", options=SAID, think=think)
        assert (answer.message.thinking, answer.message.content) == ("hm", "yes")
    parts = [*chat(thinker, model="strict", options=SAID, think=True, stream=True)]
    assert "".join(part.message.thinking or "" for part in parts) == "hm"
    assert "".join(part.message.content for part in parts) == "yes"
    text = thinker.generate("strict", "ls", options=SAID, think=True)
    assert (text.thinking, text.response) == ("hm", "yes")
    assert "thinking" in (thinker.show("strict").capabilities or ())


@pytest.mark.parametrize("think", [True, False])
def test_whether_to_reason_is_told_to_the_template(strict: Served, think: bool) -> None:
    """As chat completions tell it."""
    body = {"messages": QUESTION, "stream": False, "think": think, "options": {"num_predict": 1}}
    asked = served_tokens(strict, {"messages": QUESTION, "enable_thinking": think})
    assert strict.post("/api/chat", body).json()["prompt_eval_count"] == asked


def served_tokens(served: Served, body: dict[str, Any]) -> int:
    found: int = served.post("/v1/chat/completions/input_tokens", body).json()["input_tokens"]
    return found


def test_a_history_is_that_of_chat_completions(strict: Served) -> None:
    """With reasoning, calls, results and an answer to go on with."""
    call = {"function": {"name": "open_file", "arguments": {"mode": "r"}}}
    answer: dict[str, Any] = {"role": "assistant", "content": "", "thinking": "hm"}
    ours = [
        *QUESTION,
        {**answer, "tool_calls": [call]},
        {"role": "tool", "tool_name": "open_file", "content": "opened"},
        {"role": "ASSISTANT", "content": "It is"},
    ]
    text = {**call["function"], "arguments": json.dumps({"mode": "r"})}
    theirs = [
        *QUESTION,
        {**answer, "reasoning_content": "hm", "tool_calls": [{"id": "a", "function": text}]},
        {"role": "tool", "tool_call_id": "a", "name": "open_file", "content": "opened"},
        {"role": "assistant", "content": "It is"},
    ]
    body = {"messages": ours, "stream": False, "options": {"num_predict": 1}, "tools": TOOLS}
    counted = served_tokens(strict, {"messages": theirs, "tools": TOOLS})
    assert strict.post("/api/chat", body).json()["prompt_eval_count"] == counted


def test_calls_are_objects(served: Served, client: Client) -> None:
    body = {"messages": QUESTION, "tools": TOOLS, "tool_choice": OPEN_FILE, "options": {"seed": 3}}
    whole = served.post("/api/chat", {**body, "stream": False}).json()
    (call,) = whole["message"]["tool_calls"]
    assert call["id"] and call["function"]["name"] == "open_file" and whole["done_reason"] == "stop"
    jsonschema.validate(call["function"]["arguments"], SCHEMA)
    lines = [json.loads(line) for line in served.post("/api/chat", body).text.splitlines()]
    ((streamed,),) = [line["message"]["tool_calls"] for line in lines
                      if "tool_calls" in line["message"]]  # fmt: skip
    assert streamed["function"] == call["function"]
    answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "tool_name": "open_file", "content": "opened"}
    again = chat(client, messages=[*QUESTION, answer, result], tools=TOOLS, options=GREEDY)
    assert again.message.content


def test_a_call_that_is_cut_off_is_text(served: Served) -> None:
    """A client would run it."""
    limits = {"num_predict": 20, "seed": 3}
    body = {"messages": QUESTION, "tools": TOOLS, "tool_choice": OPEN_FILE, "options": limits}
    answer = served.post("/api/chat", {**body, "stream": False}).json()
    assert answer["done_reason"] == "length" and "tool_calls" not in answer["message"]
    assert answer["message"]["content"].startswith('{"name": "open_file", "arguments": {')
    lines = [json.loads(line) for line in served.post("/api/chat", body).text.splitlines()]
    streamed = "".join(line["message"]["content"] for line in lines)
    assert streamed == answer["message"]["content"]
    assert not [line for line in lines if "tool_calls" in line["message"]]


def test_json(client: Client) -> None:
    for seed in range(3):
        answer = chat(client, format=SCHEMA, options={"seed": seed, "num_predict": 100})
        jsonschema.validate(json.loads(answer.message.content), SCHEMA)
    text = client.generate(MODEL, "{", raw=True, format=SCHEMA, options={"num_predict": 100})
    jsonschema.validate(json.loads(text.response), SCHEMA)
    free = chat(client, format="json", options={**GREEDY, "num_predict": 30})
    assert free.message.content.lstrip().startswith("{")


def test_log_probabilities(client: Client, alone: Engine) -> None:
    expected = alone.generate(QUESTION, temperature=0, logprobs=True, top_logprobs=2)
    answer = chat(client, options=GREEDY, logprobs=True, top_logprobs=2)
    streamed = [
        found
        for part in chat(client, options=GREEDY, logprobs=True, top_logprobs=2, stream=True)
        for found in part.logprobs or ()
    ]
    for found in (answer.logprobs, streamed):
        assert [each.logprob for each in found] == pytest.approx(expected.logprobs, abs=1e-2)
        assert {len(each.top_logprobs) for each in found} == {2}
    assert chat(client, options=GREEDY, logprobs=True).logprobs[0].top_logprobs == []


def test_the_model_is_listed(client: Client, alone: Engine, served: Served) -> None:
    (listed, other), (running,) = client.list().models, client.ps().models
    facts = facts_of(alone.model.path)
    assert listed.model == running.model == f"{MODEL}:latest"
    # As Ollama lists a model: once for each of its names, which langchain looks for.
    assert other.model == "terminal:latest" and other.digest == listed.digest
    assert listed.size == facts.size and len(listed.digest or "") == 64
    assert running.context_length == 1024 and running.size_vram == 0
    shown = client.show(listed.model or "")
    assert shown.details == listed.details and shown.details.quantization_level == "Q8_0"
    # What clients fit their prompts into is what the server has room for, not the model.
    assert shown.modelinfo["llama.context_length"] == 1024
    assert shown.modelinfo["general.parameter_count"] == facts.parameters
    assert shown.capabilities == ["completion", "tools"]
    assert chat(client, model=listed.model, options=GREEDY).done
    major, minor, _ = served.get("/api/version").json()["version"].split(".")
    assert (int(major), int(minor)) >= (0, 6)


def test_a_model_is_there_when_it_is_asked_for(client: Client) -> None:
    assert client.generate(MODEL).done_reason == "load"
    assert chat(client, messages=[], keep_alive=-1).done_reason == "load"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/api/chat", {"model": "other:latest", "messages": QUESTION}, 404, "is not served here"),
        ("/api/show", {"model": "other"}, 404, "or start the server with --alias other"),
        ("/api/generate", {"prompt": "a", "system": "b", "raw": True}, 400, "system is 'b'"),
        ("/api/generate", {"prompt": "a", "options": {"n": 2}}, 400, "n is 2"),
        ("/api/generate", {"prompt": "a", "template": "{{ .Prompt }}"}, 400, "template is"),
        ("/api/generate", {"prompt": "a", "context": [1]}, 400, "context is"),
        ("/api/generate", {"prompt": "a", "images": ["aa"]}, 400, "reads text only"),
        ("/api/chat", {"messages": [{**QUESTION[0], "images": ["aa"]}]}, 400, "text only"),
        ("/api/chat", {"messages": QUESTION, "think": 1}, 400, "think is 1; it must be true"),
        ("/api/chat", {"messages": QUESTION, "format": "xml"}, 400, "format is 'xml'"),
        ("/api/chat", {"messages": QUESTION, "options": 1}, 400, "options must be a JSON object"),
        ("/api/chat", {"messages": ["a"]}, 400, "messages[0] must be a JSON object"),
        ("/api/chat", {"messages": QUESTION, "options": {"top_p": 2}}, 400, "top_p is 2"),
        ("/api/chat", {"messages": QUESTION, "options": {"top_a": 0.5}}, 400, "top_a is 0.5"),
        ("/api/pull", {"model": "a"}, 501, "use localspec pull"),
        ("/api/embed", {"input": "a"}, 501, "no model for embeddings here; start the server with"),
        ("/api/chats", {}, 404, "did you mean /api/chat"),
    ],
)
def test_what_is_refused(
    served: Served, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    answer = served.post(path, body)
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_an_asynchronous_client_that_goes_away_frees_its_slot(served: Served) -> None:
    async def leave() -> None:
        endless: Any = {"ignore_eos": True}
        async with ollama.AsyncClient(served.url) as client:
            async for _ in await client.chat(MODEL, QUESTION, stream=True, options=endless):
                return

    asyncio.run(leave())
    served.wait_until_free()


@pytest.fixture(scope="module")
def locked(own_cache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text("secret")
    with serving("--threads", "1", "--ctx", "256", "--api-key-file", str(key)) as running:
        yield running


def test_a_key_is_sent_as_a_bearer(locked: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Client(locked.url) as client,
        pytest.raises(ollama.ResponseError, match="the API key is missing") as refused,
    ):
        client.list()
    assert refused.value.status_code == 401
    monkeypatch.setenv("OLLAMA_API_KEY", "secret")
    with Client(locked.url) as client:
        assert client.list().models
