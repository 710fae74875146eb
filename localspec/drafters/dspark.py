"""DSpark: a DFlash head whose rows depend on the tokens before them, and a confidence in each.

A Markov head adds to each row of the block what follows the token before it. llama.cpp computes
this chain inside its graph, where the token before is the likeliest one, not the one drawn here. So
the row of the i-th token is a law given the likeliest tokens before it:

- the rule `coupled` is exact whatever is drafted; after a token that is not the likeliest one, the
  next rows are a little off, and fewer tokens are accepted;
- the rejection rules need the law that each token was really drawn from, and this row is that law:
  it depends on the committed text alone.

The confidence head says for each row how probable it is that the token is accepted. It depends on
the committed text alone, too.
"""

from math import log

from localspec.drafters.chain import Chain
from localspec.drafters.dflash import Dflash
from localspec.speculation.passes import Scores

# A confidence of 0 or 1 has no log-odds.
_LEAST = 1e-6


class Dspark(Dflash):
    """A drafter as Dflash, with the rows and the confidence of a DSpark head."""

    @property
    def _own_rows(self) -> tuple[int, ...]:
        return (self._block.rows,) if self._block.has_confidence else ()

    def _draw(self, chain: Chain, scores: Scores) -> None:
        for place in range(self._block.first, self._block.size):
            if not chain.draw(scores.logits[place], self._confidence(scores, place)):
                return

    def _confidence(self, scores: Scores, place: int) -> float | None:
        """The log-odds that the token of a row is accepted, if the head says it."""
        if not self._block.has_confidence:
            return None
        chance = min(max(float(scores.hidden[self._block.rows][place, 0]), _LEAST), 1 - _LEAST)
        return log(chance / (1 - chance))
