"""Chat completions, by OpenAI's own client."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import openai
import pytest
from fakes.served import Served, serving
from openai import OpenAI

import localspec
from localspec.engine.engine import Engine

# Logits of one row differ by less with other company.
NEAR_TIE = 0.3
MODEL = "terminal-9m-q8_0"
QUESTION = [{"role": "user", "content": "How do I list files by size?"}]
LONG = "word " * 2000


def ask(client: OpenAI, **options: Any) -> Any:
    return client.chat.completions.create(**{"model": MODEL, "messages": QUESTION, **options})


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1, "seed": 7}])
def test_the_text_is_that_of_the_engine(
    client: OpenAI, alone: Engine, options: dict[str, Any]
) -> None:
    expected = alone.generate(QUESTION, max_tokens=1000, **options)
    answer = ask(client, **options)
    assert answer.choices[0].message.content == expected.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(expected.token_ids)
    assert answer.usage.prompt_tokens == expected.stats.prompt_tokens
    parts = list(ask(client, **options, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].delta.content or "" for part in parts[:-1]) == expected.text
    assert [part.choices[0].finish_reason for part in parts[:-1]][-1] == "stop"
    assert len({part.id for part in parts}) == 1
    assert parts[-1].choices == []
    assert parts[-1].usage.completion_tokens == len(expected.token_ids)
    # The second request finds the prompt of the first in a cache.
    cached = parts[-1].usage.prompt_tokens_details.cached_tokens
    assert cached == answer.usage.prompt_tokens - 1


def test_an_answer_says_how_it_was_drafted(client: OpenAI) -> None:
    extra = {"localspec": {"depth": 4, "draft": "auto"}}
    answer = ask(client, temperature=0, extra_body=extra).model_dump()
    timings, drafts = answer["timings"], answer["metrics"]["speculative_decoding"]
    assert timings["predicted_n"] == answer["usage"]["completion_tokens"]
    assert timings["draft_n"] == drafts["num_draft_tokens"] > 0
    assert timings["draft_n_accepted"] == drafts["num_accepted_draft_tokens"] > 0
    assert sum(drafts["acceptance_histogram"]) == drafts["num_spec_steps"]
    weighted = sum(n * count for n, count in enumerate(drafts["acceptance_histogram"]))
    assert weighted == drafts["num_accepted_draft_tokens"]
    assert answer["localspec"]["depth"] == 4
    plain = ask(client, temperature=0, extra_body={"speculative.n_max": 0}).model_dump()
    assert plain["choices"][0]["message"] == answer["choices"][0]["message"]
    assert "draft_n" not in plain["timings"]
    assert plain["localspec"]["steps"] == plain["usage"]["completion_tokens"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": QUESTION}),
        ("/v1/completions", {"prompt": "$ ls"}),
        ("/v1/responses", {"input": "How do I list files?"}),
        ("/v1/messages", {"messages": QUESTION, "max_tokens": 40}),
        ("/completion", {"prompt": "$ ls"}),
    ],
)
def test_every_protocol_has_the_figures_of_drafting(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    asked = {**body, "temperature": 0, "localspec": {"depth": 3}}
    whole = served.post(path, asked).json()
    lines = served.post(path, {**asked, "stream": True}).text.splitlines()
    parts = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    (last,) = [each for part in parts for each in (part, part.get("response", {}))
               if "timings" in each]  # fmt: skip
    for found in (whole, last):
        drafts = found["metrics"]["speculative_decoding"]
        assert found["timings"]["draft_n"] == drafts["num_draft_tokens"] > 0
        assert found["localspec"]["depth"] == 3


@pytest.mark.slow
def test_several_answers_have_seeds_of_their_own(own_cache: None) -> None:
    """At a high temperature near ties are frequent: all digits must be those of a text alone."""
    free = {"temperature": 3, "top_p": 1, "top_k": 0, "min_p": 0}
    runs = {"threads": 1, "context": 512, "reproducible": True}
    with localspec.load(draft="none", **runs) as alone:
        expected = [
            alone.generate(QUESTION, seed=11 + each, max_tokens=12, **free).text
            for each in range(4)
        ]
    assert len(set(expected)) == 4
    options = {"n": 4, "seed": 11, "max_completion_tokens": 12, "extra_body": free}
    exact = ("--reproducible", "--threads", "1", "--ctx", "512", "--parallel", "3")
    with (
        serving(*exact) as served,
        OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client,
    ):
        answer = ask(client, **options)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert [choice.message.content for choice in answer.choices] == expected
        streamed = dict.fromkeys(range(4), "")
        for part in ask(client, stream=True, **options):
            for choice in part.choices:
                streamed[choice.index] += choice.delta.content or ""
        assert list(streamed.values()) == expected


def test_log_probabilities(client: OpenAI, alone: Engine) -> None:
    answer = ask(client, temperature=0, logprobs=True, top_logprobs=3)
    expected = alone.generate(QUESTION, temperature=0, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert [entry.id for entry in entries] == expected.token_ids
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == expected.text
    for entry, logprob in zip(entries, expected.logprobs or (), strict=True):
        assert entry.logprob == pytest.approx(logprob, abs=NEAR_TIE)
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy


def test_stop_length_and_bias(client: OpenAI, alone: Engine) -> None:
    whole = ask(client, temperature=0).choices[0].message.content
    cut = ask(client, temperature=0, stop=["```"]).choices[0]
    assert (cut.message.content, cut.finish_reason) == (whole.partition("```")[0], "stop")
    short = ask(client, temperature=0, max_tokens=3).choices[0]
    assert short.finish_reason == "length"
    assert whole.startswith(short.message.content)
    (first,) = alone.generate(QUESTION, temperature=0, max_tokens=1).token_ids
    banned = ask(client, temperature=0, max_tokens=1, logit_bias={str(first): -100})
    assert banned.choices[0].message.content != short.message.content[:3]


def test_structured_output(client: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"command": {"type": "string", "maxLength": 8}, "safe": {"type": "boolean"}},
        "required": ["command", "safe"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": schema}}
    for seed in range(4):
        answer = ask(client, response_format=wanted, seed=seed, temperature=1)
        jsonschema.validate(json.loads(answer.choices[0].message.content), schema)
    free = ask(client, response_format={"type": "json_object"}, seed=1, max_tokens=400)
    if free.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(free.choices[0].message.content), dict)


@pytest.mark.parametrize("member", ["schema", "value"])
def test_a_schema_beside_json_object_is_followed(client: OpenAI, member: str) -> None:
    """llama-server has it as schema; TGI as value, which huggingface_hub makes of every schema."""
    schema = {
        "type": "object",
        "properties": {"safe": {"enum": ["yes", "no"]}},
        "required": ["safe"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_object", member: schema}
    answer = ask(client, extra_body={"response_format": wanted}, temperature=0, max_tokens=90)
    jsonschema.validate(json.loads(answer.choices[0].message.content), schema)


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({"model": "gpt-7"}, 404, "ask for terminal-9m-q8_0"),
        ({"messages": []}, 400, "messages is empty"),
        ({"messages": None}, 400, "messages is missing"),
        ({"messages": [{"role": "alien", "content": "x"}]}, 400, "messages[0].role is 'alien'"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "must be text"),
        ({"temperature": -1}, 400, "temperature is -1; it must be at least 0"),
        ({"temperature": "hot"}, 400, "temperature is 'hot'; it must be a number"),
        ({"n": 99}, 400, "n is 99; it must be at most 16"),
        ({"max_tokens": 0}, 400, "max_tokens is 0"),
        ({"seed": 1.5}, 400, "seed is 1.5; it must be a whole number"),
        ({"response_format": {"type": "xml"}}, 400, "its type is text, json_object"),
        (
            {"response_format": {"type": "json_object", "value": 1}},
            400,
            '"json_object", "value": 1',
        ),
        (
            {"response_format": {"type": "json_schema", "strict": True, "schema": None}},
            400,
            'response_format is {"type": "json_schema", "strict": true',
        ),
        ({"logit_bias": {"999999": 1}}, 400, "logit_bias token is 999999"),
        ({"draft_model": "x"}, 400, "drafter is 'x'; loaded: suffix and terminal-5m-q4_0"),
        ({"localspec": {"draft": "x"}}, 400, "drafter is 'x'; loaded: suffix"),
        ({"speculative.type": "eagle3"}, 400, "speculative.type is 'eagle3'"),
        ({"localspec": {"depht": 1}}, 400, "no member 'depht'"),
        ({"localspec": {"rule": "best"}}, 400, "localspec.rule is 'best'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_what_cannot_be_answered(
    served: Served, changed: dict[str, Any], status: int, said: str
) -> None:
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 4, **changed}
    for stream in (False, True):
        answer = served.post("/v1/chat/completions", {**body, "stream": stream})
        assert answer.status_code == status
        error = answer.json()["error"]
        assert said in error["message"]
        assert "\n" not in error["message"]
        assert error["type"] in ("invalid_request_error", "not_found_error")
    assert served.busy == 0


@pytest.mark.parametrize("name", ["suffix", "terminal-5m-q4_0"])
def test_a_drafter_is_chosen_for_one_text(client: OpenAI, alone: Engine, name: str) -> None:
    """And changes nothing but who drafts."""
    expected = alone.generate(QUESTION, temperature=0, max_tokens=60)
    for chosen in (
        {"draft_model": name, "localspec": {"depth": 3}},
        {"localspec": {"draft": name, "depth": 3}},
        {"draft_model": name},
    ):
        answer = ask(client, temperature=0, max_tokens=60, extra_body=chosen)
        assert answer.choices[0].message.content == expected.text
        drafters = {*answer.localspec["drafters"]}
        assert drafters <= {name}
        # With nothing to copy, the text is drafted by a model only.
        assert drafters or name == "suffix" or "localspec" not in chosen


def test_the_client_raises_its_own_errors(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="is not served here"):
        ask(client, model="gpt-7")
    with pytest.raises(openai.BadRequestError) as raised:
        ask(client, messages=[{"role": "user", "content": "word " * 2000}])
    assert raised.value.code == "context_length_exceeded"


@pytest.mark.parametrize(
    ("path", "prompt"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]}),
        ("/v1/responses", {"input": LONG}),
        ("/completion", {"prompt": LONG}),
    ],
    ids=["chat", "responses", "completion"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_says_by_how_much(
    served: Served, path: str, prompt: dict[str, Any], stream: bool
) -> None:
    """In the words of each server whose clients shorten their conversations then."""
    answer = served.post(path, {**prompt, "stream": stream})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert error["code"] == "context_length_exceeded"
    assert error["n_ctx"] == 1024
    counted = error["n_prompt_tokens"]
    assert error["message"] == (
        f"prompt is too long: {counted} tokens > 1023 maximum; shorten it, or start the server "
        "with a larger --ctx (this model's maximum context length is 1024 tokens)"
    )
    if path == "/completion":
        asked = {"content": LONG, "add_special": True}
        assert counted == len(served.post("/tokenize", asked).json()["tokens"])


def test_several_answers_share_their_prompt(client: OpenAI, served: Served) -> None:
    def cached() -> float:
        lines = served.get("/metrics").text.splitlines()
        name = "localspec:cached_prompt_tokens_total "
        return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))

    before = cached()
    messages = [{"role": "user", "content": "How do I list files that begin with 9471? " * 20}]
    answer = ask(client, messages=messages, n=3, max_tokens=4)
    read = answer.usage.prompt_tokens
    assert read > 100
    assert cached() - before >= 2 * (read - 1)


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_what_is_said_of_several_answers_is_of_all(served: Served, path: str) -> None:
    asked = {"n": 3, "seed": 5, "temperature": 1, "localspec": {"depth": 4}, "max_tokens": 12}
    body = {**asked, "messages": QUESTION} if "chat" in path else {**asked, "prompt": "How do I"}
    answer = served.post(f"/v1/{path}", body).json()
    drafts, usage = answer["metrics"]["speculative_decoding"], answer["usage"]
    details = usage["completion_tokens_details"]
    assert usage["completion_tokens"] > asked["max_tokens"]
    assert answer["timings"]["predicted_n"] == usage["completion_tokens"]
    assert answer["timings"]["draft_n"] == drafts["num_draft_tokens"]
    assert answer["timings"]["draft_n_accepted"] == drafts["num_accepted_draft_tokens"]
    # Nothing was predicted.
    assert details["accepted_prediction_tokens"] == details["rejected_prediction_tokens"] == 0
    assert sum(drafts["acceptance_histogram"]) == drafts["num_spec_steps"]


def test_histories_with_oddities(client: OpenAI) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1, "y'}}
    odd: list[list[dict[str, Any]]] = [
        [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}, *QUESTION],
        [*QUESTION, {"role": "developer", "content": "Be brief."}],
        [{"role": "assistant", "content": "Hello."}, *QUESTION],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": None}, *QUESTION],
        [*QUESTION, {"role": "assistant", "content": None, "tool_calls": [call]},
         {"role": "tool", "tool_call_id": "a", "content": "7"}],
        [{"role": "user", "content": [{"type": "text", "text": word} for word in ("ls", "?")]}],
    ]  # fmt: skip
    for messages in odd:
        assert ask(client, messages=messages, max_tokens=3).usage.completion_tokens > 0


def test_texts_at_once_are_those_alone(client: OpenAI, alone: Engine) -> None:
    """More requests than slots, of which some end early, and some readers leave.

    In company the last digits of logits may be others, which decides near ties only.
    """
    questions = ["list files", "copy a folder", "find large files", "stop a process", "what is tar"]

    def options(number: int) -> dict[str, Any]:
        chosen: dict[str, Any] = {"temperature": 0, "max_tokens": 20 + 3 * number}
        return {**chosen, "stop": ["`:"]} if number % 5 == 2 else chosen

    def write(number: int) -> list[int]:
        messages = [{"role": "user", "content": questions[number % len(questions)]}]
        answer = ask(client, messages=messages, logprobs=True, stream=True, **options(number))
        ids = []
        for part in answer:
            if part.choices and part.choices[0].logprobs:
                ids += [entry.id for entry in part.choices[0].logprobs.content]
            if number == 4:
                break
        answer.close()
        return ids

    with ThreadPoolExecutor(10) as pool:
        written = list(pool.map(write, range(10)))
    ties = 0
    for number, ids in enumerate(written):
        messages = [{"role": "user", "content": questions[number % len(questions)]}]
        expected = alone.generate(messages, logprobs=True, top_logprobs=2, **options(number))
        if number != 4 and ids != expected.token_ids:
            ties += 1
            pairs = zip(ids, expected.token_ids, strict=False)
            at = next(at for at, (one, other) in enumerate(pairs) if one != other)
            (_, first), (second, close) = (expected.top_logprobs or [])[at]
            assert ids[at] == second
            assert first - close < NEAR_TIE
    assert ties < 5
