"""Grouped: measurements by what they have in common."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar


class _OfPrompt(Protocol):
    @property
    def task(self) -> int: ...


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Text = TypeVar("_Text", bound=_OfPrompt)


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items by key, in the order in which keys first occur."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def by_prompt(texts: Iterable[_Text], figure: Callable[[_Text], float | None]) -> list[list[float]]:
    """A figure of each text that has it, prompt by prompt."""
    groups = grouped(texts, lambda text: text.task).values()
    return [[found for text in own if (found := figure(text)) is not None] for own in groups]
