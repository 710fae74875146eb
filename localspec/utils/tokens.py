"""Small facts about token sequences."""

from collections.abc import Sequence


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens the two sequences share from the start."""
    length = min(len(first), len(second))
    if list(first[:length]) == list(second[:length]):
        return length
    return next(i for i in range(length) if first[i] != second[i])
