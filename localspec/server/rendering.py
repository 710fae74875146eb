"""Rendering: a conversation as a model's chat template writes it."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from localspec.engine.prompt import special_texts
from localspec.errors import InvalidValueError
from localspec.llama.chat_template import render
from localspec.llama.model import Model
from localspec.server.tool_calls import family_of, for_template


def render_chat(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> str:
    """The messages as a model's chat template writes them. Raises InvalidValueError."""
    template = model.chat_template or ""
    bos, eos = special_texts(model)
    later_system = any(each.get("role") == "system" for each in messages[1:])
    later_system = later_system and writes_later_system(template)
    taken, given = for_template(
        messages, template, family_of(template), tools, later_system=later_system
    )
    return render(template, taken, bos=bos, eos=eos, tools=given, options=options)


@lru_cache(maxsize=16)
def writes_later_system(template: str) -> bool:
    """Whether a template writes a system message where it stands, behind others.

    Some refuse it, some write it at the beginning, and some leave it out without a word.
    """
    roles = ("user", "assistant", "system", "user")
    contents = [f"{number} {role}" for number, role in enumerate(roles)]
    messages = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
    try:
        text = render(template, messages, bos="", eos="")
    except InvalidValueError:
        return False
    places = [text.find(each) for each in contents]
    return -1 not in places and places == sorted(places)
