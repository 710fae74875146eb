"""DFlash2: a DFlash head that finds a few candidates for each row, and scores their transitions.

The head hands out a lattice instead of logits. Each of its rows begins with the ids of k
candidates; k rows of k scores follow, one for each candidate of the row before it: how well each
candidate goes with that one. For the first drafted token, these k rows are alike. So the law of a
token, given the token drawn before it, is the softmax of k scores, and the path is drawn token by
token as from any chain. Candidates outside the target's vocabulary, and those whose score is no
finite number, are left out; a row without another candidate ends the draft.
"""

import numpy as np

from localspec.drafters.chain import Chain
from localspec.drafters.dflash import Dflash
from localspec.speculation.passes import Scores


class Dflash2(Dflash):
    """A drafter as Dflash, with the candidates of a DFlash2 head."""

    _wants_logits = False

    @property
    def _own_rows(self) -> tuple[int, ...]:
        return (self._block.rows,)

    def _draw(self, chain: Chain, scores: Scores) -> None:
        count, before = self._block.candidates, 0
        for row in scores.hidden[self._block.rows][1:]:
            ids, transitions = row[:count], row[count:][before * count :][:count]
            # A head with an output of its own may have a few tokens more than its target.
            known = (ids >= 0) & (ids < self._n_vocab) & np.isfinite(transitions)
            logits = np.full(self._n_vocab, -np.inf, np.float32)
            logits[ids[known].astype(np.intp)] = transitions[known]
            if not chain.draw(logits):
                return
            before = int(np.flatnonzero(known & (ids == chain.tokens[-1]))[0])
