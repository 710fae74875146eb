"""Joint drafting: what drafts of several texts cost that share the decodes of their drafter.

The texts of a round draft at the same time, so the tokens at the same place of their drafts come
from one decode of the drafter's model. One for n texts takes r(n) times as long as one for a single
text, often hardly longer, and each text pays its part, r(n) / n (`DrafterCost.part`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.control.drafter_cost import DrafterCost


@dataclass(frozen=True, slots=True)
class Drafting:
    """What drafting takes for one text.

    alone: (1 + most tokens,) seconds by the tokens of the draft, if no other text drafts. computer:
    what computes the drafter's decodes (see Traits); texts of the same one share them, None shares
    none. cost: of the drafter, which knows what decodes of several texts take.
    """

    alone: Sequence[float] = (0.0,)
    computer: object = None
    cost: DrafterCost | None = None

    def part(self, texts: int) -> float:
        """What each of so many texts pays, as a part of `alone`."""
        return self.cost.part(texts) if self.cost else 1.0

    def first(self, tokens: int) -> "Drafting":
        """That of drafts of so many tokens at most."""
        return Drafting(self.alone[: 1 + tokens] or (0.0,), self.computer, self.cost)


NO_DRAFTING = Drafting()


class JointDrafting:
    """The drafts of one round, token by token. seconds: what all of them take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        # By computer and place: how many texts draft a token there, and what it would take alone.
        self._places: dict[tuple[object, int], tuple[int, float]] = {}

    def add(self, drafting: Drafting, place: int) -> None:
        """Add the token at this place of a text's draft, from 1."""
        seconds = drafting.alone[place] - drafting.alone[place - 1]
        if drafting.computer is None:
            self.seconds += seconds
            return
        texts, before = self._places.get((drafting.computer, place), (0, 0.0))
        self._places[drafting.computer, place] = texts + 1, before + seconds
        paid = before * drafting.part(texts) if texts else 0.0
        self.seconds += (before + seconds) * drafting.part(texts + 1) - paid

    def texts(self, computer: object) -> int:
        """How many texts share the first decode of a computer."""
        texts, _ = self._places.get((computer, 1), (1, 0.0))
        return texts
