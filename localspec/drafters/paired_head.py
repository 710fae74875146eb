"""Paired head: a head that drafts from pairs of a token and a state made of its target's rows.

The text is x_0 x_1 ... . The head's KV cache has one cell for each pair: a token with the state of
the token before it. A pair predicts the token after its own. For the first drafted token the last
pair is that of the pending token. For each further one it is the token just drafted with the head's
own state, in the place of the target's.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.drafters.head_cache import HeadCache
from localspec.drafters.row_reader import RowReader
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Evaluated, Limit
from localspec.speculation.passes import Pass, Passes, Scores
from localspec.utils.media import BesideMedia
from localspec.utils.tokens import common_prefix

# States of so many of the last positions are kept, to go on from there when the text is cut; and
# the states at so many places where a prompt or an answer ended.
_RECENT, _MARKS = 8, 16


class PairedHead(RowReader):
    """A drafter that keeps pairs, of committed tokens with the target's own states.

    own: the layer of the head's own model whose rows are its own states. skipped: how many tokens
    at the beginning of the text have no pair, 0 or 1.

    A token outside the head's vocabulary has no pair: its rows are not read, nor are those after
    them, and the head drafts nothing behind it.
    """

    skipped = 0

    def __init__(
        self,
        cache: HeadCache,
        *,
        name: str,
        n_vocab: int,
        layers: Sequence[int],
        own: int,
        deepest: int | None = None,
    ) -> None:
        super().__init__(
            cache,
            name=name,
            n_vocab=n_vocab,
            layers=layers,
            deepest=deepest,
            computer=lambda: cache.context,
        )
        self._own = own
        # How many pairs the cache holds of the tokens that were read. The last pair may be that of
        # the last token that was read with the pending one.
        self._pairs = 0
        # States by position: of all positions without a pair, and of a few with one.
        self._states: dict[int, NDArray[np.float32]] = {}
        self._marks: list[int] = []

    def held(self, tokens: Sequence[int]) -> int:
        """Keep what a text shares with the one before; return how many rows it need not read.

        tokens: the text without its pending token.
        """
        # What is left, where the head's device has failed in the text before.
        self._cache.truncate(len(self._cache.tokens))
        self._follow_cache(tokens)
        self._mark()
        kept = common_prefix(self._read, tokens)
        place = kept - self.skipped
        pair = self._cache.tokens[place : self._pairs] if place >= 0 else []
        if not pair or pair != list(tokens[kept : kept + 1]):
            # The last kept token has no pair yet, or one with another token after it.
            self._keep(kept)
            self._cut_pairs(place)
        return len(self._read)

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text, whose hidden rows were read; the last token is pending."""
        super().begin(tokens)
        self._mark()

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Keep the hidden rows of new tokens; put them into the cache if there are many."""
        yield from super().read(evaluated)
        if evaluated.marked:
            self._mark()

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw up to `limit.depth` tokens, one pass each, until `limit.go_on` returns False."""
        pairs = len(self._text) - self.skipped
        depth = min(limit.depth, self._cache.n_ctx + 1 - pairs)
        # The last pair is decoded again if it was before: its logits are needed.
        self._cut_pairs(pairs - 1)
        readable = len(self._text) - 1 == len(self._read) and self._can_read(self._text[-1:])
        if depth < 1 or pairs < 1 or not readable or limit.cancelled():
            return NOTHING
        yield from self._prepare()
        chain = Chain(limit, depth, self._n_vocab)
        yield from self._draw(chain)
        self._cut_pairs(self._pairs)
        return chain.draft

    # Passes.

    @property
    def _waiting(self) -> int:
        return len(self._read) - self.skipped - self._pairs

    def _fill_cache(self) -> Passes[None]:
        yield from self._prepare()
        self._cut_pairs(self._pairs)
        # A sliding window may have lost the pairs; then nothing waits any more.
        if self._waiting > 0:
            yield from self._decode(self._read[self._pairs + self.skipped :], wanted=0)

    def _prepare(self) -> Passes[None]:
        """Make states of the rows that wait, if they are not states themselves."""
        yield from ()

    def _draw(self, chain: Chain) -> Passes[None]:
        """Decode the pairs that wait, the pending token's is the last, and draw the chain."""
        scores = yield from self._decode(self._text[self._pairs + self.skipped :], wanted=1)
        while chain.draw(scores.logits[-1]):
            # A copy: a decode for another text may come before this one's next.
            own = scores.hidden[self._own][-1:].copy()
            scores = yield Pass(self._cache, chain.tokens[-1:], hidden=(self._own,), embeddings=own)

    def _decode(self, tokens: Sequence[int], *, wanted: int) -> Passes[Scores]:
        """Decode the next pairs. tokens: those of the pairs; wanted: of the last chunk's pass."""
        while True:
            chunk = tokens[: self._cache.chunk]
            tokens = tokens[len(chunk) :]
            states = self._states_of_next(len(chunk))
            scores = yield Pass(
                self._cache,
                chunk,
                wanted=0 if tokens else wanted,
                hidden=(self._own,),
                embeddings=states,
            )
            self._count(len(chunk))
            if not tokens:
                return scores

    def _states_of_next(self, count: int) -> NDArray[np.float32]:
        """The states of the next pairs, (count, width)."""
        first = self._pairs + self.skipped - 1
        return np.stack([self._state(first + place) for place in range(count)])

    def _state(self, place: int) -> NDArray[np.float32]:
        """The state of a position."""
        return self._states[place]

    def _count(self, added: int) -> None:
        """The cache has so many pairs more."""
        self._pairs += added
        self._drop_old_states(added)

    # What is kept.

    def _follow_cache(self, tokens: Sequence[int]) -> None:
        """Find the pairs of this text in the cache if the cache was restored."""
        known = max(0, min(self._pairs, len(self._read) - self.skipped))
        if self._read and self._cache.tokens[:known] == self._read[self.skipped :][:known]:
            return
        self._pairs = common_prefix(self._cache.tokens, tokens[self.skipped :])
        self._read = []
        self._forget_states()
        self._read = list(tokens[: self._first_needed])

    @property
    def _first_needed(self) -> int:
        """The first position whose state no pair in the cache has been made with."""
        return max(0, self._pairs + self.skipped - 1)

    def _keep(self, length: int) -> None:
        if length < len(self._read):
            del self._read[length:]
            self._cut_pairs(length - self.skipped)
            self._forget_states()

    def _cut_pairs(self, count: int) -> None:
        """Keep at most `count` pairs, and no drafted tokens; without their states, fewer tokens."""
        self._pairs = self._cache.truncate(max(0, min(count, self._pairs)))
        if not all(map(self._knows, range(self._first_needed, len(self._read)))):
            del self._read[self._first_needed :]
            self._forget_states()

    def _forget_states(self) -> None:
        """Forget the states of positions that are not read."""
        length = len(self._read)
        for place in [place for place in self._states if place >= length]:
            del self._states[place]
        self._marks = [place for place in self._marks if place < length]

    def _mark(self) -> None:
        """Keep the last state for longer: an answer, a prompt or a beginning of many ends here."""
        last = len(self._read) - 1
        if self._knows(last) and last not in self._marks:
            self._marks.append(last)
            if len(self._marks) > _MARKS:
                oldest = self._marks.pop(0)
                if oldest < self._pairs - _RECENT:
                    self._states.pop(oldest, None)

    def _drop_old_states(self, added: int) -> None:
        """Drop states that `added` further pairs have made old, but not those at marks.

        Nor those beside images: to read such a row again would mean to read the image again.
        """
        old = self._pairs - _RECENT
        for place in range(max(0, old - added), old):
            if place not in self._marks and not isinstance(self._read[place], BesideMedia):
                self._states.pop(place, None)

    def _knows(self, place: int) -> bool:
        """Whether the state of a position is there, or the hidden rows that it is made of."""
        return place in self._states

    def _can_read(self, tokens: Sequence[int]) -> bool:
        # The head's vocabulary may be a little smaller.
        return max(tokens, default=0) < self._cache.n_vocab
