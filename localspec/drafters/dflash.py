"""DFlash: a head of a few layers drafts a block of tokens in one pass, from hidden rows.

https://arxiv.org/abs/2602.06036. The target's hidden rows of several layers at position p, side by
side, become the keys and values of the head's cache at position p. To draft, the head decodes the
pending token and as many mask tokens as the block has room for, which read the cache and each
other. The row of each mask token is the law of the token in its place, given the committed text
alone: it does not depend on the tokens drafted before it. The block is then forgotten.

A row depends on the number of masks after it. So the whole block is decoded at every depth.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.drafters.head_cache import HeadCache
from localspec.drafters.row_reader import RowReader
from localspec.gguf.block_heads import Block
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, Passes, Scores
from localspec.utils.tokens import common_prefix


class Dflash(RowReader):
    """A drafter that keeps the hidden rows themselves.

    block: of the head. reads_media: as in Traits. Of a token outside the head's vocabulary it reads
    the hidden row as of any other; it does not draft only where the token is pending.
    """

    # Whether a block's pass computes logits.
    _wants_logits = True

    def __init__(
        self,
        cache: HeadCache,
        *,
        name: str,
        n_vocab: int,
        layers: Sequence[int],
        block: Block,
        reads_media: bool = False,
    ) -> None:
        super().__init__(
            cache,
            name=name,
            n_vocab=n_vocab,
            layers=layers,
            deepest=block.drafted,
            reads_media=reads_media,
        )
        self._block = block
        # The hidden rows of the tokens read that are not in the cache.
        self._rows: list[NDArray[np.float32]] = []

    def held(self, tokens: Sequence[int]) -> int:
        """Keep what a text shares with the one before; return how many rows it need not read.

        tokens: the text without its pending token.
        """
        cached = self._cache.tokens
        if cached != self._read[: len(cached)]:
            # The cache was restored.
            self._read, self._rows = list(cached), []
        self._keep(common_prefix(self._read, tokens))
        return len(self._read)

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Decode the whole block; draw up to `limit.depth` tokens until `limit.go_on` is False."""
        known, block = len(self._text) - 1, self._block
        depth = min(limit.depth, block.drafted)
        fits = known + block.size <= self._cache.n_ctx and self._text[-1] < self._cache.n_vocab
        if depth < 1 or not fits or limit.cancelled():
            return NOTHING
        yield from self._fill_cache()
        # Rows are missing, or the cache was lost with its device just now.
        if known != len(self._read):
            return NOTHING
        scores = yield Pass(
            self._cache,
            [self._text[-1], *[block.mask] * (block.size - 1)],
            drafted=block.size,
            wanted=block.size if self._wants_logits else 0,
            hidden=self._own_rows,
        )
        chain = Chain(limit, depth, self._n_vocab)
        self._draw(chain, scores)
        return chain.draft

    # What the kinds do differently.

    @property
    def _own_rows(self) -> tuple[int, ...]:
        """The head's own rows of a block that a draft needs, as in Pass.hidden."""
        return ()

    def _draw(self, chain: Chain, scores: Scores) -> None:
        """Draw the tokens of a draft from the rows of its block."""
        for row in scores.logits[self._block.first :]:
            if not chain.draw(self._as_targets(row)):
                return

    def _as_targets(self, row: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale logits as the target does, which matters for all but the likeliest token."""
        if self._block.logit_scale:
            row = row * np.float32(self._block.logit_scale)
        if cap := np.float32(self._block.softcap):
            row = cap * np.tanh(row / cap)
        return row

    # The cache.

    @property
    def _waiting(self) -> int:
        return len(self._rows)

    def _take(self, start: int, layers: Sequence[NDArray[np.float32]]) -> None:
        self._rows += list(np.hstack(layers))

    def _fill_cache(self) -> Passes[None]:
        """Put the hidden rows that wait into the cache, without a block that was interrupted."""
        self._keep(len(self._read))
        while self._rows:
            rows, held = self._rows[: self._cache.chunk], len(self._cache.tokens)
            tokens = self._read[held : held + len(rows)]
            yield Pass(self._cache, tokens, wanted=0, embeddings=np.stack(rows))
            del self._rows[: len(rows)]

    def _keep(self, length: int) -> None:
        before = len(self._read) - len(self._rows)
        held = self._cache.truncate(min(length, before))
        if held < min(length, before):
            length = held
        del self._read[length:], self._rows[max(0, length - before) :]
