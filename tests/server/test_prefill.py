"""A last message of the assistant is continued: the reply holds only what is new."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic
from fakes import templates
from fakes.served import Served
from openai import OpenAI

from localspec.llama.model import Model
from localspec.server.chat_prompt import CONTINUE, ChatPrompt, chat_prompt

QUESTION: Any = [{"role": "user", "content": "ls"}]
ANSWER = {"role": "assistant", "content": "It is "}
THOUGHT = {**ANSWER, "reasoning_content": "hm"}
# Begins each answer with reasoning, and forgets that of earlier ones.
R1 = """{% for m in messages %}{{ '<' ~ m.role ~ '>' }}
{{- m.content.split('</think>')[-1] | trim }}<end>{% endfor -%}
{% if add_generation_prompt %}{{ '<assistant><think>\\n' }}{% endif %}"""
# Closes reasoning in its own way, and writes none where there is none.
CLOSES = """{% for m in messages %}{{ '<' ~ m.role ~ '>' -}}
{% if m.reasoning_content %}{{ '<think>' ~ m.reasoning_content ~ '</think>|' }}{% endif -%}
{{ m.content }}<end>{% endfor -%}
{% if add_generation_prompt %}{{ '<assistant><think>' }}{% endif %}"""
# Refuses an answer at the end.
REFUSES = """{% for m in messages %}{% if m.role == 'assistant' and loop.last -%}
{{ raise_exception('The last message must be of the user.') }}{% endif -%}
{{ '<' ~ m.role ~ '>' ~ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}
"""
CHANNELS = """{% for m in messages %}{{ '<|start|>' ~ m.role }}
{%- if m.thinking %}{{ '<|channel|>analysis<|message|>' ~ m.thinking -}}
{{ '<|end|><|start|>assistant' }}{% endif -%}
{{ '<|channel|>final' if m.role == 'assistant' }}{{ '<|message|>' ~ m.content }}<|end|>
{%- endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"""


def prompt(template: str, last: dict[str, Any], **options: Any) -> ChatPrompt:
    model: Any = SimpleNamespace(chat_template=template, bos=-1, eos=-1)
    return chat_prompt(model, [*QUESTION, last], None, {CONTINUE: True, **options})


@pytest.mark.parametrize(
    ("template", "last", "header"),
    [
        (templates.CHATML, ANSWER, ""),
        (templates.LLAMA3, ANSWER, ""),
        (templates.GEMMA, ANSWER, ""),
        (templates.QWEN3, THOUGHT, "<think>\nhm\n</think>\n\n"),
        (templates.QWEN3, {**ANSWER, "content": "<think>\nhm\n</think>\n\nIt is "},
         "<think>\nhm\n</think>\n\n"),
        (R1, ANSWER, "\n</think>\n\n"),
        (R1, THOUGHT, "hm\n</think>\n\n"),
        (CLOSES, ANSWER, "</think>|"),
        (CLOSES, THOUGHT, "hm</think>|"),
        (REFUSES, ANSWER, ""),
        (CHANNELS, ANSWER, "<|channel|>final<|message|>"),
        (CHANNELS, THOUGHT, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant"
         "<|channel|>final<|message|>"),
    ],
)  # fmt: skip
def test_the_text_stands_where_the_model_would_have_written_it(
    template: str, last: dict[str, Any], header: str
) -> None:
    """Behind the beginning of its own turn, its spaces included, and with its reasoning closed."""
    found = prompt(template, last)
    model: Any = SimpleNamespace(chat_template=template, bos=-1, eos=-1)
    assert found.turn == chat_prompt(model, QUESTION, None, {}).text
    assert (found.header, found.continued) == (header, "It is ")
    assert not found.thinking


@pytest.mark.parametrize(
    ("template", "header"),
    [
        (templates.QWEN3, "<think>\n"),
        (R1, ""),
        (CLOSES, ""),
        (CHANNELS, "<|channel|>analysis<|message|>"),
    ],
)
def test_reasoning_alone_is_continued(template: str, header: str) -> None:
    found = prompt(template, {"role": "assistant", "content": "", "reasoning_content": "hm"})
    assert (found.header, found.continued, found.thinking) == (header, "hm", True)


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    "last",
    [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "Wait", "tool_calls": [CALL]},
        {"role": "assistant", "content": "", "reasoning_content": "hm"},  # which it knows not of
    ],
    ids=["question", "nothing", "call", "reasoning"],
)
def test_what_cannot_go_on_is_answered(last: dict[str, Any]) -> None:
    assert prompt(templates.CHATML, last) == prompt(templates.CHATML, last, **{CONTINUE: False})


def test_the_tokens_are_those_of_the_models_own_turn(target_model: Model) -> None:
    """Where the turn begins, no token reaches over, as none does when the model writes."""
    found = ChatPrompt("list fi", "", "les").tokens(target_model)
    assert found == target_model.tokenize("list fi") + target_model.tokenize_after("les")
    assert found != target_model.tokenize("list files")


def ask(client: OpenAI, messages: list[Any], **options: Any) -> Any:
    settings: dict[str, Any] = {"model": "localspec", "messages": messages, "temperature": 0}
    return client.chat.completions.create(**{**settings, "max_tokens": 60, **options})


LONG: Any = [{"role": "user", "content": "How do I list files by size?"}]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_goes_on_as_it_would_have(client: OpenAI, stream: bool) -> None:
    whole = ask(client, LONG, logprobs=True)
    pieces = [bytes(entry.bytes).decode() for entry in whole.choices[0].logprobs.content]
    for count in (1, 5, 10):
        start = {"role": "assistant", "content": "".join(pieces[:count])}
        answer = ask(client, [*LONG, start], max_tokens=60 - count, stream=stream)
        if stream:
            parts = [choice.delta.content or "" for part in answer for choice in part.choices]
            assert "".join(parts) == "".join(pieces[count:])
            continue
        assert answer.choices[0].message.content == "".join(pieces[count:])
        read = answer.usage.prompt_tokens_details.cached_tokens
        assert answer.usage.prompt_tokens == whole.usage.prompt_tokens + count
        assert read == answer.usage.prompt_tokens - 1


def test_a_message_of_claude_goes_on(claude: Anthropic, client: OpenAI) -> None:
    whole = ask(client, LONG).choices[0].message.content
    messages = [*LONG, {"role": "assistant", "content": [{"type": "text", "text": whole[:12]}]}]
    settings: Any = {"model": "localspec", "messages": messages, "max_tokens": 60}
    answer = claude.messages.create(**settings, extra_body={"temperature": 0})
    again = ask(client, [*LONG, {"role": "assistant", "content": whole[:12]}])
    assert answer.content[0].text == again.choices[0].message.content
    counted = claude.messages.count_tokens(model="localspec", messages=messages)
    assert counted.input_tokens == again.usage.prompt_tokens


def test_a_client_may_ask_for_another_answer(client: OpenAI) -> None:
    start = {"role": "assistant", "content": "Use"}
    anew = [
        ask(client, [*LONG, start], extra_body=extra).choices[0].message.content
        for extra in ({CONTINUE: False}, {"add_generation_prompt": True})
    ]
    goes_on = ask(client, [*LONG, start], extra_body={CONTINUE: True})
    assert anew[0] == anew[1] != goes_on.choices[0].message.content


@pytest.mark.parametrize(
    ("messages", "flags"),
    [
        (QUESTION, {CONTINUE: True}),
        (QUESTION, {"add_generation_prompt": False}),
        ([*QUESTION, {"role": "assistant", "tool_calls": [CALL]}], {CONTINUE: True}),
        ([*QUESTION, ANSWER], {CONTINUE: True, "add_generation_prompt": True}),
    ],
)
def test_what_cannot_be_continued_is_refused(
    served: Served, messages: list[Any], flags: dict[str, bool]
) -> None:
    answer = served.post("/v1/chat/completions", {"messages": messages, **flags})
    assert answer.status_code == 400
    assert "left out" in answer.json()["error"]["message"]


def test_a_text_behind_reasoning_goes_on(strict: Served) -> None:
    """The newline is its own, and no reasoning begins again."""
    body = {
        "grammar": 'root ::= "\\n<think>es"',
        "temperature": 0,
        "messages": [*QUESTION, THOUGHT],
    }
    [choice] = strict.post("/v1/chat/completions", body).json()["choices"]
    assert choice["message"]["content"] == "\n<think>es"
    assert "reasoning_content" not in choice["message"]


def test_reasoning_goes_on(strict: Served) -> None:
    body = {
        "messages": [*QUESTION, {"role": "assistant", "content": "", "reasoning_content": "h"}],
        "grammar": 'root ::= "\\nm</think>yes"',
        "temperature": 0,
    }
    [choice] = strict.post("/v1/chat/completions", body).json()["choices"]
    assert (choice["message"]["reasoning_content"], choice["message"]["content"]) == ("\nm", "yes")


def test_a_call_may_follow_a_text_that_goes_on(strict: Served) -> None:
    call = json.dumps({"name": "look", "arguments": {}})
    body = {
        "messages": [*QUESTION, {"role": "assistant", "content": "I look."}],
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}],
        "grammar": f"root ::= {json.dumps(f' <tool_call>{call}</tool_call>')}",
        "temperature": 0,
    }
    [choice] = strict.post("/v1/chat/completions", body).json()["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "look"
