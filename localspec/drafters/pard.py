"""PARD: a small model that drafts all its tokens in one pass, at mask tokens behind the text.

An et al. 2025, https://arxiv.org/abs/2504.18583. The row of the pending token predicts the token
after it, and the row of the i-th mask the i-th token after that. So no row knows what was drawn at
the rows before it: a further token costs a row, not a pass.
"""

from dataclasses import replace

from localspec.drafters.chain import Chain
from localspec.drafters.draft_model import Cache, DraftModel
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit
from localspec.speculation.passes import Pass, Passes


class Pard(DraftModel):
    """A drafter whose model was trained to predict at mask tokens; the rest is as in DraftModel.

    mask: the mask token, which may be outside the target's vocabulary.

    The masks never become text of the cache. The committed tokens that were drafted are evaluated
    with the next proposal, in the same pass.
    """

    def __init__(
        self, cache: Cache, *, name: str, n_vocab: int, mask: int, stand_in: int = 0
    ) -> None:
        super().__init__(cache, name=name, n_vocab=n_vocab, stand_in=stand_in)
        self.traits = replace(self.traits, parallel=True)
        self._mask = mask

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw up to `limit.depth` tokens from a pass of as many rows, until `limit.go_on` ends."""
        self._choose_part(from_end=limit.from_end)
        rows = min(limit.depth, self._room(limit.depth, from_end=limit.from_end) + 1)
        if rows < 1:
            return NOTHING
        masks = [self._mask] * (rows - 1)
        lacking = yield from self._catch_up(limit, self._cache.chunk - len(masks))
        if not lacking:
            return NOTHING
        scores = yield Pass(self._cache, [*lacking, *masks], drafted=len(masks), wanted=rows)
        self._cache.commit([])
        self._cached += len(lacking)
        chain = Chain(limit, rows, self._n_vocab)
        for logits in scores.logits:
            if not chain.draw(logits):
                break
        return chain.draft
