"""Options that say what a model's chat template is told, of reasoning above all."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from localspec.cli.options import Command, stacked
from localspec.errors import InvalidValueError
from localspec.utils.option_names import have_no_effect
from localspec.utils.reasoning_levels import EFFORT, EFFORTS

# Variables that are not the user's to set.
_OURS = ("messages", "tools")


@dataclass(frozen=True, slots=True)
class TemplateOptions:
    """What the command line tells a chat template; empty: nothing.

    think: whether the model reasons. effort: how much, one of EFFORTS. others: variables by name;
    they count more.
    """

    think: bool | None = None
    effort: str | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.think is not None or self.effort is not None or bool(self.others)

    @property
    def variables(self) -> dict[str, Any]:
        """The variables for the template, as `Session` and `Engine.generate` take them."""
        from localspec.conversation.thinking import effort_variables, thinking_variables

        level = {} if self.effort is None else effort_variables(self.effort)
        switch = {} if self.think is None else thinking_variables(self.think)
        return {**level, **switch, **self.others}

    def without_effect(self, template: str, whose: str) -> Iterator[str]:
        """Yield what has no effect with a template, one line each, with the way out.

        whose: the template, in words.
        """
        from localspec.conversation.thinking import has_thinking_switch, reads, reads_effort

        levels, switch = reads_effort(template), has_thinking_switch(template)
        if self.think is not None and not switch:
            named = f"--{'' if self.think else 'no-'}think"
            way_out = "" if self.effort else _way_out(template, self.think, levels=levels)
            yield have_no_effect([named], f"{whose} has no switch for reasoning{way_out}")
        if self.effort and not levels:
            named = f"--reasoning-effort {self.effort}"
            if not switch:
                way_out = _way_out(template, self.effort != "none", levels=False)
                yield have_no_effect([named], f"{whose} knows no levels of reasoning{way_out}")
            elif self.effort != "none" and self.think is None:
                yield f"{named} only switches reasoning on: {whose} knows no levels of it"
        for name in self.others:
            if not reads(template, name):
                yield have_no_effect([f"--template-option {name}"], f"{whose} does not read {name}")


def _way_out(template: str, think: bool, *, levels: bool) -> str:
    """What else limits reasoning, or begins it, with a template that has no switch for it."""
    from localspec.conversation.reasoning import has_channels, tags_for

    if levels:
        return f"; --reasoning-effort {'high makes it long' if think else 'low makes it short'}"
    writes_tags = any(tag in template for tag in tags_for(template))
    if think or has_channels(template) or not writes_tags:
        return ""
    return "; --thinking-budget 0 ends it at once"


def template_options(command: Command) -> Command:
    """Add the options that `pop_template_options` takes out again."""
    return stacked(
        click.option(
            "--think/--no-think",
            "think",
            default=None,
            help="Switch reasoning on or off, where the model's chat template has a switch. "
            "[default: the template's]",
        ),
        click.option(
            "--reasoning-effort",
            metavar="|".join(EFFORTS),
            callback=lambda _context, _option, value: value and _effort(value),
            help="How much the model reasons, where its chat template knows levels; with a switch "
            "alone, `none` is off and others are on. [default: the template's]",
        ),
        click.option(
            "--template-option",
            "others",
            metavar="NAME=VALUE",
            multiple=True,
            callback=lambda _context, _option, values: _variables(values),
            help="A variable for the model's chat template; VALUE is JSON, else a text. "
            "Repeatable.",
        ),
    )(command)


def pop_template_options(options: dict[str, Any]) -> TemplateOptions:
    """Remove the options for the chat template from a command's options, and return them."""
    names = ("think", "reasoning_effort", "others")
    return TemplateOptions(*(options.pop(name) for name in names))


thinking_budget_option = click.option(
    "--thinking-budget",
    type=int,
    metavar="N",
    callback=lambda _context, _option, value: _budget(value),
    help="End reasoning after N tokens; the answer follows. [default: no limit]",
)


def _budget(value: int | None) -> int | None:
    if value is not None:
        # `--help` must not wait for this import.
        from localspec.generation_config import require

        require("thinking_budget", value, 0)
    return value


def _effort(value: str) -> str:
    if value not in EFFORTS:
        levels = ", ".join(EFFORTS)
        raise InvalidValueError(f"{EFFORT} is {value!r}; it must be one of {levels}")
    return value


def _variables(values: Sequence[str]) -> dict[str, Any]:
    return dict(_variable(value) for value in values)


def _variable(given: str) -> tuple[str, Any]:
    name, is_there, value = given.partition("=")
    if not is_there or not name.isidentifier():
        raise InvalidValueError(
            f"template_option is {given!r:.80}; it must be NAME=VALUE, as enable_thinking=false"
        )
    if name in _OURS:
        raise InvalidValueError(
            f"template_option is {given!r:.80}; {name} are not given so, but a variable of the "
            "model's own template is"
        )
    try:
        return name, json.loads(value, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return name, value


def _no_number(word: str) -> None:
    raise ValueError(word)  # NaN is no JSON, and so a text
