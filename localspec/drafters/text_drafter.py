"""Text drafter: a small model with another vocabulary than the target's, which drafts text.

The target's text is spelled anew in the drafter's tokens, and what the drafter writes in the
target's (Timor et al. 2025, "Accelerating LLM Inference with Lossless Speculative Decoding
Algorithms for Heterogeneous Vocabularies", algorithm 2, string-level exact match). The drafts are
one-hot, so every rule is exact for them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.draft_model import Cache
from localspec.drafters.respelled_text import RespelledText
from localspec.drafters.text_chain import TextChain
from localspec.drafters.text_part import TextPart
from localspec.drafters.translation import Translation
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.passes import Pass, Passes
from localspec.utils.tokens import common_prefix


class TextDrafter:
    """A drafter that draws from a small model of another vocabulary.

    cache: the drafter's model and cache. name: the origin of its tokens. translation: of the two
    vocabularies.

    Of a long prompt that it has not read it may leave out the middle (see TextPart), in tokens of
    its own. A text of which the cache takes no more tokens is drafted from its end alone.
    """

    def __init__(self, cache: Cache, *, name: str, translation: Translation) -> None:
        self.name = name
        self.traits = Traits(
            backlog=self._backlog, end=self._end, fits=self._fits, computer=lambda: cache.context
        )
        self._cache = cache
        self._translation = translation
        self._text = RespelledText(translation)
        self._part = TextPart()
        # The tokens in the cache, and how many of them are certainly the part's.
        self._held: list[int] = []
        self._certain = 0

    def reword(self, prompt: Sequence[int], wording: str | None) -> None:
        """Take another wording for a prompt, as the drafter's own chat template has it.

        prompt: the target's tokens that a text begins with. wording: None if there is none; then
        no prompt has one any more.
        """
        if wording is None:
            self._text.reword((), ())
            return
        own = self._translation.own.tokenizer
        tokens = own.tokenize(wording, add_special=False, parse_special=True)
        # Many templates write BOS themselves. An EOS behind the prompt would end the text.
        begins = [] if tokens[:1] == [own.bos] else self._translation.begins
        self._text.reword(prompt, [*begins, *tokens])

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on this text; nothing is evaluated before the first proposal."""
        self._text.set_text(tokens)
        self._part.begin(self._text.tokens, self._cache.shared, loose=self._loose)
        read = self._part.of(self._text.tokens)
        self._held = read[: self._cache.take_prefix(read)]
        self._certain = min(len(self._held), len(read) - self._loose)

    def observe(self, outcome: Outcome) -> None:
        """Append the committed tokens."""
        self._text.extend(outcome.tokens)

    def passes(self, limit: Limit) -> Passes[Draft]:
        """Draw tokens of the drafter, one pass each, until they make a draft of `limit.depth`."""
        self._choose_part(from_end=limit.from_end)
        length = len(self._text.tokens)
        room = self._cache.n_ctx - (self._part.size(length) if limit.from_end else length)
        if limit.depth < 1 or not length or room < 1:
            return NOTHING
        lacking = yield from self._catch_up(limit)
        if not lacking:
            return NOTHING
        logits = yield from self._read(lacking)
        chain = TextChain(limit, self._translation, room)
        while chain.draw(logits):
            if len(chain.drawn) == 1:
                self._cache.checkpoint()
            logits = yield from self._read(chain.drawn[-1:])
        return Draft(chain.tokens)

    @property
    def _loose(self) -> int:
        """How many of the last tokens may become others with the tokens that come."""
        return len(self._text.tokens) - self._text.stable

    def _backlog(self) -> int:
        return self._part.backlog(len(self._text.tokens), self._shared())

    def _end(self) -> int | None:
        room, length = self._cache.n_ctx, len(self._text.tokens)
        return self._part.end(length, self._shared(), room=room, loose=self._loose)

    def _fits(self) -> bool:
        return len(self._text.tokens) < self._cache.n_ctx

    def _shared(self) -> int:
        """How many tokens of the part the cache holds."""
        own = self._text.tokens
        since = min(self._certain, self._part.size(len(own)))
        return since + common_prefix(self._held[since:], self._part.of(own, since))

    def _choose_part(self, *, from_end: bool) -> None:
        """Leave out the middle or take it back, and note what is held of the text then."""
        length, cut, loose = len(self._text.tokens), self._cache.truncate, self._loose
        room, shared = self._cache.n_ctx, self._shared()
        self._hold(
            self._part.choose(length, shared, from_end=from_end, room=room, cut=cut, loose=loose)
        )

    def _hold(self, count: int) -> None:
        """Go on behind so many tokens that the cache holds of the part."""
        del self._held[count:]
        self._certain = min(count, self._part.size(self._text.stable))

    def _catch_up(self, limit: Limit) -> Passes[list[int]]:
        """Evaluate the tokens that the cache lacks, except the last ones.

        Returns those, for a pass that gives logits; none if cancelled.
        """
        own = self._text.tokens
        self._part.is_unread = False
        # The last token's logits are needed, so it is evaluated in any case.
        self._hold(self._cache.truncate(min(len(self._held), self._part.size(len(own)) - 1)))
        while not limit.cancelled():
            lacking = self._part.of(own, len(self._held))
            if len(lacking) <= self._cache.chunk:
                return lacking
            yield from self._read(lacking[: self._cache.chunk])
        return []

    def _read(self, tokens: Sequence[int]) -> Passes[NDArray[np.float32]]:
        """Evaluate tokens; returns the logits after the last one."""
        scores = yield Pass(self._cache, tokens)
        self._held += tokens
        logits: NDArray[np.float32] = scores.logits[0]
        return logits
