"""Sampling values: options of GenerationConfig as they are typed and listed."""

from collections.abc import Iterator, Mapping
from typing import Any

from localspec.errors import InvalidValueError
from localspec.utils.similar_names import did_you_mean
from localspec_tui.sampling_defaults import SAMPLING_DEFAULTS, USUAL, Recommended, defaults_with
from localspec_tui.slash_commands import COMMANDS

# What stands for no value.
DEFAULT = "default"
_INTEGERS = {
    *("top_k", "penalty_window", "dry_allowed_length", "dry_penalty_last_n", "mirostat"),
    *("max_tokens", "seed", "depth"),
}


def sampling_value(name: str, typed: str) -> str | int | float | None:
    """The value that was typed for an option; None for an empty text. Raises InvalidValueError."""
    if not typed or name == "rule":
        return typed or None
    try:
        return int(typed) if name in _INTEGERS else float(typed)
    except ValueError as error:
        kind = "a whole number" if name in _INTEGERS else "a number"
        raise InvalidValueError(f"{name} is {typed!r}; it must be {kind}") from error


def parse_setting(argument: str) -> tuple[str, str]:
    """The option and the value of `NAME VALUE` or `NAME=VALUE`; the value may be empty.

    Raises InvalidValueError for a name that is none.
    """
    typed, *rest = argument.replace("=", " ", 1).split(maxsplit=1) or [argument.strip()]
    name = typed.lower().lstrip("-").replace("-", "_")
    if name not in SAMPLING_DEFAULTS:
        raise InvalidValueError(f"/set: there is no setting {typed}; {_hint(name)}")
    return name, "".join(rest)


def _hint(name: str) -> str:
    if f"/{name}" in [usage.split()[0] for usage in COMMANDS]:
        return f"/{name} is a command"
    return did_you_mean(name, SAMPLING_DEFAULTS) or f"there are {', '.join(SAMPLING_DEFAULTS)}"


def in_words(name: str, chosen: Mapping[str, Any], own: Mapping[str, Recommended] | None) -> str:
    """What an option is, and where that comes from.

    chosen: the options that are not the default. own: as of `models_own`; None without a model.
    """
    if chosen.get(name) is not None:
        return f"{chosen[name]}, set for this chat"
    defaults = SAMPLING_DEFAULTS if own is None else defaults_with(own)
    return defaults[name] + ("" if own and name in own else ", the default")


def listed(chosen: Mapping[str, Any], own: Mapping[str, Recommended] | None) -> Iterator[str]:
    """Yield a line for each option that is usual or is not the default, and the others' names."""
    shown = {*USUAL, *chosen, *(own or ())}
    names = [name for name in SAMPLING_DEFAULTS if name in shown]
    width = max(map(len, names))
    for name in names:
        yield f"{name:{width}}  {in_words(name, chosen, own)}"
    others = [name for name in SAMPLING_DEFAULTS if name not in shown]
    yield f"as they are by default: {', '.join(others)}"
    yield f"/set NAME VALUE sets one, /set NAME {DEFAULT} takes that back"
