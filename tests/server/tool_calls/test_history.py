"""Histories as templates take them: whatever came from a client, the template renders it."""

import json
from typing import Any

import pytest
from fakes import templates
from hypothesis import given
from hypothesis import strategies as st

from localspec.llama.chat_template import render
from localspec.server.rendering import writes_later_system
from localspec.server.tool_calls import Family, families
from localspec.server.tool_calls.history import for_template, short_id

TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object"}},
}

# Templates that insist on something, as models' own do.
OBJECTS = """{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content }}
{%- for call in m.tool_calls or [] %}{% for key, value in call.function.arguments.items() -%}
{{ call.function.name ~ '.' ~ key ~ '=' ~ value }}{% endfor %}{% endfor %}{% endfor %}"""
TEXTS = """{% for m in messages %}
{%- if m['role'] == 'assistant' and m['content'] is none %}{% for call in m['tool_calls'] -%}
{{ '<' + call['type'] + '>' + call['function']['name'] + call['function']['arguments'] + '>' }}
{%- endfor %}{% else %}{{ '<' + m['role'] + '>' + m['content'] }}{% endif %}{% endfor %}"""
ONE_CALL = """{% for m in messages %}{% if 'tool_calls' in m %}{% if m.tool_calls|length != 1 %}
{{- raise_exception('This model only supports single tool-calls at once!') }}{% endif %}
{{- m.tool_calls[0].function.arguments | tojson }}{% else %}{{ '<' + m.role + '>' + m.content }}
{%- endif %}{% endfor %}"""
FIRST_SYSTEM = """{% for m in messages %}{% if m.role == 'system' and not loop.first -%}
{{ raise_exception('System message must be at the beginning.') }}{% endif -%}
{{ '<' + m.role + '>' + m.content }}{% for call in m.tool_calls or [] -%}
{{ call.function.arguments | items | list }}{% endfor %}{% endfor %}
{%- if not messages | selectattr('role', 'equalto', 'user') | list -%}
{{ raise_exception('No user query found in messages.') }}{% endif %}"""
TURNS = """{% set ns = namespace(n=0) %}
{%- if messages and messages[0].role == 'system' %}{{ messages[0].content }}{% endif -%}
{% for m in messages if m.role != 'system' -%}
{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) -%}
{% if (m.role == 'user') != (ns.n % 2 == 0) -%}
{{ raise_exception('conversation roles must alternate user/assistant') }}{% endif -%}
{% set ns.n = ns.n + 1 %}{% endif %}{{ '[' + m.role + ']' + m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}
{%- if call.id | length != 9 %}{{ raise_exception('ids with length 9!') }}{% endif %}{% endfor %}
{%- if m.role == 'tool' and m.tool_call_id | length != 9 -%}
{{ raise_exception('ids with length 9!') }}{% endif %}{% endfor %}"""
CHANNELS = """{% set last = namespace(name=none) %}{% for m in messages %}
{%- if 'tool_calls' in m %}{% if m.content and m.thinking %}{{ raise_exception('both') }}{% endif %}
{%- set last.name = m.tool_calls[0].function.name %}{{ m.thinking }}
{{- m.tool_calls[0].function.arguments | tojson }}{% elif m.role == 'tool' %}
{%- if last.name is none %}{{ raise_exception('no previous tool call') }}{% endif %}
{{- '<' + last.name + '>' + m.content }}{% else %}{{ '<' + m.role + '>' + m.content }}{% endif %}
{%- endfor %}"""

# Reads a system message at the beginning only, and leaves later ones out without a word.
QUIET = """{%- if messages and messages[0].role == 'system' %}{{ messages[0].content }}{% endif -%}
{% for m in messages if m.role in ('user', 'assistant', 'tool') -%}
{{ '<' + m.role + '>' + m.content }}{% for call in m.tool_calls or [] -%}
{{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"""
# Writes all system messages at the beginning.
GATHERED = """{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor -%}
{% for m in messages if m.role != 'system' %}{{ '<' + m.role + '>' + m.content }}
{%- for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}
{%- endfor %}"""

