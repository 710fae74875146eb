"""Head cache: the KV cache of a drafter that reads hidden rows of its target."""

from typing import Protocol

from localspec.speculation.passes import Cached

# Hidden rows wait for a draft, up to this many: a head that does not draft costs next to nothing.
MOST_WAITING = 16


class HeadCache(Cached, Protocol):
    """What a head keeps of its text, place by place; `tokens` has a token for each place."""

    chunk: int
    tokens: list[int]

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int: ...

    def truncate(self, length: int) -> int:
        """Roll back to at most `length` places; return how many are left."""
        ...
