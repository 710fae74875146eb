"""Joint drafting: what drafts of several texts cost that share the decodes of their drafter.

The texts of a round draft at the same time, so the tokens at the same place of their drafts come
from one decode of the drafter's model. One for n texts takes r(n) times as long as one for a single
text, often hardly longer, and each text pays its part, r(n) / n.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from localspec.control.pass_costs import seconds_by_rows
from localspec.control.recent_median import ENOUGH, RecentMedian


class Sharing:
    """What each text pays of a decode of a drafter, as a part of one for a single text.

    passes: seconds by rows of similar decodes, those of the target, from which parts are guessed
    until they are learnt. Without any, texts are taken to share nothing.
    """

    def __init__(self, passes: Mapping[int, float] | None = None) -> None:
        self._guess = [1.0, 1.0]
        if passes:
            _, one, *more = seconds_by_rows(passes)
            self._guess += [
                min(1.0, max(1.0, seconds / one) / texts)
                for texts, seconds in enumerate(more, start=2)
            ]
        self._seen: dict[int, RecentMedian] = {}
        self._parts: dict[int, float] = {}

    def part(self, texts: int) -> float:
        """What each of so many texts pays."""
        if (part := self._parts.get(texts)) is None:
            part = self._parts[texts] = self._part(texts)
        return part

    def learn(self, texts: int, part: float) -> None:
        """Learn from a token whose decode so many texts shared, two at least."""
        self._seen.setdefault(texts, RecentMedian()).add(part)
        self._parts.clear()

    def _part(self, texts: int) -> float:
        guess = self._guessed(texts)
        known = [each for each, seen in self._seen.items() if len(seen) >= ENOUGH]
        if texts < 2 or not known:
            return guess
        # What was seen of the most similar number of texts corrects the guess.
        nearest = min(known, key=lambda each: abs(each - texts))
        return min(1.0, guess * self._seen[nearest].median / self._guessed(nearest))

    def _guessed(self, texts: int) -> float:
        return self._guess[min(texts, len(self._guess) - 1)]


@dataclass(frozen=True, slots=True)
class Drafting:
    """What drafting takes for one text.

    alone: (1 + most tokens,) seconds by the tokens of the draft, if no other text drafts. drafter:
    its name. sharing: None where others never share its decodes.
    """

    alone: Sequence[float] = (0.0,)
    drafter: str = ""
    sharing: Sharing | None = None

    def part(self, texts: int) -> float:
        """What each of so many texts pays, as a part of `alone`."""
        return self.sharing.part(texts) if self.sharing else 1.0

    def first(self, tokens: int) -> "Drafting":
        """That of drafts of so many tokens at most."""
        return Drafting(self.alone[: 1 + tokens] or (0.0,), self.drafter, self.sharing)


NO_DRAFTING = Drafting()


class JointDrafting:
    """The drafts of one round, token by token. seconds: what all of them take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        # By drafter and place: how many texts draft a token there, and what it would take alone.
        self._places: dict[tuple[str, int], tuple[int, float]] = {}

    def add(self, drafting: Drafting, place: int) -> None:
        """Add the token at this place of a text's draft, from 1."""
        seconds = drafting.alone[place] - drafting.alone[place - 1]
        texts, before = self._places.get((drafting.drafter, place), (0, 0.0))
        self._places[drafting.drafter, place] = texts + 1, before + seconds
        paid = before * drafting.part(texts) if texts else 0.0
        self.seconds += (before + seconds) * drafting.part(texts + 1) - paid

    def texts(self, drafter: str) -> int:
        """How many texts a drafter drafts for."""
        texts, _ = self._places.get((drafter, 1), (0, 0.0))
        return texts
