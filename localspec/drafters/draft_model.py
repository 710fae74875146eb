"""Draft model: a small model with the target's vocabulary drafts.

Leviathan et al. 2023; Chen et al. 2023.
"""

from collections.abc import Sequence
from typing import Protocol

from localspec.drafters.chain import Chain, Drawn
from localspec.drafters.text_part import TextPart
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.passes import Cached, Pass, Passes
from localspec.utils.tokens import common_prefix


class Cache(Cached, Protocol):
    """The text in the KV cache of the drafter's model."""

    chunk: int

    @property
    def n_vocab(self) -> int: ...

    @property
    def n_ctx(self) -> int: ...

    def shared(self, tokens: Sequence[int]) -> int:
        """The number of tokens at the start of `tokens` that the cache holds."""
        ...

    def truncate(self, length: int) -> int:
        """Roll back to at most `length` tokens; return how many are left."""
        ...

    def take_prefix(self, tokens: Sequence[int]) -> int:
        """Take the beginning of `tokens` from another text, if that holds more; as `shared`."""
        ...

    def checkpoint(self) -> None:
        """Make sure that the cache can be rolled back to its present length."""
        ...

    def commit(self, path: Sequence[int]) -> None:
        """Keep the tokens of the last pass and, of its drafted ones, those of `path`."""
        ...


