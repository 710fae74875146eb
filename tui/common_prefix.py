"""Common prefix: how much two sequences have in common at their start."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def common_prefix_length(
    first: Sequence[Item], second: Sequence[Item], is_same: Callable[[Item, Item], bool]
) -> int:
    """How many items at the start of two sequences are the same."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if not is_same(a, b)), min(len(first), len(second)))
