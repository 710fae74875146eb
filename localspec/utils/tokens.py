"""Functions on sequences of token ids."""

from collections.abc import Sequence


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens at the beginning of the two sequences are equal."""
    length = min(len(first), len(second))
    if list(first[:length]) == list(second[:length]):
        return length
    return next(i for i in range(length) if first[i] != second[i])