TEMPLATES = {
    "objects": (OBJECTS, families.GLM),
    "texts": (TEXTS, families.DEEPSEEK_FENCED),
    "one call": (ONE_CALL, families.LLAMA),
    "first system": (FIRST_SYSTEM, families.QWEN_XML),
    "turns": (TURNS, families.MISTRAL_LIST),
    "quiet": (QUIET, families.MINIMAX),
    "gathered": (GATHERED, families.DEEPSEEK),
    "channels": (CHANNELS, families.HARMONY),
    "no system": (
        templates.GEMMA + "{# System role not supported; roles must alternate #}",
        families.PLAIN,
    ),
    "plain": (templates.LLAMA3, families.PLAIN),
    "python": (templates.LLAMA3, families.LFM),
    "parts": (templates.PARTS, families.HERMES),
    "selected parts": (templates.SELECTED_PARTS, families.PLAIN),
}
each_template = pytest.mark.parametrize(
    ("template", "family"), TEMPLATES.values(), ids=TEMPLATES.keys()
)


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(call_id: str | None, arguments: Any = '{"city": "Paris"}') -> dict[str, Any]:
    return {"id": call_id, "function": {"name": "get_weather", "arguments": arguments}}


def answer(text: str | None, *calls: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": [*calls], **more}


def result(text: str, call_id: str | None = None) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call_id}


# What was said must be in the prompt.
HISTORIES: dict[str, tuple[list[Any], list[str]]] = {
    "question": ([system("S"), user("Q")], ["S", "Q"]),
    "call": ([user("Q"), answer(None, call("a")), result("sunny", "a")], ["Paris", "sunny"]),
    "answered": (
        [user("Q"), answer("", call("a")), result("sunny", "a"), answer("Yes"), user("R")],
        ["Paris", "sunny", "Yes", "R"],
    ),
    "two calls": (
        [
            user("Q"),
            answer("Wait", call("a"), call("b", '{"city": "Rome"}')),
            result("sunny", "a"),
            result("rain", "b"),
        ],
        ["Paris", "Rome", "sunny", "rain"],
    ),
    "arguments cut off": ([user("Q"), answer("", call("a", '{"city": "Par'))], ["Par"]),
    "arguments that are none": ([user("Q"), answer("", call("a", "Paris"))], ["Paris"]),
    "no arguments": ([user("Q"), answer("", call("a", "")), result("sunny", "a")], ["sunny"]),
    "arguments as an object": ([user("Q"), answer("", call("a", {"city": "Pa"}))], ["Pa"]),
    "two systems": (
        [system("S1"), {"role": "developer", "content": "S2"}, user("Q"), system("S3"), user("R")],
        ["S1", "S2", "Q", "S3", "R"],
    ),
    "an answer first": ([answer("Hello"), user("Q")], ["Hello", "Q"]),
    "empty contents": ([system(""), user(""), answer(""), user("")], []),
    "no question": ([system("S")], ["S"]),
    "nothing": ([], []),
    "no ids": (
        [user("Q"), answer(None, call(None), call(None, '{"city": "Rome"}')), result("sunny")],
        ["Paris", "Rome", "sunny"],
    ),
    "a result without a call": ([user("Q"), result("sunny", "x")], ["Q", "sunny"]),
    "a call without a result": ([user("Q"), answer("", call("a")), user("Stop")], ["Stop"]),
    "cut off by the user": (
        [user("Q"), answer("", call("a")), result("sunny", "a"), user("Stop")],
        ["Paris", "sunny", "Stop"],
    ),
    "two questions": ([user("Q1"), user("Q2")], ["Q1", "Q2"]),
    "an answer in two": (
        [user("Q"), answer("Wait"), answer("", call("a")), result("sunny", "a"), answer("Yes")],
        ["Wait", "Paris", "sunny", "Yes"],
    ),
    "parts": (
        [{"role": "user", "content": [{"type": "text", "text": "Q"}, {"type": "image_url"}]}],
        ["Q"],
    ),
    "reasoning": (
        [user("Q"), answer("", call("a"), reasoning_content="Hm"), result("sunny", "a")],
        ["Paris", "sunny"],
    ),
    "no messages": (
        [7, {}, {"role": "robot"}, answer(None, 7, {"function": {}}), user("Q")],
        ["Q"],
    ),
    "an old call": (
        [
            user("Q"),
            {"role": "assistant", "function_call": {"name": "get_weather", "arguments": "{}"}},
            {"role": "function", "name": "get_weather", "content": "sunny"},
        ],
        ["sunny"],
    ),
}


def rendered(messages: list[Any], template: str, family: Family) -> str:
    later_system = writes_later_system(template)
    taken, tools = for_template(messages, template, family, [TOOL], later_system=later_system)
    return render(template, taken, bos="", eos="", tools=tools)


@each_template
@pytest.mark.parametrize(("messages", "said"), HISTORIES.values(), ids=HISTORIES.keys())
def test_a_template_takes_every_history(
    messages: list[Any], said: list[str], template: str, family: Family
) -> None:
    prompt = rendered(messages, template, family)
    assert [part for part in said if part not in prompt] == []


