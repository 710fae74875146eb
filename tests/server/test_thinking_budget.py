"""A budget of reasoning: what clients send, and what becomes of the text at its end."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from fakes import templates
from fakes.served import Served, serving
from fakes.tiny import write_tiny
from openai import OpenAI

import localspec
from localspec.engine.prompt import template_tokens
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.thinking_budget import NO_BUDGET, thinking_budget
from localspec.server.tool_calls.families import HARMONY
from localspec.server.tool_calls.harmony_calls import MARKS

QUESTION: Any = [{"role": "user", "content": "ls ls ls ls"}]
# Of the reasoning, of all, and of the closing tag, a character each.
BUDGET, TOKENS, CLOSING = 12, 40, len("\n</think>\n\n")
CHAT: dict[str, Any] = {
    "messages": QUESTION,
    "temperature": 0.7,
    "seed": 7,
    "max_tokens": TOKENS,
    "ignore_eos": True,
}
SPENT: dict[str, Any] = {**CHAT, "thinking_budget_tokens": BUDGET}
FUNCTION = {"name": "open_file", "parameters": {"properties": {"mode": {"enum": ["r", "w"]}}}}
GRAMMAR = 'root ::= "yes" | "no"'
TOOLS: list[Any] = [{"type": "function", "function": FUNCTION}]


def answered(served: Served, **asked: Any) -> tuple[str, str, dict[str, Any]]:
    """The reasoning, the text, and the whole body of an answer."""
    found = served.post("/v1/chat/completions", {**SPENT, **asked})
    assert found.status_code == 200, found.text
    body = found.json()
    message = body["choices"][0]["message"]
    return message.get("reasoning_content", ""), message["content"] or "", body


def streamed(served: Served, **asked: Any) -> tuple[str, str]:
    lines = served.post("/v1/chat/completions", {**SPENT, **asked, "stream": True}).text
    parts = [
        json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
        for line in lines.splitlines()
        if line.startswith("data: {")
    ]
    names = ("reasoning_content", "content")
    thought, said = ("".join(part.get(name) or "" for part in parts) for name in names)
    return thought, said


@pytest.mark.parametrize(
    ("body", "budget"),
    [
        ({}, None),
        ({"thinking_budget_tokens": 5}, 5),
        ({"reasoning_budget_tokens": 5}, 5),
        ({"thinking_budget": 5}, 5),
        ({"thinking_token_budget": 5}, 5),
        ({"reasoning": {"max_tokens": 5}}, 5),
        ({"reasoning": True}, None),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, 5),
        ({"chat_template_kwargs": {"thinking_budget": 5}}, 5),
        ({"thinking_budget_tokens": 0, "grammar": "x"}, 0),
        ({"thinking_budget_tokens": -1, "grammar": "x"}, NO_BUDGET),
        ({"thinking_budget_tokens": None, "thinking_budget": 3}, 3),
    ],
    ids=str,
)
def test_what_names_a_budget(body: dict[str, Any], budget: int | None) -> None:
    assert thinking_budget(Fields(body), None) == budget


def test_a_template_that_knows_budgets_keeps_them_itself() -> None:
    body = Fields({"chat_template_kwargs": {"thinking_budget": 5}})
    assert thinking_budget(body, "{{ thinking_budget }}") is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"thinking_budget_tokens": -2}, "thinking_budget_tokens is -2"),
        ({"thinking": {"budget_tokens": "x"}}, "thinking.budget_tokens is 'x'"),
        ({"thinking_budget": 5, "grammar": 'root ::= "x"'}, "budget is 5, and the grammar"),
    ],
    ids=str,
)
def test_budgets_that_cannot_be_kept(body: dict[str, Any], named: str) -> None:
    with pytest.raises(ApiError, match=named):
        thinking_budget(Fields(body), None)


def test_channels_have_no_budget() -> None:
    assert HARMONY.always_read
    with pytest.raises(ApiError, match="send reasoning_effort"):
        thinking_budget(Fields({"thinking_budget": 5}), "".join(MARKS))
    assert thinking_budget(Fields({"thinking_budget": 0}), "".join(MARKS)) == 0


def test_reasoning_ends_at_its_budget(strict: Served) -> None:
    free, nothing, _ = answered(strict, thinking_budget_tokens=NO_BUDGET)
    assert free and not nothing
    thought, said, body = answered(strict)
    assert thought and free.startswith(thought) and len(thought) < len(free)
    assert said
    usage = body["usage"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == BUDGET
    # What counts for `max_tokens` is in the usage, also the closing tag, which nobody generated.
    assert usage["completion_tokens"] == TOKENS
    assert usage["total_tokens"] == usage["prompt_tokens"] + TOKENS
    assert usage["prompt_tokens"] == answered(strict, max_tokens=1)[2]["usage"]["prompt_tokens"]
    assert body["localspec"]["thinking_budget_spent"]
    assert body["choices"][0]["finish_reason"] == "length"
    assert streamed(strict) == (thought, said)


@pytest.mark.parametrize("temperature", [0, 0.7])
def test_drafts_and_company_do_not_change_it(strict: Served, temperature: float) -> None:
    alone = answered(strict, temperature=temperature)[:2]
    plain = answered(strict, temperature=temperature, localspec={"draft": "none"})[:2]
    deep = answered(strict, temperature=temperature, localspec={"depth": 6})
    assert alone == plain == deep[:2]
    with ThreadPoolExecutor() as pool:
        asked = [pool.submit(answered, strict, temperature=temperature) for _ in range(4)]
        assert {each.result()[:2] for each in asked} == {alone}
    assert deep[2]["timings"]["draft_n"] > 0


@pytest.mark.parametrize("rule", ["token", "block"])
def test_the_other_rules_keep_the_budget(strict: Served, rule: str) -> None:
    _, said, body = answered(strict, localspec={"rule": rule})
    assert said
    tokens = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert BUDGET <= tokens <= BUDGET + 3  # it ends no character in the middle


def test_what_follows_is_read_behind_the_closing_tag(strict: Served) -> None:
    """As a prompt, with the reasoning and the tag, it is continued with the same text."""
    _, said, body = answered(strict)
    count = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
    history = strict.post("/apply-template", {"messages": QUESTION}).json()["prompt"]
    model = strict.process.args[4]  # type: ignore[index]
    settings: Any = {"seed": 7, "temperature": 0.7, "ignore_eos": True}
    with localspec.load(model, draft="none", threads=1) as engine:
        prompt = template_tokens(history, engine.model)
        thought = engine.generate(prompt, max_tokens=count, **settings).token_ids
        closing = engine.model.tokenize_after("\n</think>\n\n")
        assert len(closing) == CLOSING
        prompt += [*thought, *closing]
        rest = engine.generate(prompt, max_tokens=TOKENS - count - CLOSING, **settings).text
    assert said == rest.lstrip("\n")


def test_no_budget_at_all_closes_reasoning_at_once(strict: Served) -> None:
    for asked in ({}, {"enable_thinking": True}):
        thought, said, body = answered(strict, thinking_budget_tokens=0, **asked)
        assert not thought and said
        assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 0


def test_calls_and_json_follow_reasoning_that_was_ended(strict: Served) -> None:
    thought, _, body = answered(
        strict, tools=TOOLS, tool_choice="required", max_tokens=400, ignore_eos=False
    )
    call = body["choices"][0]["message"]["tool_calls"][0]["function"]
    assert thought and body["localspec"]["thinking_budget_spent"]
    assert call["name"] == "open_file" and isinstance(json.loads(call["arguments"]), dict)
    schema = {"type": "json_schema", "json_schema": {"schema": {"enum": ["r", "w"]}}}
    ends = {"response_format": schema, "ignore_eos": False}
    thought, said, _ = answered(strict, **ends)
    assert thought and json.loads(said) in ("r", "w")
    thought, said, _ = answered(strict, **ends, thinking_budget_tokens=0)
    assert not thought and json.loads(said) in ("r", "w")


def test_log_probabilities_are_of_the_tokens_that_the_model_wrote(strict: Served) -> None:
    body = answered(strict, logprobs=True)[2]
    assert len(body["choices"][0]["logprobs"]["content"]) == TOKENS - CLOSING


def test_a_full_context_ends_it(strict: Served) -> None:
    size = strict.get("/props").json()["default_generation_settings"]["n_ctx"]
    prompt = answered(strict, max_tokens=1)[2]["usage"]["prompt_tokens"]
    budget = size - prompt - 2
    _, said, body = answered(strict, max_tokens=-1, thinking_budget_tokens=budget)
    assert not said and body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == budget


def test_the_budgets_of_clients(strict: Served) -> None:
    said: Any = {"ignore_eos": True, "seed": 7, "temperature": 0.7}
    thought, text, _ = answered(strict)
    with OpenAI(base_url=f"{strict.url}/v1", api_key="none", max_retries=0) as client:
        items: list[Any] = client.responses.create(
            model="strict",
            input="ls ls ls ls",
            max_output_tokens=TOKENS,
            extra_body={**said, "reasoning": {"max_tokens": BUDGET}},
        ).output
    assert (items[0].content[0].text, items[1].content[0].text) == (thought, text)
    with Anthropic(base_url=strict.url, api_key="none", max_retries=0) as client:
        settings: Any = {"model": "strict", "max_tokens": TOKENS, "messages": QUESTION}
        settings["thinking"] = {"type": "enabled", "budget_tokens": BUDGET}
        blocks: list[Any] = [*client.messages.create(**settings, extra_body=said).content]
        with client.messages.stream(**settings, extra_body=said) as stream:
            again: list[Any] = [*stream.get_final_message().content]
    assert [block.type for block in blocks] == ["thinking", "text"]
    assert (blocks[0].thinking, blocks[1].text) == (thought, text)
    assert (again[0].thinking, again[1].text) == (thought, text)


@pytest.mark.slow
def test_a_server_without_reasoning_leaves_a_grammar_the_text(
    tmp_path: Path, own_cache: None
) -> None:
    file = tmp_path / "strict.gguf"
    write_tiny(file, "llama", quantised=False, template=templates.STRICT, context=2048)
    with serving(str(file), "--threads", "1", "--thinking-budget", "0") as served:
        asked = {"thinking_budget_tokens": None, "grammar": GRAMMAR, "ignore_eos": False}
        thought, said, body = answered(served, **asked)
        closed = answered(served, **{**asked, "thinking_budget_tokens": 0})[2]
    assert not thought and said in ("yes", "no")
    assert body["usage"]["prompt_tokens"] == closed["usage"]["prompt_tokens"]


def test_a_request_that_forbids_every_token_is_told_so(strict: Served) -> None:
    """Clients send what the server failed at again, and again."""
    found = strict.post("/v1/chat/completions", {**CHAT, "thinking_budget": 0, "grammar": GRAMMAR})
    assert found.status_code == 400 and "every token is forbidden" in found.text


@pytest.mark.slow
def test_the_budget_of_a_server(tmp_path: Path, own_cache: None) -> None:
    """It holds where a request says nothing, and a request may have none."""
    file = tmp_path / "strict.gguf"
    write_tiny(file, "llama", quantised=False, template=templates.STRICT, context=2048)
    with serving(str(file), "--threads", "1", "--thinking-budget", str(BUDGET)) as served:
        unsaid = {"thinking_budget_tokens": None}
        thought, said, body = answered(served, **unsaid)
        assert thought and said
        assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == BUDGET
        assert not answered(served, thinking_budget_tokens=NO_BUDGET)[1]
