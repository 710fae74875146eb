"""Recorded drafter: a draft model played from its logits on a text, which a correction may change.

Used by `learning`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from localspec.bench.experiments.corrections import Correction
from localspec.drafters.chain import Chain
from localspec.forecast.answers import Answer
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.utils.tokens import common_prefix

_Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recording:
    """An answer of the target, and what both models said before each of its tokens.

    target, drafter: (tokens, vocabulary) logits.
    """

    answer: Answer
    target: _Rows
    drafter: _Rows


class RecordedDrafter:
    """Drafts a recorded answer as the draft model would, with corrected logits.

    Behind a drafted token that is wrong, the rows of the answer stand for those that the model
    would have had: whatever is drawn of them is not accepted, and only takes time.
    """

    def __init__(self, name: str, correction: Correction) -> None:
        self.name, self.correction = name, correction
        self.traits = Traits(backlog=lambda: len(self._text) - self._cached)
        self._recording: Recording | None = None
        self._text: list[int] = []
        self._place = self._cached = 0
        # The tokens of the last draft.
        self._drafted: list[int] = []

    def record(self, recording: Recording) -> None:
        """The answer that is drafted from the next `begin` on."""
        self._recording = recording

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on the answer; `tokens` is its prompt, which the model has not read."""
        self._text, self._place, self._cached, self._drafted = list(tokens), 0, 0, []
        self.correction.begin()

    def propose(self, limit: Limit) -> Draft:
        """Draw tokens."""
        rows = self._rows.drafter
        depth = min(limit.depth, len(rows) - self._place)
        if depth < 1:
            return NOTHING
        go_on = limit.go_on

        def surer(confidence: float) -> bool:
            before, token = [*self._text, *chain.tokens[:-1]], chain.tokens[-1]
            return go_on is None or go_on(confidence + self.correction.surer(before, token))

        chain = Chain(replace(limit, go_on=go_on and surer), depth, rows.shape[1])
        self._cached = len(self._text)
        for row in rows[self._place : self._place + depth]:
            text = [*self._text, *chain.tokens]
            if not chain.draw(self.correction.corrected(row, text)):
                break
        self._drafted = chain.tokens
        return chain.draft

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens, and learn from those that were drafted too."""
        rows = self._rows
        for drafted, token in zip(self._drafted, outcome.tokens, strict=False):
            self.correction.learn_verdict(self._text, drafted, drafted == token)
            row, target = rows.drafter[self._place], rows.target[self._place]
            self.correction.learn(row, self._text, target)
            self._text.append(token)
            self._place += 1
        self._cached += common_prefix(self._drafted[:-1], outcome.tokens)
        rest = outcome.tokens[len(self._drafted) :]
        self._text += rest
        self._place += len(rest)
        self._drafted = []

    @property
    def _rows(self) -> Recording:
        assert self._recording is not None, "no answer is recorded"
        return self._recording
