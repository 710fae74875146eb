"""Conversations as templates write them, where these refuse what a protocol says."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from localspec.errors import InvalidValueError
from localspec.server import openai_chat, openai_responses, rendering
from localspec.server.anthropic_input import read as read_messages
from localspec.server.fields import Fields
from localspec.server.options import TextSettings
from localspec.server.rendering import render_chat
from localspec.server.stored_responses import StoredResponses

QUESTION = [{"role": "user", "content": "ls"}]
# It knows three levels, as Qwen3.8's does.
LEVELS = """{%- if reasoning_effort is defined
    and reasoning_effort not in ('xhigh', 'medium', 'low') %}
    {{- raise_exception('Unexpected reasoning effort.') }}
{%- endif %}
{%- if messages[-1].content == 'bad' %}{{ raise_exception('Bad words.') }}{% endif %}
{{- reasoning_effort | default('free') }}"""
SERVICE: Any = SimpleNamespace(
    require_model=lambda _: None,
    settings_of=lambda *_body, **_given: TextSettings(),
    template_options={},
    engine=SimpleNamespace(context=512, model=SimpleNamespace(chat_template=None, projector=None)),
)


def model(template: str) -> Any:
    return SimpleNamespace(chat_template=template, bos=-1, eos=-1, projector=None)


@pytest.fixture(autouse=True)
def nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "_levels", {})


def options_of_all(effort: str) -> list[Any]:
    """What a level becomes in each protocol."""
    chat = {"messages": QUESTION, "reasoning_effort": effort}
    response = {"input": "ls", "reasoning": {"effort": effort}}
    message = {"messages": QUESTION, "max_tokens": 4, "output_config": {"effort": effort}}
    return [
        openai_chat.read(Fields(chat), SERVICE).chat.template_options,
        openai_responses.read(Fields(response), SERVICE, StoredResponses()).chat.template_options,
        read_messages(Fields(message), SERVICE).template_options,
    ]


@pytest.mark.parametrize(
    ("effort", "level"),
    [
        ("none", "free"),
        ("minimal", "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "medium"),
        ("xhigh", "xhigh"),
        ("max", "xhigh"),
    ],
)
def test_the_nearest_level_stands_in_for_one_that_is_refused(effort: str, level: str) -> None:
    for options in options_of_all(effort):
        assert render_chat(model(LEVELS), QUESTION, None, options) == level


def test_a_template_without_any_level_gets_none() -> None:
    refuses = "{% if reasoning_effort %}{{ raise_exception('no levels') }}{% endif %}x"
    for options in options_of_all("high"):
        assert render_chat(model(refuses), QUESTION, None, options) == "x"


def test_what_stands_in_is_said_and_found_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    [options, *_] = options_of_all("high")
    with caplog.at_level(logging.WARNING):
        render_chat(model(LEVELS), QUESTION, None, options)
    [line] = caplog.messages
    assert "reasoning effort high" in line and "medium is used" in line
    tried = []

    def render(*_given: Any, options: Any, **_more: Any) -> str:
        tried.append(options["reasoning_effort"])
        return ""

    monkeypatch.setattr(rendering, "written", render)
    render_chat(model(LEVELS), QUESTION, None, options)
    assert tried == ["medium"]


def test_a_variable_that_the_client_names_is_given_as_it_is() -> None:
    body = {"messages": QUESTION, "chat_template_kwargs": {"reasoning_effort": "high"}}
    options = openai_chat.read(Fields(body), SERVICE).chat.template_options
    with pytest.raises(InvalidValueError, match="Unexpected reasoning effort"):
        render_chat(model(LEVELS), QUESTION, None, options)


def test_messages_that_are_refused_are_refused_at_any_level() -> None:
    bad = [{"role": "user", "content": "bad"}]
    for effort, why in (("high", "Unexpected reasoning effort"), ("low", "Bad words")):
        with pytest.raises(InvalidValueError, match=why):
            render_chat(model(LEVELS), bad, None, options_of_all(effort)[0])
    assert render_chat(model(LEVELS), QUESTION, None, options_of_all("high")[0]) == "medium"


def test_what_fails_once_stands_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of time and memory, and processes that cannot be started, are no refusal."""
    [options, *_] = options_of_all("high")

    def fails(*_given: Any, **_more: Any) -> str:
        raise InvalidValueError("no process can be started")

    later = [{"role": "system", "content": "a"}, *QUESTION, {"role": "system", "content": "b"}]
    rendering.writes_later_system.cache_clear()
    for name in ("render", "written"):
        monkeypatch.setattr(rendering, name, fails)
    for messages in (QUESTION, later):
        with pytest.raises(InvalidValueError, match="no process"):
            render_chat(model("{{ messages[-1].content }}"), messages, None, options)
    monkeypatch.undo()
    each = "{% for each in messages %}{{ each.role }} {{ each.content }} {% endfor %}"
    assert render_chat(model("{{ reasoning_effort }}"), QUESTION, None, options) == "high"
    assert render_chat(model(each), later, None, options).endswith("system b ")


def test_a_level_that_is_refused_now_and_then_is_given_otherwise() -> None:
    """As beside tools."""
    now = "{% if messages | length > 1 and reasoning_effort == 'high' %}{{ raise_exception('no') }}"
    chat = model(now + "{% endif %}{{ reasoning_effort }}")
    [options, *_] = options_of_all("high")
    longer = [*QUESTION, {"role": "assistant", "content": "a"}, *QUESTION]
    assert render_chat(chat, longer, None, options) == "medium"
    assert render_chat(chat, QUESTION, None, options) == "high"


def test_a_level_that_stood_in_before_may_be_refused_later() -> None:
    """`high` always, and `medium` in longer conversations."""
    refuses = (
        "{% if reasoning_effort == 'high' or"
        " (messages | length > 1 and reasoning_effort == 'medium') %}{{ raise_exception('no') }}"
    )
    chat = model(refuses + "{% endif %}{{ reasoning_effort }}")
    [options, *_] = options_of_all("high")
    longer = [*QUESTION, {"role": "assistant", "content": "a"}, *QUESTION]
    assert render_chat(chat, QUESTION, None, options) == "medium"
    assert render_chat(chat, longer, None, options) == "xhigh"


@pytest.mark.parametrize("name", ["enable_thinking", "thinking"])
def test_the_switch_for_reasoning_has_the_name_that_the_template_reads(name: str) -> None:
    chat = model(f"{{{{ {name} if {name} is defined else 'unsaid' }}}}")
    assert render_chat(chat, QUESTION, None, {}) == "unsaid"
    for choice in (True, False):
        assert render_chat(chat, QUESTION, None, {"enable_thinking": choice}) == str(choice)
    own = {"enable_thinking": True, "thinking": "own"}
    assert render_chat(chat, QUESTION, None, own) == str(own[name])
