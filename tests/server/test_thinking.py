"""How much to reason, in the words of several servers' clients."""

from typing import Any

import pytest

from localspec.server.chat_prompt import CONTINUE
from localspec.server.errors import ApiError
from localspec.server.fields import Fields
from localspec.server.openai_chat import template_options
from localspec.server.thinking import thinking_options

HIGH = {"reasoning_effort": "high", "enable_thinking": True}
OFF = {"enable_thinking": False}
NONE = {"reasoning_effort": "none", **OFF}


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({}, {}),
        ({"reasoning_effort": "high"}, HIGH),
        ({"reasoning_effort": "none"}, NONE),
        ({"reasoning": {"effort": "high"}}, HIGH),
        ({"reasoning": {"effort": "none", "exclude": False}}, NONE),
        ({"reasoning": {"enabled": False}}, OFF),
        ({"reasoning": {}}, {}),
        ({"thinking": {"type": "disabled"}}, OFF),
        ({"thinking": {"type": "enabled"}}, {"enable_thinking": True}),
        ({"enable_thinking": False}, OFF),
        ({"thinking": False}, OFF),
        ({"reasoning": True}, {"enable_thinking": True}),
        ({"thinking_budget_tokens": 0}, OFF),
        ({"thinking_budget_tokens": -1}, {}),
        ({"reasoning": {"max_tokens": 100}}, {"enable_thinking": True}),
        ({"reasoning": {"max_tokens": 0}}, OFF),
        ({"enable_thinking": False, "reasoning_effort": "high"}, {**HIGH, **OFF}),
        ({"thinking": {"type": "disabled"}, "reasoning": {"effort": "high"}}, {**HIGH, **OFF}),
    ],
    ids=str,
)
def test_what_switches_thinking(body: dict[str, Any], options: dict[str, Any]) -> None:
    assert thinking_options(Fields(body)) == options
    named = {"chat_template_kwargs": {"enable_thinking": "mine", "x": 1}}
    read = template_options(Fields({**body, **named}), [])
    assert read == {**options, "enable_thinking": "mine", "x": 1, CONTINUE: False}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"reasoning_effort": "some"}, "reasoning_effort"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": "all"}}, "reasoning.max_tokens"),
        ({"reasoning": {"exclude": True}}, "reasoning.exclude"),
        ({"thinking": {"type": "off"}}, "thinking.type"),
        ({"enable_thinking": "no"}, "enable_thinking"),
    ],
    ids=str,
)
def test_what_would_be_lost_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as raised:
        thinking_options(Fields(body))
    assert (raised.value.status, raised.value.param) == (400, param)
