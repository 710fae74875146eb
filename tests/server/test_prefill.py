"""A last message of the assistant is continued: the reply holds only what is new."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic
from fakes import templates
from fakes.served import Served
from fakes.tiny import write_tiny
from openai import OpenAI

import localspec
from localspec.errors import InvalidValueError
from localspec.llama.model import Model
from localspec.server.chat_input import ChatInput
from localspec.server.chat_prompt import CONTINUE, REQUIRED, ChatPrompt, chat_prompt
from localspec.server.options import TextSettings
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool

QUESTION: Any = [{"role": "user", "content": "ls"}]
ONLY_NEWLINES: Any = {"logit_bias": {"13": 100}, "temperature": 0, "max_tokens": 2}
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
# Writes empty reasoning too.
ALWAYS = CLOSES.replace("if m.reasoning_content", "if m.role == 'assistant'")
# Begins each answer with reasoning in tags of another kind, or writes only that of others.
OTHER_TAGS = CLOSES.replace("think>", "mm:think>")
OTHERS_TAGS = OTHER_TAGS.replace("<assistant><mm:think>", "<assistant>")
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
    model: Any = SimpleNamespace(chat_template=template, bos=-1, eos=-1, projector=None)
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
        (templates.PARTS, ANSWER, ""),
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
    model: Any = SimpleNamespace(chat_template=template, bos=-1, eos=-1, projector=None)
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


OFF = {"enable_thinking": False}


@pytest.mark.parametrize(
    ("template", "options"),
    [(templates.CHATML, {}), (templates.QWEN3, {}), (templates.QWEN3, OFF), (R1, {}), (CLOSES, {}),
     (ALWAYS, {}), (templates.STRICT, {}), (templates.STRICT, OFF)],
)  # fmt: skip
@pytest.mark.parametrize(
    ("text", "continued"),
    [
        ("<think>\n\n</think>\n\n", ""),
        ("<think>\nhm\n</think>\n\n", ""),
        ("<think>hm</think>It is ", "It is "),
        ("<think>\n\n</think>\n\nIt is </think>", "It is </think>"),
        ("<think>\n", ""),
        ("<think>", ""),
        ("<think>\nhm\n", "hm\n"),
    ],
)
def test_tags_in_the_text_stand_as_they_were_sent(
    template: str, options: dict[str, bool], text: str, continued: str
) -> None:
    """In the place of those that the template would begin the turn with."""
    found = prompt(template, {"role": "assistant", "content": text}, **options)
    before = prompt(template, {"role": "user", "content": "x"}, **options).text
    begun = before[before.rindex("x") + 1 :].partition("<think>")[0]
    assert found.text.endswith(f"ls{begun}{text}")
    assert (found.continued, found.thinking) == (continued, "</think>" not in text)


@pytest.mark.parametrize("thought", ["", "hm"])
def test_reasoning_that_has_ended_in_a_channel_is_not_opened_again(thought: str) -> None:
    text = f"<think>\n{thought}\n</think>\n\n"
    whole = prompt(CHANNELS, {"role": "assistant", "content": f"{text}It is "})
    found = prompt(CHANNELS, {"role": "assistant", "content": text})
    assert found == replace(whole, continued="")


def test_tags_that_the_template_does_not_know_are_text() -> None:
    """It stands where the template has texts."""
    template = templates.CHATML.replace("{{- message.content", "{{- 'says: ' ~ message.content")
    found = prompt(template, {"role": "assistant", "content": "<think>hm</think>It is "})
    assert found.text.endswith("<|im_start|>assistant\nsays: <think>hm</think>It is ")


def test_an_opening_tag_may_be_left_to_the_template() -> None:
    text = "Done thinking.\n</think>\n\n"
    found = prompt(R1, {"role": "assistant", "content": text})
    assert found.text.endswith(f"<assistant><think>\n{text}")
    assert (found.continued, found.thinking) == ("", False)


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
    """And where it must go on, that is refused."""
    for template in (templates.CHATML, OTHER_TAGS, OTHERS_TAGS):
        assert prompt(template, last) == prompt(template, last, **{CONTINUE: False})
        with pytest.raises(InvalidValueError, match=f"{CONTINUE} is true"):
            prompt(template, last, **{CONTINUE: REQUIRED})


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
    """The newlines are its own, and no reasoning begins again."""
    body = {"messages": [*QUESTION, THOUGHT], **ONLY_NEWLINES}
    [choice] = strict.post("/v1/chat/completions", body).json()["choices"]
    assert choice["message"]["content"] == "\n\n"
    assert "reasoning_content" not in choice["message"]


@pytest.mark.parametrize("text", ["It is ", "<think>hm</think>", "<think>hm</think>It is "])
def test_what_comes_behind_a_text_is_no_reasoning(tmp_path: Path, text: str) -> None:
    model = write_tiny(tmp_path / "tiny.gguf", "llama", template=templates.STRICT, context=512)
    messages = [*QUESTION, {"role": "assistant", "content": text}]
    with localspec.load(model, "none", threads=1) as engine:
        service = Service(engine, SlotPool(engine, 1, 1), ["m"])
        for goes_on in (True, False):
            options = {CONTINUE: goes_on}
            chat = service.inputs.chat(ChatInput(messages, TextSettings(), options))
            assert (asyncio.run(chat).tags is None) == goes_on


@pytest.mark.parametrize(
    "last", [{"content": "", "reasoning_content": "h"}, {"content": "<think>h"}], ids=str
)
def test_reasoning_goes_on(strict: Served, last: dict[str, str]) -> None:
    body = {"messages": [*QUESTION, {"role": "assistant", **last}], **ONLY_NEWLINES}
    [choice] = strict.post("/v1/chat/completions", body).json()["choices"]
    assert choice["message"]["reasoning_content"] == "\n\n"
    assert not choice["message"]["content"]


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CONSTRAINTS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_object"}},
    {"grammar": 'root ::= "{}"'},
    {"tools": [TOOL], "tool_choice": "required"},
]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=[*("schema", "grammar", "call")])
def test_what_a_grammar_describes_is_a_whole_answer(
    served: Served, constraint: dict[str, Any]
) -> None:
    """It does not begin behind a brace that it would write again."""
    body = {"messages": [*QUESTION, {"role": "assistant", "content": "{"}], "max_tokens": 40}

    def ask(**flags: bool) -> Any:
        return served.post("/v1/chat/completions", {**body, **constraint, **flags})

    anew = ask(**{CONTINUE: False}).json()["usage"]["prompt_tokens"]
    assert ask().json()["usage"]["prompt_tokens"] == anew
    for flag in ({CONTINUE: True}, {"add_generation_prompt": False}):
        answer = ask(**flag)
        assert answer.status_code == 400
        assert "whole answer" in answer.json()["error"]["message"]


def test_json_for_claude_is_a_whole_answer(claude: Anthropic) -> None:
    form = {"type": "json_schema", "schema": {"enum": ["yes"]}}
    answer = claude.messages.create(
        model="localspec",
        max_tokens=40,
        messages=[*QUESTION, {"role": "assistant", "content": '"y'}],
        extra_body={"output_config": {"format": form}},
    )
    assert json.loads(answer.content[0].text) == "yes"


def test_reasoning_that_the_template_does_not_write_is_refused(served: Served) -> None:
    """Where it was asked for; else the answer begins."""
    thought = {"role": "assistant", "content": "", "reasoning_content": "hm"}
    body = {"messages": [*QUESTION, thought], "max_tokens": 4}
    for path in ("/v1/chat/completions", "/apply-template"):
        assert served.post(path, body).status_code == 200
        answer = served.post(path, {**body, CONTINUE: True})
        assert answer.status_code == 400
        assert f"{CONTINUE} is true" in answer.json()["error"]["message"]


def test_a_named_message_may_be_of_another(served: Served) -> None:
    """Group chats send the words of another agent last: it goes on only where that is asked for."""

    def prompt(name: str | None, **flags: bool) -> str:
        last = {"role": "assistant", "content": "Use", **({"name": name} if name else {})}
        return served.post("/apply-template", {"messages": [*QUESTION, last], **flags}).json()[
            "prompt"
        ]

    assert prompt("critic") == prompt(None, **{CONTINUE: False}) != prompt(None)
    assert prompt("critic", **{CONTINUE: True}) == prompt(None)
