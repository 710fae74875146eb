"""History: the text of a model-free drafter and its index, which follow every change."""

from collections.abc import Sequence
from typing import Protocol

from localspec.utils.tokens import common_prefix


class Index(Protocol):
    """A drafter's index of a text, updated token by token."""

    def push(self, text: list[int]) -> None:
        """Add the last token of `text`, which was just appended."""
        ...

    def pop(self, text: list[int]) -> None:
        """Undo the `push` of the last token of `text`, before it is removed."""
        ...


class History:
    """A text and its index; a change of text updates only what differs."""

    def __init__(self, index: Index) -> None:
        self.text: list[int] = []
        self._index = index

    def set_text(self, tokens: Sequence[int]) -> None:
        """Change to another text: keep the common prefix, undo the rest, append the new tokens."""
        shared = common_prefix(self.text, tokens)
        while len(self.text) > shared:
            self._index.pop(self.text)
            self.text.pop()
        self.extend(tokens[shared:])

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            self.text.append(token)
            self._index.push(self.text)
