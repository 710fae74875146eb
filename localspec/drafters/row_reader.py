"""Row reader: what all drafters share that keep hidden rows of their target in a cache."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.head_cache import MOST_WAITING, HeadCache
from localspec.speculation.drafter import Evaluated, Outcome, Traits
from localspec.speculation.passes import Passes
from localspec.utils.tokens import common_prefix


class RowReader(ABC):
    """A HiddenReader that reads the hidden rows of its target's `layers`, in this order.

    cache: the head's KV cache. name: the origin of its tokens. n_vocab: the target's vocabulary
    size. deepest: the most tokens of a draft; None: any number. Others as in Traits.

    Only what belongs to committed tokens stays in the cache. So after any verdict, the head drafts
    what a head that reads the whole text anew would draft. It does not draft for a text of which it
    has not read every hidden row.
    """

    def __init__(
        self,
        cache: HeadCache,
        *,
        name: str,
        n_vocab: int,
        layers: Sequence[int],
        deepest: int | None,
        computer: Callable[[], object] | None = None,
        reads_media: bool = False,
    ) -> None:
        self.name = name
        self.traits = Traits(
            gives_probs=True,
            reads_hidden=tuple(layers),
            deepest=deepest,
            computer=computer,
            reads_media=reads_media,
        )
        self._cache = cache
        self._n_vocab = n_vocab
        self._text: list[int] = []
        # The tokens whose hidden rows were read.
        self._read: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text, whose hidden rows were read; the last token is pending."""
        self._text = list(tokens)
        self._keep(common_prefix(self._read, self._text[:-1]))

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Keep the hidden rows of new tokens; put them into the cache if there are many."""
        start, tokens = evaluated.start, evaluated.tokens
        known = common_prefix(self._read[start:], tokens)
        if known == len(tokens) or not self._can_read(tokens):
            return
        self._keep(start + known)
        known = len(self._read) - start
        if known < 0:
            return  # rows before these are missing
        layers = [evaluated.hidden[layer][known:] for layer in self.traits.reads_hidden]
        self._take(len(self._read), layers)
        self._read += tokens[known:]
        if self._waiting > MOST_WAITING:
            yield from self._fill_cache()

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens, whose hidden rows come by `read`."""
        self._text += outcome.tokens

    def _can_read(self, tokens: Sequence[int]) -> bool:
        """Whether the head knows these tokens."""
        return True

    @property
    @abstractmethod
    def _waiting(self) -> int:
        """How many rows are read that are not in the cache."""

    @abstractmethod
    def _take(self, start: int, layers: Sequence[NDArray[np.float32]]) -> None:
        """Keep the rows of the positions from `start` on; one array for each layer that is read."""

    @abstractmethod
    def _fill_cache(self) -> Passes[None]:
        """Decode what waits."""

    @abstractmethod
    def _keep(self, length: int) -> None:
        """Forget all but the first `length` tokens; the cache may have to forget more."""
