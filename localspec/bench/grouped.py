"""Grouped: measurements by what they have in common."""

from collections.abc import Callable, Iterable
from typing import TypeVar

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """The items by key, in the order in which keys first occur."""
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
