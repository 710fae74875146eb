"""Thinking: switch a model's reasoning on or off by the variables that its chat template reads."""

from datetime import datetime
from functools import lru_cache

from localspec.errors import InvalidValueError
from localspec.llama.chat_template import render

# What templates call the switch: Qwen, GLM and most others, and DeepSeek, Granite and Kimi.
_SWITCHES = ("enable_thinking", "thinking")
_QUESTION = ({"role": "user", "content": "Hello"},)
_NOON = datetime(2000, 1, 1, 12)


def thinking_variables(on: bool) -> dict[str, bool]:
    """The variables that switch reasoning on or off, whichever of them a template reads."""
    return dict.fromkeys(_SWITCHES, on)


@lru_cache(maxsize=16)
def has_thinking_switch(template: str) -> bool:
    """Whether a template writes another prompt where reasoning is switched off."""
    try:
        on, off = (
            render(
                template, _QUESTION, bos="", eos="", now=_NOON, options=thinking_variables(choice)
            )
            for choice in (True, False)
        )
    except InvalidValueError:
        return False
    return on != off
