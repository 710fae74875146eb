"""Which tools may be called, as a request says it."""

from typing import Any

import pytest

from localspec.server.anthropic_tools import AnthropicTools
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.tool_use import openai_tools

TOOLS: list[Any] = [{"type": "function", "function": {"name": name}} for name in ("f", "g", "h")]
OF_CHATS = {"mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "allowed_tools", "allowed_tools": OF_CHATS},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]},
    ],
    ids=["chat", "responses"],
)
def test_some_of_the_tools_are_allowed(choice: dict[str, Any]) -> None:
    """The model is told of all of them, so that the prompt stays what is in a cache."""
    used = openai_tools(Fields({"tool_choice": choice}), TOOLS)
    assert used.must_call
    assert [tool.name for tool in used.callable] == ["g"]
    assert [tool.name for tool in used.tools] == ["f", "g", "h"]


@pytest.mark.parametrize("kind", ["none", "auto", "required"])
def test_a_choice_may_be_an_object(kind: str) -> None:
    """As Cursor sends it."""
    used = openai_tools(Fields({"tool_choice": {"type": kind}}), TOOLS)
    assert used == openai_tools(Fields({"tool_choice": kind}), TOOLS)


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "any"},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "x"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [3]},
        {"type": "allowed_tools", "mode": "often", "tools": []},
        {"type": "function", "function": {"name": "x"}},
    ],
    ids=["kind", "unknown", "no name", "mode", "named"],
)
def test_choices_that_cannot_be_followed(choice: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as raised:
        openai_tools(Fields({"tool_choice": choice}), TOOLS)
    assert (raised.value.status, raised.value.param) == (400, "tool_choice")


def test_a_tool_of_anthropics_models_that_the_client_runs_is_refused() -> None:
    """It would wait for calls that nobody has told the model of."""
    with pytest.raises(
        ApiError, match=r"tools.0..type is .bash_20250124.; .*input_schema"
    ) as raised:
        AnthropicTools(Fields({"tools": [{"type": "bash_20250124", "name": "bash"}]}))
    assert (raised.value.status, raised.value.param) == (400, "tools[0].type")


@pytest.mark.parametrize("named", [{"type": "any"}, {"type": "tool", "name": "web_search"}])
def test_a_call_of_a_tool_that_is_left_out_is_refused(named: dict[str, Any]) -> None:
    searching = {"type": "web_search_20250305", "name": "web_search"}
    assert not AnthropicTools(Fields({"tools": [searching]})).use().tools
    with pytest.raises(ApiError, match="can call"):
        AnthropicTools(Fields({"tools": [searching], "tool_choice": named})).use()
