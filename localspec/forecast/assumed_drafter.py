"""Assumed drafter: a head in a forecast, right as often as is known or usual of it.

A forecast replays drafters over answers that are written already. A head drafts only beside its
target, whose hidden rows are gone by then. So of a head the acceptance rate is taken as known, the
same at every place, and only its costs are those of this machine. The same holds for a draft model
with another vocabulary: its distributions are not over the answers' tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.forecast.answers import Answer
from localspec.forecast.replay import ScoredText
from localspec.loading.drafter_set import SequenceDrafter
from localspec.loading.first_guesses import Guess
from localspec.models.kinds import THROUGH_TEXT
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome


def is_assumed(member: SequenceDrafter) -> bool:
    """Whether a drafter cannot be replayed."""
    return bool(member.drafter.traits.reads_hidden) or member.kind == THROUGH_TEXT


class AssumedDrafter:
    """Stands for a head, or for a drafter with another vocabulary.

    guess: its acceptance rate. answers: the texts that it may draft.
    """

    def __init__(self, head: Drafter, guess: Guess, answers: Sequence[Answer]) -> None:
        self.name = head.name
        self.traits = replace(head.traits, reads_hidden=(), gives_probs=False, backlog=None)
        self.guess = guess
        self._answers = answers
        self._tokens: list[int] = []
        self._right: list[bool] = []
        self._place = 0

    def scored(self, answer: Answer) -> ScoredText:
        """An answer of which every token is right with the same probability."""
        n, rate = len(answer.tokens), self.guess.rate
        log_q = np.log(np.full(n, max(rate, np.finfo(float).tiny)))
        return ScoredText(np.zeros(n), log_q, np.full(n, rate), np.zeros(n, bool), answer.limit)

    def begin(self, tokens: Sequence[int]) -> None:
        """Start on one of the answers; `tokens` is its prompt."""
        number, answer = next(
            (number, each)
            for number, each in enumerate(self._answers)
            if each.prompt == list(tokens)
        )
        self._tokens, self._place = answer.tokens, 0
        self._right = self.right(number)

    def right(self, number: int) -> list[bool]:
        """Whether each token of the answer of this number, from 0, is drafted."""
        rng = np.random.default_rng(number)
        drawn = rng.random(len(self._answers[number].tokens)) < self.guess.rate
        return [bool(each) for each in drawn]

    def propose(self, limit: Limit) -> Draft:
        """Propose the answer's next tokens, and others where the head would be wrong."""
        depth = min(limit.depth, self.traits.deepest or limit.depth)
        places = slice(self._place, self._place + depth)
        tokens = [
            token if right else token ^ 1
            for token, right in zip(self._tokens[places], self._right[places], strict=True)
        ]
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens."""
        self._place += len(outcome.tokens)
