"""EAGLE-3: a head of one layer drafts from hidden rows of its target.

Li et al. 2025, https://arxiv.org/abs/2503.01840. The text is x_0 x_1 ... . The target's hidden rows
of three layers at position p, side by side, go through the head's encoder, which makes one state
g_p of them. The head's decoder reads the pair (x_{p+1}, g_p) at position p and predicts x_{p+2}: it
is one token ahead of the target. For the first drafted token the last pair is that of the pending
token. For each further one it is the token just drafted with the decoder's own state, in the place
of the target's.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import Cached, Pass, Passes, Scores
from localspec.utils.tokens import common_prefix

# The rows that leave the head's only layer; those of its encoder have the same number.
_OWN = 1
# Hidden rows wait for a draft, up to this many: a head that does not draft costs next to nothing.
_MOST_WAITING = 16
# States of so many of the last positions are kept, to go on from there when the text is cut; and
# the states at so many places where a prompt or an answer ended.
_RECENT, _MARKS = 8, 16


class HeadCache(Cached, Protocol):
    """The pairs in the head's KV cache, by their tokens: x_1 is the first."""

    chunk: int
    tokens: list[int]

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int: ...

    def truncate(self, length: int) -> int:
        """Roll back to at most `length` pairs; return how many are left."""
        ...