@each_template
def test_a_later_system_message_changes_nothing_before_it(template: str, family: Family) -> None:
    """What is before it is in a cache, from the turn before."""
    before = [system("S"), user("Q"), {"role": "assistant", "content": "Yes."}, user("R")]
    cached, said, _ = rendered(before, template, family).partition("Yes.")
    prompt = rendered([*before[:3], system("reminder"), *before[3:]], template, family)
    assert prompt.startswith(cached + said)
    assert "reminder" in prompt.removeprefix(cached)


def test_the_role_of_a_later_system_message_is_what_the_template_takes() -> None:
    history = [user("Q"), {"role": "assistant", "content": "A"}, system("S"), user("R")]
    for name, role in {"objects": "system", "quiet": "user", "gathered": "user"}.items():
        assert taken(history, name)[2] == {"role": role, "content": "S"}


def test_a_reminder_behind_a_tools_result_leaves_the_reasoning_of_this_turn() -> None:
    """Qwen's templates forget what was thought before the last message of the user."""
    strict = templates.QWEN3.replace(
        "{%- if tools %}",
        "{%- for each in messages[1:] if each.role == 'system' %}"
        "{{ raise_exception('System message must be at the beginning.') }}"
        "{%- endfor %}{%- if tools %}",
        1,
    )
    family = families.family_of(strict)
    turn = [user("Q"), {**answer("", call("a")), "reasoning_content": "hm"}, result("R", "a")]
    before = rendered(turn, strict, family)
    prompt = rendered([*turn, system("reminder")], strict, family)
    assert "hm" in before
    cached, _, _ = before.partition("R\n</tool_response>")
    assert prompt.startswith(f"{cached}R\n\nreminder\n</tool_response>")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "tool_calls", "function", "name", "arguments", "id"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
roles = st.sampled_from(["system", "user", "assistant", "tool", "developer", "robot"])
calls = st.lists(st.sampled_from([call("a"), call(None), call("b", '{"x": [1, {"y"')]), max_size=2)
sane = st.builds(
    lambda role, content, calls, call_id: {
        "role": role,
        "content": content,
        "tool_calls": calls,
        "tool_call_id": call_id,
    },
    roles,
    st.sampled_from(["", "text"]) | junk,
    calls,
    st.sampled_from(["a", "b", "call_0", None]),
)


@given(messages=st.lists(sane | junk, max_size=6), chosen=st.sampled_from(sorted(TEMPLATES)))
def test_no_history_is_refused(messages: list[Any], chosen: str) -> None:
    rendered(messages, *TEMPLATES[chosen])


def taken(messages: list[Any], name: str) -> list[dict[str, Any]]:
    later_system = writes_later_system(TEMPLATES[name][0])
    return for_template(messages, *TEMPLATES[name], [TOOL], later_system=later_system)[0]


def test_arguments_are_what_the_template_reads() -> None:
    history = [user("Q"), answer(None, call("a"))]
    as_object = taken(history, "objects")[1]["tool_calls"][0]["function"]["arguments"]
    assert as_object == {"city": "Paris"}
    as_text = taken(history, "texts")[1]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(as_text) == {"city": "Paris"}


def test_results_follow_their_calls_one_by_one() -> None:
    history = [user("Q"), answer("", call("a"), call("b")), result("B", "b"), result("A", "a")]
    found = [
        each["content"] or each["tool_calls"][0]["id"] for each in taken(history, "one call")[1:]
    ]
    assert found == ["b", "B", "a", "A"]


def test_ids_of_calls_and_results_agree() -> None:
    history = [user("Q"), answer("", call("call_abc")), result("A", "call_abc")]
    messages = taken(history, "turns")
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == short_id("call_abc")
    assert short_id("aB3456789") == "aB3456789"
    kimi, _ = for_template(history, OBJECTS, families.KIMI)
    assert kimi[2]["tool_call_id"] == "functions.get_weather:0"
    assert kimi[2]["name"] == "get_weather"


def test_a_template_without_tools_is_told_in_words() -> None:
    history = [system("S"), user("Q"), answer("", call("a")), result("sunny", "a")]
    messages, tools = for_template(history, templates.LLAMA3, families.PLAIN, [TOOL])
    assert tools is None
    assert [each["role"] for each in messages] == ["system", "user", "assistant", "user"]
    assert '"name": "get_weather"' in messages[0]["content"] and "S" in messages[0]["content"]
    assert messages[2]["content"] == (
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
    )
    assert messages[3]["content"] == "<tool_response>\nsunny\n</tool_response>"


def test_an_ordinary_history_stays_as_it_is() -> None:
    history = [system("S"), user("Q"), {"role": "assistant", "content": "A"}, user("R")]
    for name in ("objects", "texts", "one call", "turns", "channels", "python"):
        assert taken(history, name) == history
