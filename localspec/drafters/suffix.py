"""Suffix drafter: copy what followed the longest suffix of the text that occurred before."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from localspec.drafters.suffix_automaton import Match, SuffixAutomaton
from localspec.errors import InvalidValueError
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.utils.tokens import common_prefix

# Matches are counted in bins: these lengths and what lies between them, the last bin open.
BINS = (1, 2, 3, 4, 6, 9, 13, 21, 41)
# The share of right copies by bin that code, prose and JSON have in common, roughly; and how many
# observations it weighs.
PRIOR = (0.20, 0.35, 0.45, 0.55, 0.65, 0.80, 0.88, 0.93, 0.96)
PRIOR_WEIGHT = 4.0
# Older observations of a bin count this much less with every new one: a memory of about 100.
FORGETTING = 0.99
# Where a text is cut and continued otherwise, this many tokens before the cut are taken in again,
# so that matches there are long.
CONTEXT = 64


class MatchTable:
    """How often the next copied token is right, by the length of the match it is copied after.

    state: (right, tried) per bin, as `state` gave it; None starts from what texts have in common.

    Raises InvalidValueError for a state that no table can have.
    """

    def __init__(self, state: Sequence[tuple[float, float]] | None = None) -> None:
        counts = [(0.0, 0.0)] * len(BINS) if state is None else list(state)
        if len(counts) != len(BINS) or not all(0 <= right <= tried for right, tried in counts):
            raise InvalidValueError(f"state is {state}; it must be {len(BINS)} (right, tried)")
        self._counts = counts
        # Entry i: the chance after a match of i tokens; the last one holds for all longer ones.
        self._chances = [0.0] * (BINS[-1] + 1)
        for bin_ in range(len(BINS)):
            self._refresh(bin_)

    @property
    def state(self) -> tuple[tuple[float, float], ...]:
        """(right, tried) per bin, forgotten ones faded: what to keep for another time."""
        return tuple(self._counts)

    def learn(self, length: int, right: bool) -> None:
        """After a match of `length` tokens the next one was copied right, or not."""
        bin_ = bisect_right(BINS, length) - 1
        hits, tried = self._counts[bin_]
        self._counts[bin_] = (FORGETTING * hits + right, FORGETTING * tried + 1)
        self._refresh(bin_)

    def chances(self, length: int, count: int) -> list[float]:
        """(count,) for each token copied after a match, the chance that it is right.

        Given that those before it are: then the match has grown by as many tokens.
        """
        first = min(length, BINS[-1])
        chances = self._chances[first : first + count]
        return chances + self._chances[-1:] * (count - len(chances))

    def _refresh(self, bin_: int) -> None:
        right, tried = self._counts[bin_]
        chance = (right + PRIOR_WEIGHT * PRIOR[bin_]) / (tried + PRIOR_WEIGHT)
        first, after = _LENGTHS[bin_]
        self._chances[first:after] = [chance] * (after - first)


_LENGTHS = tuple(pairwise((*BINS, BINS[-1] + 1)))


class Suffix:
    """Copies on from where the text's longest repeated suffix occurred before.

    shortest: the shortest match worth a proposal, in tokens.
    past: texts of earlier conversations to copy from too, the oldest first.
    table: what was learnt before of how far copies can be trusted; it is updated in place.
    spare: the most tokens kept of texts that were cut off or replaced.

    An automaton cannot be cut back cheaply, and what was cut off is worth keeping: an answer that
    is generated anew often repeats the old one. So it stays, as a text of its own, and the new
    text is taken in from shortly before the cut. When more than `spare` tokens have gathered like
    this, the automaton is built anew from the past and the current text.

    Time per token taken in: about 2 us. Memory per token of past, text and spare: about 140 bytes.
    """

    name = "suffix"

    def __init__(
        self,
        *,
        shortest: int = 1,
        past: Iterable[Sequence[int]] = (),
        table: MatchTable | None = None,
        spare: int = 65_536,
    ) -> None:
        if shortest < 1:
            raise InvalidValueError(f"shortest is {shortest}; it must be 1 or more")
        if spare < 0:
            raise InvalidValueError(f"spare is {spare}; it must be 0 or more")
        self.traits = Traits(cheap=True, chances=self.chances)
        self.table = MatchTable() if table is None else table
        self._shortest = shortest
        self._spare = spare
        self._past = [array("i", text) for text in past]
        self._text: list[int] = []
        # False while the automaton is being changed: an interrupt then leaves it unusable.
        self._whole = True
        self._automaton = self._with_past()
        self._from_past = len(self._automaton.fed)

    def begin(self, tokens: Sequence[int]) -> None:
        """The text is now exactly this; of what it replaces, keep what there is room for."""
        shared = common_prefix(self._text, tokens)
        whole, self._whole = self._whole, False
        if not whole:
            start = self._anew()
        elif shared < len(self._text):
            start = self._cut(shared)
        else:
            start = shared
        self._automaton.extend(tokens[start:])
        self._text[shared:] = tokens[shared:]
        self._whole = True

    def propose(self, limit: Limit) -> Draft:
        """Copy up to `limit.depth` tokens."""
        match = self._match()
        return Draft(self._automaton.copy(match, limit.depth)) if match else NOTHING

    def chances(self, depth: int) -> Sequence[float]:
        """The chance that each token of a proposal is right, given that those before it are.

        As many as `propose` would propose with this depth; their running products are the chances
        that so many tokens are accepted.
        """
        match = self._match()
        if match is None:
            return ()
        return self.table.chances(match.length, self._automaton.room(match, depth))

    def observe(self, outcome: Outcome) -> None:
        """Take in what was committed, and learn whether it was what would have been copied."""
        automaton, self._whole = self._automaton, False
        for token in outcome.tokens:
            match = automaton.match()
            if match:
                self.table.learn(match.length, automaton.fed[match.end + 1] == token)
            automaton.push(token)
        self._text.extend(outcome.tokens)
        self._whole = True

    def _match(self) -> Match | None:
        match = self._automaton.match()
        return match if match and match.length >= self._shortest else None

    def _cut(self, shared: int) -> int:
        """Part with the text after `shared`; from where on the new one is to be taken in."""
        start = max(0, shared - CONTEXT)
        held = len(self._automaton.fed) - self._from_past
        if held + 1 - start > self._spare:
            return self._anew()
        self._automaton.close()
        return start

    def _anew(self) -> int:
        """Part with everything but the past; from where on the text is to be taken in: 0."""
        self._automaton = self._with_past()
        return 0

    def _with_past(self) -> SuffixAutomaton:
        automaton = SuffixAutomaton()
        for text in self._past:
            automaton.extend(text)
            automaton.close()
        return automaton
