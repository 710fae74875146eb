"""The names of tools of namespaces: one for the model, two for the client."""

from itertools import product
from typing import Any

import pytest

from localspec.server.tool_names import ToolNames

MAIL = "mcp__mail"
NAMES = ToolNames([("mcp__web", "search"), (MAIL, "search"), (MAIL, "send"), ("", "ls")])


def test_tools_of_one_name_have_two() -> None:
    assert NAMES.joined("mcp__web", "search") == "mcp__web__search"
    assert NAMES.joined("mcp__mail", "search") == "mcp__mail__search"
    assert NAMES.members("mcp__mail__search") == {"name": "search", "namespace": "mcp__mail"}


def test_a_tool_of_no_namespace_keeps_its_name() -> None:
    assert NAMES.joined("", "ls") == "ls"
    assert NAMES.members("ls") == {"name": "ls"}


def test_a_call_without_a_namespace_is_that_of_the_only_such_tool() -> None:
    assert NAMES.joined("", "send") == "mcp__mail__send"
    assert NAMES.joined("", "search") == "search"
    assert NAMES.joined("gone", "f") == "gone__f"


@pytest.mark.parametrize(
    "pairs",
    [
        [("a", "b__c"), ("a__b", "c")],
        [("a", "b"), ("", "a__b")],
        [("a", "b"), ("a__", "b")],
        [("a b", "c"), ("a_b", "c")],
    ],
    ids=["split", "plain", "underscores", "letters"],
)
def test_no_two_tools_have_the_same_name(pairs: list[tuple[str, str]]) -> None:
    names = ToolNames(pairs)
    joined = [names.joined(*pair) for pair in pairs]
    assert len({*joined}) == 2
    for pair, name in zip(pairs, joined, strict=True):
        assert names.members(name).get("namespace", "") == pair[0]
        assert names.members(name)["name"] == pair[1]


def test_many_tools_that_would_be_named_alike_have_names_that_tools_may_have() -> None:
    pairs = [("a" + "".join(letters), "f") for letters in product(" !?=", repeat=5)]
    names = ToolNames([*pairs, *pairs])
    joined = {names.joined(*pair) for pair in pairs}
    assert len(joined) == len(pairs) == 4**5
    assert max(map(len, joined)) <= 128


def test_a_joined_name_is_one_that_a_tool_may_have() -> None:
    name = ToolNames([("My mail" * 30, "f")]).joined("My mail" * 30, "f")
    assert len(name) <= 128
    assert name.endswith("__f") and " " not in name


@pytest.mark.parametrize(
    ("choice", "joined"),
    [
        ("auto", "auto"),
        ({"type": "function", "name": "ls"}, {"type": "function", "name": "ls"}),
        ({"type": "function", "name": "send"}, {"type": "function", "name": "mcp__mail__send"}),
        (
            {"type": "allowed_tools", "tools": [{"name": "search", "namespace": "mcp__web"}]},
            {
                "type": "allowed_tools",
                "tools": [{"name": "mcp__web__search", "namespace": "mcp__web"}],
            },
        ),
        ({"name": "x", "namespace": ["y"]}, {"name": "x", "namespace": ["y"]}),
    ],
    ids=["word", "plain", "only", "allowed", "no text"],
)
def test_a_choice_names_tools_as_the_model_does(choice: Any, joined: Any) -> None:
    assert NAMES.chosen(choice) == joined
