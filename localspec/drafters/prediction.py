"""Prediction: a text that an answer is expected to follow, with edits.

An editor that has a file rewritten knows most of it beforehand. The answer is taken to follow the
prediction from its first token on, as a passage (see `passage`) is followed through differences.
"""

from collections.abc import Sequence

from localspec.drafters.copies import Copy, copy_of_passage, disputed_copy
from localspec.drafters.copy_rates import BINS, predicted_rates
from localspec.drafters.passage import PASSAGE, Passage
from localspec.drafters.suffix_automaton import NOWHERE, Match, SuffixAutomaton


class Prediction:
    """Copies of what one text is expected to be.

    tokens: 1 or more. before: the end of the prompt. Where the prompt ends within the prediction,
    as that of an answer which is continued, the text goes on there.

    Its index and its chances are of this text alone. How good a prediction is says nothing of the
    next one, and nothing of other copies.
    """

    def __init__(self, tokens: Sequence[int], before: Sequence[int]) -> None:
        self._texts = SuffixAutomaton()
        self._texts.extend(tokens)
        self._texts.end_text()
        self._rates = predicted_rates()
        self._place = NOWHERE
        self._match: Match | None = None
        # The beginning is as sure as a long match.
        self._passage: Passage | None = Passage(self._texts.tokens, 0, BINS[-1])
        for token in before:
            self._place = self._texts.advance(self._place, token)
        self._match = self._texts.occurrence(self._place)
        if self._match and self._match.length >= PASSAGE:
            self._go_on(self._match)

    def observe(self, token: int) -> None:
        """Follow the text by one token."""
        if self._passage and not self._passage.observe(token):
            self._passage = None
        self._place = self._texts.advance(self._place, token)
        self._match = match = self._texts.occurrence(self._place)
        least = self._passage.length if self._passage else PASSAGE
        if match and match.length >= max(PASSAGE, least):
            self._go_on(match)

    def copies(self) -> list[Copy]:
        """What may come next: where the text follows it, and after the longest match in it."""
        rates, match, found = self._rates, self._match, list[Copy]()
        passage = self._passage and copy_of_passage(self._passage, self._texts, match, rates)
        if passage:
            found.append(passage)
        if match and not (passage and self._texts.tokens[match.end + 1] == passage.token):
            tables = rates.match, rates.match_disputed
            other = passage.token if passage else None
            found.append(disputed_copy(self._texts, match, tables, other))
        return [each._replace(predicted=True) for each in found]

    def _go_on(self, match: Match) -> None:
        """Follow the prediction behind this match."""
        start = match.end + 1
        if self._passage:
            self._passage.go_on(self._texts.tokens, start, match.length)
        else:
            self._passage = Passage(self._texts.tokens, start, match.length)
