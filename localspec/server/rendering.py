"""Rendering: a conversation as a model's chat template writes it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from localspec.engine.media_marks import without_marks
from localspec.engine.prompt import written
from localspec.llama.chat_template import TemplateRefusedError, render
from localspec.llama.model import Model
from localspec.server.thinking import Effort, with_switches
from localspec.server.tool_calls import family_of, for_template
from localspec.utils.reasoning_levels import EFFORT

log = logging.getLogger("localspec.server")

# What stands in for a level that a template refuses: None for no level at all.
_levels: dict[tuple[str, str], str | None] = {}


def render_chat(
    model: Model,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> str:
    """The messages as a model's chat template writes them. Raises InvalidValueError."""
    template = model.chat_template or ""
    options = with_switches(options)
    later_system = any(each.get("role") == "system" for each in messages[1:])
    later_system = later_system and writes_later_system(template)
    taken, given = for_template(
        messages, template, family_of(template), tools, later_system=later_system
    )

    def write(level: str | None) -> str:
        rest = {name: value for name, value in options.items() if name != EFFORT}
        chosen = rest if level is None else {**rest, EFFORT: level}
        text = written(model, template, taken, tools=given, options=chosen)
        # A conversation may have begun with a model that reads images.
        return text if model.projector else without_marks(text)

    effort = options.get(EFFORT)
    if not isinstance(effort, Effort):
        return write(effort)
    try:
        return write(_levels.get((template, effort), str(effort)))
    except TemplateRefusedError as refusal:
        level, text = _instead(effort, write, refusal)
    used = f"{level} is used" if level else "no level is given"
    log.warning("the chat template takes no reasoning effort %s; %s", effort, used)
    if _refuses_always(template, effort):
        _levels[template, effort] = level
    return text


def _instead(
    effort: Effort, write: Callable[[str | None], str], refusal: TemplateRefusedError
) -> tuple[str | None, str]:
    """The level that stands in for a refused one, and the text that is written with it.

    Raises the refusal where the level is not what is refused.
    """
    try:
        without = write(None)
    except TemplateRefusedError:
        raise refusal from None
    for level in effort.nearest:
        with suppress(TemplateRefusedError):
            return level, write(level)
    return None, without


def _refuses_always(template: str, effort: Effort) -> bool:
    """Whether a level is refused with any messages; a template may refuse it beside tools only."""
    try:
        _plain(template, [{"role": "user", "content": "Hello"}], {EFFORT: str(effort)})
    except TemplateRefusedError:
        return True
    return False


def _plain(template: str, messages: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    return render(template, messages, bos="", eos="", options=options)


@lru_cache(maxsize=16)
def writes_later_system(template: str) -> bool:
    """Whether a template writes a system message where it stands, behind others.

    Some refuse it, some write it at the beginning, and some leave it out without a word.
    """
    roles = ("user", "assistant", "system", "user")
    contents = [f"{number} {role}" for number, role in enumerate(roles)]
    messages = [{"role": role, "content": text} for role, text in zip(roles, contents, strict=True)]
    try:
        text = _plain(template, messages, {})
    except TemplateRefusedError:
        return False
    places = [text.find(each) for each in contents]
    return -1 not in places and places == sorted(places)
