"""Thinking: how much a model reasons, by the variables that its chat template reads."""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from localspec.errors import InvalidValueError
from localspec.llama.chat_template import mentions, render
from localspec.utils.reasoning_levels import EFFORT

# What templates call the switch: Qwen, GLM and most others, and DeepSeek, Granite and Kimi.
SWITCHES = ("enable_thinking", "thinking")
_QUESTION = ({"role": "user", "content": "Hello"},)
_NOON = datetime(2000, 1, 1, 12)


def thinking_variables(on: bool) -> dict[str, bool]:
    """The variables that switch reasoning on or off, whichever of them a template reads."""
    return dict.fromkeys(SWITCHES, on)


def effort_variables(effort: str) -> dict[str, Any]:
    """The variables that ask for a level of reasoning, one of EFFORTS."""
    return {**thinking_variables(effort != "none"), EFFORT: effort}


def reads(template: str, variable: str) -> bool:
    """Whether a template reads a variable; one that cannot be read itself reads none."""
    try:
        return mentions(template, variable)
    except InvalidValueError:
        return False


def reads_effort(template: str) -> bool:
    """Whether a template reads a level of reasoning."""
    return reads(template, EFFORT)


def switched(options: Mapping[str, Any]) -> bool | None:
    """Whether these options switch reasoning on or off as `thinking_variables` does; else None."""
    given = options.items()
    return next((on for on in (True, False) if thinking_variables(on).items() <= given), None)


def has_thinking_switch(template: str) -> bool:
    """Whether a template writes another prompt where reasoning is switched off."""
    return thinking_switch(template, thinking_variables(True)) is not None


def thinking_switch(template: str | None, options: Mapping[str, Any]) -> bool | None:
    """Whether reasoning is switched on: by the options, else by the template's default.

    None where the template has no switch.
    """
    given = {name: options[name] for name in SWITCHES if isinstance(options.get(name), bool)}
    return None if template is None else _switch(template, tuple(given.items()))


@lru_cache(maxsize=16)
def _switch(template: str, given: tuple[tuple[str, bool], ...]) -> bool | None:
    choices = dict(given), thinking_variables(True), thinking_variables(False)
    try:
        now, on, off = (
            render(template, _QUESTION, bos="", eos="", now=_NOON, options=choice)
            for choice in choices
        )
    except InvalidValueError:
        return None
    return now == on if on != off and now in (on, off) else None