class DraftModel:
    """A drafter that draws from a small model, with the target's own sampler and noise.

    cache: the drafter's model and cache. name: the origin of its tokens. n_vocab: the target's
    vocabulary size; a draft model may have a few more tokens, which it must not propose, and a few
    less: stand_in is the token that it reads in the place of one that it lacks, such as that of a
    new line. Its drafts are guesses, and what the target makes of them depends on no token of its.

    Of a long prompt that it has not read it may leave out the middle (`Limit.from_end`): it goes on
    from what its cache holds with the last tokens, and drafts a little worse (see TextPart).

    Accepted tokens stay in the cache and are not evaluated again: a proposal first evaluates the
    committed tokens that the cache lacks, at most two. A cache that cannot be cut at any token is
    rolled back to before the draft; then it lacks all tokens committed since.

    ahead: whether it draws tokens ahead, while the target computes (Saguaro: Kumar, Dao, May 2026;
    PEARL: Liu et al. 2025). It guesses that all of its draft stands, and that the target's next
    token is its own: with shared noise, that is the likeliest one. Not for rules that need
    `Draft.probs`.
    """

    def __init__(
        self, cache: Cache, *, name: str, n_vocab: int, stand_in: int = 0, ahead: bool = False
    ) -> None:
        self.name = name
        ready = self._ready if ahead else None
        self.traits = Traits(
            gives_probs=True,
            backlog=self._backlog,
            end=self._end,
            fits=self._fits,
            ready=ready,
            computer=lambda: cache.context,
        )
        self._cache = cache
        self._n_vocab = n_vocab
        self._stand_in = stand_in
        # As this model reads it: token for token the target's, but for those that it lacks.
        self._text: list[int] = []
        self._part = TextPart()
        # How many tokens of the part the cache holds.
        self._cached = 0
        # The limit of the last proposal, and the tokens drawn behind the text; before a proposal
        # these are the ready ones. The cache holds all but the last.
        self._limit: Limit | None = None
        self._drawn: list[Drawn] = []

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text; nothing is evaluated before the first proposal."""
        self._text = self._known(tokens)
        self._part.begin(self._text, self._cache.shared)
        self._cached = self._cache.take_prefix(self._part.of(self._text)[:-1])
        self._drawn = []

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw up to `limit.depth` tokens, one pass each, until `limit.go_on` returns False."""
        self._choose_part(from_end=limit.from_end)
        depth = self._room(limit.depth, from_end=limit.from_end)
        if depth < 1:
            return NOTHING
        self._limit = limit
        chain = Chain(limit, depth, self._n_vocab)
        if self._holds_ready(limit):
            if not all(map(chain.take, self._drawn)):
                return chain.draft
            lacking = chain.tokens[-1:]
        else:
            lacking = yield from self._catch_up(limit, self._cache.chunk)
            if not lacking:
                return NOTHING
        logits = (yield Pass(self._cache, lacking)).logits[0]
        self._cached = self._part.size(len(self._text))
        while chain.draw(logits):
            if len(chain.tokens) == 1:
                self._cache.checkpoint()
            logits = (yield Pass(self._cache, chain.tokens[-1:])).logits[0]
        self._drawn = chain.drawn
        return chain.draft

    def passes_ahead(self, tokens: int) -> Passes[None]:
        """Draw up to so many tokens behind those of the last proposal, one pass each."""
        if self._limit is None or not self._drawn:
            return
        depth = self._room(len(self._drawn) + tokens, from_end=True)
        chain = Chain(self._limit.to(depth, self._limit.go_on and _always), depth, self._n_vocab)
        goes_on = all([chain.take(each) for each in self._drawn])
        while goes_on:
            logits = (yield Pass(self._cache, chain.tokens[-1:])).logits[0]
            goes_on = chain.draw(logits)
            self._drawn = chain.drawn

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens; the cache holds all drawn tokens except the last."""
        drawn, count = [each.token for each in self._drawn], len(outcome.tokens)
        self._cached += common_prefix(drawn[:-1], outcome.tokens)
        stand = self._keeps_drawn() and drawn[:count] == [*outcome.tokens]
        self._drawn = self._drawn[count:] if stand else []
        self._text += self._known(outcome.tokens)

    def _room(self, depth: int, *, from_end: bool) -> int:
        """How many of so many tokens behind the text, or its end, the context has room for."""
        length = len(self._text)
        return min(depth, self._cache.n_ctx - (self._part.size(length) if from_end else length))

    def _keeps_drawn(self) -> bool:
        """Whether tokens that the target has not verified may be those of the next proposal.

        A rejection rule draws a token after the draft by itself, so that it seldom is the guess;
        and the texts of a seed would depend on how many tokens there was time to draw.
        """
        ahead, limit = self.traits.ready is not None, self._limit
        return ahead and limit is not None and not limit.needs_probs

    def _ready(self) -> int:
        return len(self._drawn)

    def _holds_ready(self, limit: Limit) -> bool:
        """Whether there are ready tokens, and the cache holds all but the last and no others.

        Their distributions are not kept.
        """
        if not self._drawn or self.traits.ready is None or limit.needs_probs:
            return False
        held = self._cached + len(self._drawn) - 1
        if self._cache.truncate(held) < held:
            self._drawn = []
        return bool(self._drawn)

    def _backlog(self) -> int:
        return self._part.backlog(len(self._text), self._cached)

    def _end(self) -> int | None:
        return self._part.end(len(self._text), self._cached, room=self._cache.n_ctx)

    def _fits(self) -> bool:
        return len(self._text) < self._cache.n_ctx

    def _choose_part(self, *, from_end: bool) -> None:
        length, cache, gap = len(self._text), self._cache, self._part.gap
        self._cached = self._part.choose(
            length, self._cached, from_end=from_end, room=cache.n_ctx, cut=cache.truncate
        )
        if self._part.gap != gap:
            self._drawn = []

    def _catch_up(self, limit: Limit, room: int) -> Passes[list[int]]:
        """Evaluate the tokens that the cache lacks, except the last ones, up to `room` of them.

        Returns those, for a pass that gives logits; none if cancelled.
        """
        self._part.is_unread = False
        # The last token's logits are needed, so it is evaluated in any case.
        self._cached = self._cache.truncate(min(self._cached, self._part.size(len(self._text)) - 1))
        self._drawn = []
        while not limit.cancelled():
            lacking = self._part.of(self._text, self._cached)
            if len(lacking) <= room:
                return lacking
            chunk = lacking[:room]
            yield Pass(self._cache, chunk)
            self._cached += len(chunk)
        return []

    def _known(self, tokens: Sequence[int]) -> list[int]:
        n_vocab = self._cache.n_vocab
        if max(tokens, default=0) < n_vocab:
            return [*tokens]
        return [token if token < n_vocab else self._stand_in for token in tokens]


def _always(_confidence: float) -> bool:
    return True
