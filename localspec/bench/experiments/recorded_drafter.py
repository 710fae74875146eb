"""Recorded drafter: a draft model played from its logits on a text that the target has written.

Used by `copies`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.chain import Chain
from localspec.forecast.answers import RecordedAnswer
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import MAX_DEPTH, NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.passes import Pass, direct
from localspec.utils.tokens import common_prefix

_Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recording:
    """An answer of the target, and what a draft model said before each of its tokens.

    rows: (tokens, vocabulary) logits.
    """

    answer: RecordedAnswer
    rows: _Rows


def recorded(sequence: KVSequence, answer: RecordedAnswer, n_vocab: int) -> Recording:
    """Read an answer with a draft model, whose cache `sequence` is."""
    sequence.set_tokens(answer.prompt[:-1])
    tokens, found = answer.text[len(answer.prompt) - 1 : -1], []
    for start in range(0, len(tokens), MAX_DEPTH + 1):
        chunk = tokens[start : start + MAX_DEPTH + 1]
        found.append(direct(Pass(sequence, chunk, wanted=len(chunk))).logits[:, :n_vocab].copy())
    return Recording(answer, np.concatenate(found))


class RecordedDrafter:
    """Drafts a recorded answer as the draft model would.

    Behind a drafted token that is wrong, the rows of the answer stand for those that the model
    would have had: whatever is drawn of them is not accepted, and only takes time.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.traits = Traits(backlog=lambda: len(self._text) - self._cached)
        self._rows: _Rows | None = None
        self._text: list[int] = []
        self._place = self._cached = 0
        # The tokens of the last draft.
        self._drafted: list[int] = []

    def record(self, recording: Recording) -> None:
        """The answer that is drafted from the next `begin` on."""
        self._rows = recording.rows

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on the answer; `tokens` is its prompt, which the model has not read."""
        self._text, self._place, self._cached, self._drafted = list(tokens), 0, 0, []

    def propose(self, limit: Limit) -> Draft:
        """Draw tokens."""
        assert self._rows is not None, "no answer is recorded"
        depth = min(limit.depth, len(self._rows) - self._place)
        if depth < 1:
            return NOTHING
        chain = Chain(limit, depth, self._rows.shape[1])
        self._cached = len(self._text)
        for row in self._rows[self._place : self._place + depth]:
            if not chain.draw(row):
                break
        self._drafted = chain.tokens
        return chain.draft

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens."""
        self._cached += common_prefix(self._drafted[:-1], outcome.tokens)
        self._text += outcome.tokens
        self._place += len(outcome.tokens)
        self._drafted = []
