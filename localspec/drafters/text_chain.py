"""Text chain: the text that a drafter with another vocabulary writes, in the target's tokens."""

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.confidence import margin
from localspec.drafters.translation import NONE, Translation
from localspec.errors import LocalspecError
from localspec.sampling.block_maxima import Ids, Row
from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import largest
from localspec.speculation.drafter import Limit
from localspec.utils.tokens import common_prefix

# Tokens this far below the likeliest, in logits, are not considered, nor more than so many.
_NEAR, _MOST = 16.0, 512
# A draft takes at most so many of the drafter's tokens for one of the target's.
_MOST_DRAWN = 8


class TextChain:
    """A draft that grows by the tokens that the drafter draws.

    limit: of the proposal. room: the most tokens of the drafter.

    tokens: the draft, in the target's tokens. drawn: the drafter's own.

    The drafter's row becomes one of the target's tokens: the weight of each is that of the
    drafter's tokens that begin with it. The target's own sampler draws from that row, with its
    filters, and under the rule `coupled` with the very noise that the target will use.
    """

    def __init__(self, limit: Limit, translation: Translation, room: int) -> None:
        self.tokens: list[int] = []
        self.drawn: list[int] = []
        self._limit = limit
        self._translation = translation
        self._most = min(room, _MOST_DRAWN * limit.depth)
        self._written = b""
        # Before each token of the draft, and behind the last.
        self._prefixes = [limit.prefix]

    def draw(self, logits: Row) -> bool:
        """Draw the drafter's next token; returns whether to draw another one.

        logits: those after its last token, (n,). The chain ends where they allow no token of the
        target, or contain NaN or +inf.
        """
        # The maximum of a row with NaN is NaN, so one pass over the row finds both.
        if not np.isfinite(logits.max()):
            return False
        ids = _likely(logits)
        firsts = self._translation.firsts(ids)
        ids, firsts = ids[firsts != NONE], firsts[firsts != NONE]
        if not ids.size:
            return False
        row = self._row_of_target(logits[ids], firsts)
        sampler, prefix = self._limit.sampler, self._prefixes[-1]
        try:
            proposal = sampler.distribution(row, prefix)
        except LocalspecError:
            return False
        # A rejection rule takes drafts as certain: then the likeliest token is the best guess.
        if self._limit.needs_probs:
            first = proposal.token(int(proposal.logits.argmax()))
        else:
            first = sampler.sample(proposal, prefix)
        sharing = ids[firsts == first]
        token = int(sharing[logits[sharing].argmax()])
        before = len(self.tokens)
        goes_on = self._take(token, proposal)
        if self._limit.go_on is not None and len(self.tokens) > before:
            confidence = margin(row, proposal, first, sampler, prefix)
            for _ in range(len(self.tokens) - before):
                goes_on = self._limit.go_on(confidence) and goes_on
        return goes_on and len(self.tokens) < self._limit.depth and len(self.drawn) < self._most

    def _row_of_target(self, logits: Row, firsts: NDArray[np.int64]) -> Row:
        """(n_vocab,) the logits of the target's tokens. logits, firsts: (n,) of likely tokens."""
        row = np.full(self._translation.target.tokenizer.n_vocab, -np.inf, np.float32)
        which, places = np.unique(firsts, return_inverse=True)
        top = logits.max()
        row[which] = np.log(np.bincount(places, np.exp(logits - top))) + top
        return row

    def _take(self, token: int, proposal: Distribution) -> bool:
        """Append one of the drafter's tokens; returns whether the text goes on behind it."""
        self.drawn.append(token)
        end = self._translation.end(token)
        if end is not None:
            return self._set_tokens([*self.tokens, end], proposal) and False
        self._written += self._translation.own.pieces[token]
        return self._set_tokens(self._translation.target.tokens(self._written), proposal)

    def _set_tokens(self, tokens: list[int], proposal: Distribution) -> bool:
        """Make these the draft, up to the depth; False if one of them is forbidden.

        proposal: the distribution of the token behind the draft so far. The others' are not known.
        """
        tokens, place = tokens[: self._limit.depth], len(self.tokens)
        kept = common_prefix(tokens, self.tokens)
        del self._prefixes[kept + 1 :], self.tokens[kept:]
        for token in tokens[kept:]:
            before = self._prefixes[-1]
            if before.constraint and not before.constraint.allowed()[token]:
                return False
            state = proposal.state_after(token) if len(self.tokens) == place else None
            self.tokens.append(token)
            self._prefixes.append(before.then(token, state))
        return True


def _likely(logits: Row) -> Ids:
    """The tokens that are worth a look."""
    near = np.flatnonzero(logits >= logits.max() - np.float32(_NEAR))
    return near[largest(logits[near], _MOST)] if near.size > _MOST else near
