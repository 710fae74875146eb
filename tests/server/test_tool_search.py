"""Tools that a search finds, as Claude Code has them in Anthropic's messages."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic
from fakes.served import Served

from localspec.server.anthropic_input import read
from localspec.server.anthropic_tools import AnthropicTools
from localspec.server.chat_input import ChatInput
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.options import TextSettings

SERVICE: Any = SimpleNamespace(
    settings_of=lambda *_body, **_given: TextSettings(),
    template_options={},
    engine=SimpleNamespace(context=512, model=SimpleNamespace(projector=None)),
)
NUMBERS = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
SEARCH = {"name": "search", "description": "Finds tools.", "input_schema": {"type": "object"}}
ADD = {"name": "add", "description": "Adds numbers (ä).", "input_schema": NUMBERS}
NEVER = {"name": "placeholder", "description": "Never call it.", "input_schema": {}}
TOOLS: Any = [SEARCH, {**ADD, "defer_loading": True}, {**NEVER, "defer_loading": True}]
TOLD = (
    '<functions>\n<function>{"description": "Adds numbers (ä).", "name": "add", '
    f'"parameters": {json.dumps(NUMBERS)}}}</function>\n</functions>'
)


def found(*names: Any) -> list[Any]:
    """A conversation in which a search has found these tools."""
    call = {"type": "tool_use", "id": "t", "name": "search", "input": {}}
    references = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "t", "content": references}
    return [
        {"role": "user", "content": "What is 1 and 1?"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]


def asked(messages: Any, **more: Any) -> ChatInput:
    return read(Fields({"messages": messages, "max_tokens": 4, "tools": TOOLS, **more}), SERVICE)


def listed(chat: ChatInput) -> list[str]:
    return [each["function"]["name"] for each in chat.tools.for_template or ()]


def test_the_model_is_told_of_a_deferred_tool_where_it_was_found() -> None:
    first, then = asked(found()[:1]), asked(found("add"))
    assert listed(first) == listed(then) == ["search"]
    assert [tool.name for tool in first.tools.callable] == ["search"]
    assert [tool.name for tool in then.tools.callable] == ["search", "add"]
    assert then.messages[-1]["content"] == TOLD


def test_a_reference_to_an_unknown_tool_says_so() -> None:
    chat = asked(found("gone", "add", None))
    assert chat.messages[-1]["content"] == (
        f"{TOLD}\nThere is no tool named 'gone' in this request."
        "\nThere is no tool named None in this request."
    )
    assert [tool.name for tool in chat.tools.callable] == ["search", "add"]


def test_a_call_of_a_tool_that_was_not_shown_is_passed_on() -> None:
    """After a conversation was shortened the model may know it by name."""
    tools = asked(found()[:1]).tools
    assert [tool.name for tool in tools.readable] == ["search", "add", "placeholder"]
    assert not asked(found()[:1], tool_choice={"type": "none"}).tools.readable


def test_a_choice_names_a_deferred_tool() -> None:
    """One that was found is not listed again, which would end the reuse of the cache."""
    choice = {"type": "tool", "name": "add"}
    for messages, at_the_top in ((found()[:1], ["search", "add"]), (found("add"), ["search"])):
        chat = asked(messages, tool_choice=choice)
        assert listed(chat) == at_the_top
        assert [tool.name for tool in chat.tools.callable] == ["add"]
    required = asked(found("add"), tool_choice={"type": "any"}).tools
    assert [tool.name for tool in required.callable] == ["search", "add"]


@pytest.mark.parametrize(
    "others",
    [[], [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, SEARCH]],
    ids=["none", "of Anthropic's servers"],
)
def test_deferred_tools_that_nobody_could_find_are_listed(others: list[Any]) -> None:
    chat = asked(found()[:1], tools=[*others, *TOOLS[1:]])
    assert listed(chat)[-2:] == ["add", "placeholder"]
    assert not chat.tools.unseen


def test_two_tools_of_one_name_are_refused_though_one_is_deferred() -> None:
    with pytest.raises(ApiError, match="two tools are named add"):
        AnthropicTools(Fields({"tools": [*TOOLS, ADD]})).use()


def test_what_stands_before_a_found_tool_is_in_the_cache(strict: Served) -> None:
    with Anthropic(base_url=strict.url, api_key="none", max_retries=0) as claude:
        little: Any = {"type": "enabled", "budget_tokens": 4}
        settings: Any = {"model": "strict", "tools": TOOLS, "thinking": little, "max_tokens": 200}
        settings["extra_body"] = {"temperature": 0}

        def ask(messages: Any, kind: str, **name: str) -> Any:
            choice: Any = {"type": kind, **name}
            return claude.messages.create(messages=messages, tool_choice=choice, **settings)

        first = ask(found()[:1], "auto").usage
        called = ask(found("add"), "any")
        again = ask(found("add"), "tool", name="add")
    whole = first.input_tokens + first.cache_read_input_tokens
    assert called.usage.cache_read_input_tokens > whole - 16
    assert called.usage.input_tokens > 40
    assert again.usage.input_tokens == 1
    [block] = [each for each in again.content if each.type == "tool_use"]
    assert block.name == "add"
    assert block.input["a"] in (1, 2)
