"""Prefix: a text takes the beginning of its tokens from another text of the same context.

Attention without a window shares the other text's cells, which costs nothing; the last text that
uses a cell frees it. Of other memories a state can be copied: that of a whole text, or of the
beginning up to a mark.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from localspec.llama.sequence import KVSequence

# Fewer tokens are evaluated about as fast as they are found and copied.
LEAST_SAVED = 32


def take_prefix(text: "KVSequence", tokens: Sequence[int]) -> int:
    """Replace `text` by the beginning of `tokens` that another text holds, if that is longer.

    Of a text whose pass has no verdict yet, only the committed tokens are shared, and only what is
    marked is copied. Returns the length of the common prefix of `tokens` and the text.
    """
    usable = _shared_by if text.shares_cells else _copied_from
    lengths = [(usable(each, tokens), each) for each in text.context.sequences if each is not text]
    length, other = max(lengths, key=lambda each: each[0], default=(0, text))
    if length - text.shared(tokens) >= LEAST_SAVED:
        if text.shares_cells:
            text.share(other, length)
        elif length == _whole(other, tokens):
            text.restore(other.state())
        else:
            text.roll_back()
            text.tokens = [*tokens[:length]] if text.memory.take_mark(other.memory, length) else []
    return text.shared(tokens)


def place_to_mark(text: "KVSequence", tokens: Sequence[int]) -> int:
    """How many of the tokens a text of the context begins with, this one or another.

    Later texts may begin so too: instructions, or a conversation without the reasoning of its last
    answer. 0 where no mark is needed to come back there.
    """
    if text.shares_cells:
        return 0
    return max(each.shared(tokens) for each in text.context.sequences)


def _shared_by(other: "KVSequence", tokens: Sequence[int]) -> int:
    return min(other.shared(tokens), other.memory.length)


def _copied_from(other: "KVSequence", tokens: Sequence[int]) -> int:
    return max(_whole(other, tokens), other.memory.marked_within(other.shared(tokens)))


def _whole(other: "KVSequence", tokens: Sequence[int]) -> int:
    """The length of the other text if it is a prefix of the tokens, else 0."""
    length = len(other.tokens)
    is_whole = other.is_settled and other.memory.length == length == other.shared(tokens)
    return length if is_whole else 0