class Eagle3:
    """A drafter that reads the hidden rows of its target's `layers`, in this order.

    cache: the head's KV cache. name: the origin of its tokens. n_vocab: the target's vocabulary
    size.

    Only pairs of committed tokens with the target's own states stay in the cache. So after any
    verdict, the head drafts what a head that reads the whole text anew would draft. It does not
    draft for a text of which it has not read every hidden row.
    """

    def __init__(self, cache: HeadCache, *, name: str, n_vocab: int, layers: Sequence[int]) -> None:
        self.name = name
        self.traits = Traits(gives_probs=True, reads_hidden=tuple(layers))
        self._cache = cache
        self._n_vocab = n_vocab
        self._text: list[int] = []
        # The tokens whose hidden rows were read, and how many pairs of them the cache holds. The
        # last pair may be that of the last token that was read with the pending one.
        self._read: list[int] = []
        self._pairs = 0
        # Hidden rows by position until they are encoded, then states: of all positions without a
        # pair, and of a few with one.
        self._rows: dict[int, NDArray[np.float32]] = {}
        self._states: dict[int, NDArray[np.float32]] = {}
        self._marks: list[int] = []

    def held(self, tokens: Sequence[int]) -> int:
        """Keep what a text shares with the one before; return how many rows it need not read.

        tokens: the text without its pending token.
        """
        self._follow_cache(tokens)
        self._mark()
        kept = common_prefix(self._read, tokens)
        pair = self._cache.tokens[kept - 1 : self._pairs] if kept else []
        if not pair or pair != list(tokens[kept : kept + 1]):
            # The last kept token has no pair yet, or one with another token after it.
            self._keep(kept)
            self._cut_pairs(kept - 1)
        return len(self._read)

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text, whose hidden rows were read; the last token is pending."""
        self._text = list(tokens)
        self._keep(common_prefix(self._read, self._text[:-1]))
        self._mark()

    def read(self, evaluated: Evaluated) -> Passes[None]:
        """Keep the hidden rows of new tokens; encode and decode them if there are many."""
        start, tokens = evaluated.start, evaluated.tokens
        known = common_prefix(self._read[start:], tokens)
        if known == len(tokens) or self._has_unknown(tokens):
            return
        self._keep(start + known)
        known = len(self._read) - start
        if known < 0:
            return  # rows before these are missing
        layers = [evaluated.hidden[layer][known:] for layer in self.traits.reads_hidden]
        self._rows.update(enumerate(np.hstack(layers), start=len(self._read)))
        self._read += tokens[known:]
        if len(self._read) - 1 - self._pairs > _MOST_WAITING:
            yield from self._encode()
            self._cut_pairs(self._pairs)
            yield from self._decode(self._read[self._pairs + 1 :], wanted=0)

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw up to `limit.depth` tokens, one pass each, until `limit.go_on` returns False."""
        positions = len(self._text) - 1
        depth = min(limit.depth, self._cache.n_ctx + 1 - positions)
        # The last pair is decoded again if it was before: its logits are needed.
        self._cut_pairs(positions - 1)
        unread = positions != len(self._read) or self._has_unknown(self._text[-1:])
        if depth < 1 or not positions or unread or limit.cancelled():
            return NOTHING
        yield from self._encode()
        scores = yield from self._decode(self._text[self._pairs + 1 :], wanted=1)
        chain = Chain(limit, depth, self._n_vocab)
        while chain.draw(scores.logits[-1]):
            # A copy: a decode for another text may come before this one's next.
            own = scores.hidden[_OWN][-1:].copy()
            scores = yield Pass(self._cache, chain.tokens[-1:], hidden=(_OWN,), embeddings=own)
        self._cut_pairs(self._pairs)
        return chain.draft

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens, whose hidden rows come by `read`."""
        self._text += outcome.tokens

    # Passes.

    def _encode(self) -> Passes[None]:
        """Make states of the hidden rows that wait."""
        while self._rows:
            places = list(self._rows)[: self._cache.chunk]
            rows = np.stack([self._rows[place] for place in places])
            scores = yield Pass(
                self._cache, (), wanted=0, hidden=(_OWN,), embeddings=rows, encode=True
            )
            self._states.update(zip(places, scores.hidden[_OWN].copy(), strict=True))
            for place in places:
                del self._rows[place]

    def _decode(self, tokens: Sequence[int], *, wanted: int) -> Passes[Scores]:
        """Decode the next pairs. tokens: those of the pairs; wanted: of the last chunk's pass."""
        while True:
            chunk = tokens[: self._cache.chunk]
            tokens = tokens[len(chunk) :]
            states = [self._states[self._pairs + place] for place in range(len(chunk))]
            scores = yield Pass(
                self._cache,
                chunk,
                wanted=0 if tokens else wanted,
                hidden=(_OWN,),
                embeddings=np.stack(states),
            )
            self._pairs += len(chunk)
            self._drop_old_states(len(chunk))
            if not tokens:
                return scores

    # What is kept.

    def _follow_cache(self, tokens: Sequence[int]) -> None:
        """Find the pairs of this text in the cache if the cache was restored."""
        known = max(0, min(self._pairs, len(self._read) - 1))
        if self._read and self._cache.tokens[:known] == self._read[1 : known + 1]:
            return
        self._pairs = common_prefix(self._cache.tokens, tokens[1:])
        self._read = list(tokens[: self._pairs])
        self._rows.clear()
        self._states.clear()
        self._marks.clear()

    def _keep(self, length: int) -> None:
        """Forget all but the first `length` tokens."""
        if length < len(self._read):
            del self._read[length:]
            self._cut_pairs(length - 1)
            self._forget_states()

    def _cut_pairs(self, count: int) -> None:
        """Keep at most `count` pairs, and no drafted tokens; without their states, fewer tokens."""
        self._pairs = self._cache.truncate(max(0, min(count, self._pairs)))
        if not all(map(self._knows, range(self._pairs, len(self._read)))):
            del self._read[self._pairs :]
            self._forget_states()

    def _forget_states(self) -> None:
        length = len(self._read)
        for known in (self._rows, self._states):
            for place in [place for place in known if place >= length]:
                del known[place]
        self._marks = [place for place in self._marks if place < length]

    def _mark(self) -> None:
        """Keep the last state for longer: a prompt or an answer ends here."""
        last = len(self._read) - 1
        if self._knows(last) and last not in self._marks:
            self._marks.append(last)
            if len(self._marks) > _MARKS:
                oldest = self._marks.pop(0)
                if oldest < self._pairs - _RECENT:
                    self._states.pop(oldest, None)

    def _drop_old_states(self, added: int) -> None:
        """Drop states that `added` further pairs have made old, but not those at marks."""
        old = self._pairs - _RECENT
        for place in range(max(0, old - added), old):
            if place not in self._marks:
                self._states.pop(place, None)

    def _knows(self, place: int) -> bool:
        """Whether the state of a position is there, or the hidden rows that it is made of."""
        return place in self._states or place in self._rows

    def _has_unknown(self, tokens: Sequence[int]) -> bool:
        """Whether a token is outside the head's vocabulary, which may be a little smaller."""
        return max(tokens, default=0) >= self._cache.n_vocab
