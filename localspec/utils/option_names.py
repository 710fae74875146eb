"""Option names: how messages call an option, as a parameter of Python or as the command line does.

"raise context", "try context=4096"        in Python
"raise --ctx", "try --ctx 4096"            where `localspec` was typed
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

# Options of the command line that are not called as their parameters.
_NAMES = {
    "context": "ctx",
    "drafter_kv_type": "draft_kv_type",
    "flash_attention": "flash_attn",
    "texts": "parallel",
}
_typed = False


@contextmanager
def typed_options() -> Iterator[None]:
    """Let the messages of this process call options as the command line does."""
    global _typed
    before, _typed = _typed, True
    try:
        yield
    finally:
        _typed = before


def option(parameter: str) -> str:
    """Return the name of an option."""
    return typed_name(parameter) if _typed else parameter


def typed_name(parameter: str) -> str:
    """Return the name of an option on the command line."""
    return f"--{_NAMES.get(parameter, parameter).replace('_', '-')}"


def options(**values: object) -> str:
    """Return options with their values, as a user writes them."""
    if _typed:
        return " ".join(f"{option(name)} {_word(value)}" for name, value in values.items())
    return ", ".join(f"{name}={value!r}" for name, value in values.items())


def no_effect(parameter: str, value: object, why: str) -> str:
    """Return that a value of an option has no effect, and why."""
    return have_no_effect([f"{option(parameter)} {value}"], why)


def have_no_effect(names: Sequence[str], why: str) -> str:
    """Return that options have no effect, and why."""
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} no effect: {why}"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def raw_prompt() -> str:
    """Return how a prompt is given that is no chat turn."""
    return "a raw prompt (--raw)" if _typed else "a text as the prompt, not messages"
