"""MTP: heads of multi-token prediction (NextN), trained with their target, draft from its rows.

DeepSeek-V3 2024, https://arxiv.org/abs/2412.19437, section 2.2. The text is x_0 x_1 ... . A head
reads the pair (x_p, h_{p-1}) at position p, where h is the row that leaves the target's last layer,
and predicts x_{p+1}, as the target does at this position. In front of the text, h is zero.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.drafters.head_cache import HeadCache
from localspec.drafters.paired_head import PairedHead
from localspec.speculation.passes import Pass, Passes, Scores


class Mtp(PairedHead):
    """A single head, which reads its own rows behind the first drafted token.

    layers: the number of the target's layers, alone. own: that of the layers in the head's file
    that are not heads. width: of a row.
    """

    def __init__(
        self,
        cache: HeadCache,
        *,
        name: str,
        n_vocab: int,
        layers: Sequence[int],
        own: int,
        width: int,
        deepest: int | None = None,
    ) -> None:
        super().__init__(cache, name=name, n_vocab=n_vocab, layers=layers, own=own, deepest=deepest)
        self._before_text = np.zeros(width, np.float32)

    def _take(self, start: int, layers: Sequence[NDArray[np.float32]]) -> None:
        # Copies: a row that is kept must not keep all rows of its pass.
        for place, row in enumerate(layers[0], start=start):
            self._states[place] = row.copy()

    def _state(self, place: int) -> NDArray[np.float32]:
        return self._states[place] if place >= 0 else self._before_text


class ChainedMtp(Mtp):
    """Several heads in one model: each predicts one token further than the one before.

    count: of heads, which is the most tokens of a draft. cache: has a layer for each head; all read
    the same pairs, one after the other, in the same cells.

    The pairs of a draft's first pass are decoded by each head that draws, so they stay in the cache
    only where all of them have drawn.

    Behind one head's pass, another text may take cells of a sliding window which the next head
    needs, or find that the device has failed: then the pairs are lost, and the head drafts nothing
    until the text is read again.
    """

    def __init__(self, cache: HeadCache, *, count: int, **options: Any) -> None:
        super().__init__(cache, deepest=count, **options)
        self._heads = count

    def _draw(self, chain: Chain) -> Passes[None]:
        # A draft of all heads leaves at most one pair more than there are heads. More wait after
        # shallow drafts: without logits they are cheap, and no further draft decodes them again.
        waiting = len(self._text) - self._pairs
        if waiting > min(self._heads + 1, self._cache.chunk - self._heads):
            yield from self._decode(self._text[self._pairs : -1], wanted=0)
            if self._pairs < len(self._text) - 1:
                return
        start, tokens = self._pairs, self._text[self._pairs :]
        states = self._states_of_next(len(tokens))
        for head in range(self._heads):
            if not self._cuts_back(start, head):
                return
            scores = yield Pass(
                self._cache,
                [*tokens, *chain.tokens],
                hidden=(self._own,),
                embeddings=states,
                layer_offset=head,
            )
            if not chain.draw(scores.logits[-1]):
                break
            states = np.vstack([states, scores.hidden[self._own][-1:]])
        if head == self._heads - 1:
            self._count(len(tokens))

    def _decode(self, tokens: Sequence[int], *, wanted: int) -> Passes[Scores]:
        scores = Scores(np.empty((0, self._n_vocab), np.float32))
        while tokens:
            chunk = tokens[: self._cache.chunk]
            tokens = tokens[len(chunk) :]
            states = self._states_of_next(len(chunk))
            for head in range(self._heads):
                if not self._cuts_back(self._pairs, head):
                    self._cut_pairs(self._pairs)
                    return scores
                scores = yield Pass(
                    self._cache, chunk, wanted=wanted, embeddings=states, layer_offset=head
                )
            self._count(len(chunk))
        return scores

    def _cuts_back(self, pairs: int, head: int) -> bool:
        """Cut the cache to so many pairs, for this head; False if what is needed was lost."""
        held = self._cache.truncate(len(self._cache.tokens))
        return self._cache.truncate(pairs) == pairs and bool(held or not head)
