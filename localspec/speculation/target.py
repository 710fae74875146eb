"""Target: the text of a decoder in the KV cache of the model that decides every token."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from localspec.speculation.passes import WIDE, Cached, Pass


class Target(Cached, Protocol):
    """A text in the target's KV cache: the committed tokens, without the pending one.

    n_vocab: the number of tokens in the vocabulary. most_kept: the most tokens of the next pass
    that can become text. branches: the most branches of a draft; 1 where only chains can be scored.
    only_chains: the reason why trees can never be scored in this model's cache; None if a larger
    context could. takes_back: as in Limit. scores_drafts: whether the cache can forget a draft.
    """

    @property
    def most_kept(self) -> int: ...

    @property
    def n_vocab(self) -> int: ...

    @property
    def branches(self) -> int: ...

    @property
    def only_chains(self) -> str | None: ...

    @property
    def takes_back(self) -> int | None: ...

    @property
    def scores_drafts(self) -> bool: ...

    def shared(self, tokens: Sequence[int]) -> int:
        """The length of the common prefix of `tokens` and the text."""
        ...

    def truncate(self, length: int) -> int:
        """Cut the text to at most `length` tokens; return how many are left."""
        ...

    def part(self, tokens: Sequence[int], at: int, end: int, most: int) -> int:
        """How many of `tokens`, those from `at` to `end`, the next pass of a prompt reads.

        `most` at most, but of an image as many as fit.
        """
        ...

    def take_prefix(self, tokens: Sequence[int]) -> int:
        """Take the beginning of `tokens` from another text, if that holds more; as `shared`."""
        ...

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` other texts begin with, so that a mark is of use there; 0: none."""
        ...

    def mark(self) -> None:
        """Keep the present state, so that a later `truncate` can return to it."""
        ...

    def catch_up(self) -> Iterator[Pass]:
        """The passes that must come before the next one, after a deep rollback."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep the drafted tokens of `path` in the cache; remove the other drafted tokens."""
        ...


def prompt_part(unread: int, most: int) -> int:
    """How many of the unread tokens of a prompt the next pass reads, at most `most`.

    The last pass is a wide one where that is possible, so that its digits do not depend on `most`.
    """
    return unread - WIDE if 2 * WIDE <= most < unread < most + WIDE else min(unread, most)
