"""The text a model-free drafter looks back on, and cutting it back."""

from collections.abc import Sequence
from typing import Protocol

from localspec.utils.tokens import common_prefix


class Index(Protocol):
    """What a drafter remembers of a text, kept up token by token."""

    def push(self, text: list[int]) -> None:
        """`text` has just grown by its last token."""
        ...

    def pop(self, text: list[int]) -> None:
        """`text` is about to lose its last token; undo its `push`."""
        ...


class History:
    """A text and the index over it, brought to any other text by the shortest way."""

    def __init__(self, index: Index) -> None:
        self.text: list[int] = []
        self._index = index

    def become(self, tokens: Sequence[int]) -> None:
        """Keep the common prefix, undo the rest, take in what is new."""
        shared = common_prefix(self.text, tokens)
        while len(self.text) > shared:
            self._index.pop(self.text)
            self.text.pop()
        self.extend(tokens[shared:])

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in tokens at the end."""
        for token in tokens:
            self.text.append(token)
            self._index.push(self.text)
