"""Assistant: Gemma 4's own small model, which reads its target's KV cache and last hidden row.

The text is x_0 x_1 ... ; its last token x_n is pending, and the target's cache holds those before.
The first drafted token is predicted from the pair (x_n, h_{n-1}), where h is the row that leaves
the target's last layer; each further one from the token just drafted and the assistant's own row.
All of them look at the target's cache from position n, and leave nothing there.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import Cached, Pass, Passes
from localspec.utils.tokens import common_prefix

# The rows of so many of the last positions are kept, and those at so many places where a prompt or
# an answer ended, to go on from there when the text is cut.
_RECENT, _MARKS = 16, 16
# The layer of the assistant's own rows: it counts none of its layers.
_OWN = 0


class TargetCells(Cached, Protocol):
    """A text in its target's cache, as the assistant reads it.

    cells: how many of its tokens are in the cache. n_cells: the most. n_vocab: the assistant's.
    """

    @property
    def cells(self) -> int: ...

    @property
    def n_cells(self) -> int: ...

    @property
    def n_vocab(self) -> int: ...


class Assistant:
    """A drafter that needs the row of one token alone: that in front of the pending one.

    name: the origin of its tokens. n_vocab: the target's vocabulary size. layers: the number of the
    target's layers alone, which stands for the rows that leave the last.

    It does not draft where the row is missing, behind a token outside its vocabulary, and where the
    target's cache lacks tokens of the text or has no place for another one.
    """

    def __init__(
        self, cells: TargetCells, *, name: str, n_vocab: int, layers: Sequence[int]
    ) -> None:
        self.name = name
        self.traits = Traits(
            gives_probs=True,
            reads_hidden=tuple(layers),
            only_last_row=True,
            reads_media=True,
            computer=lambda: cells.context,
        )
        self._cells = cells
        self._n_vocab = n_vocab
        (self._layer,) = layers
        self._text: list[int] = []
        # Rows by position, each of the text up to there; a row at a mark is kept for longer.
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._marks: list[int] = []

    def held(self, tokens: Sequence[int]) -> int:
        """Keep the rows of what a text shares with the one before; return how many are not needed.

        tokens: the text without its pending token. Only the last row is needed.
        """
        self._mark()
        shared = common_prefix(self._text, tokens)
        self._rows = {place: row for place, row in self._rows.items() if place < shared}
        self._marks = [place for place in self._marks if place < shared]
        self._text = list(tokens)
        last = len(tokens) - 1
        return len(tokens) if last in self._rows or last < 0 else last

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text; the last token is pending."""
        self.held(tokens)

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Keep the rows of the last tokens."""
        end = evaluated.start + len(evaluated.tokens)
        for place in range(max(evaluated.start, end - _RECENT), end):
            # A copy: a row that is kept must not keep all rows of its pass.
            self._rows[place] = evaluated.hidden[self._layer][place - evaluated.start].copy()
        for place in [each for each in self._rows if each < end - _RECENT]:
            if place not in self._marks:
                del self._rows[place]
        if evaluated.marked:
            self._mark()
        yield from ()

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw up to `limit.depth` tokens, one pass each, until `limit.go_on` returns False."""
        before, token = len(self._text) - 1, self._text[-1]
        last = self._rows.get(before - 1)
        is_readable = self._cells.cells == before < self._cells.n_cells
        if last is None or not is_readable or token >= self._cells.n_vocab or limit.cancelled():
            return NOTHING
        chain, row = Chain(limit, limit.depth, self._n_vocab), last[None]
        while True:
            scores = yield Pass(self._cells, [token], hidden=(_OWN,), embeddings=row)
            if not chain.draw(scores.logits[-1]):
                return chain.draft
            # A copy: a decode for another text may come before this one's next.
            token, row = chain.tokens[-1], scores.hidden[_OWN][-1:].copy()

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens, whose rows come by `read`."""
        self._text += outcome.tokens

    def _mark(self) -> None:
        """Keep the last row for longer: a prompt or an answer ends here."""
        last = max(self._rows, default=-1)
        if last >= 0 and last not in self._marks:
            self._marks = [*self._marks, last][-_MARKS:]
