"""Joint drafting: what drafts of several texts cost that share the decodes of their drafter.

The texts of a round draft at the same time, so the tokens at the same place of their drafts come
from one decode of the drafter's model. One for n texts takes r(n) times as long as one for a single
text, often hardly longer, and each text pays its part, r(n) / n (`DrafterCost.part`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from localspec.control.drafter_cost import DrafterCost


@dataclass(frozen=True, slots=True)
class Drafting:
    """What drafting takes for one text.

    alone: (1 + most tokens,) seconds by the tokens of the draft, if no other text drafts. computer:
    see Traits. cost: of the drafter, which knows what decodes of several texts take. unread:
    seconds in which the drafter would first read the prompt. name: of the drafter. replays: seconds
    by the tokens of the draft in which the target will evaluate accepted ones again, which no other
    text shares; empty where it need not.
    """

    alone: Sequence[float] = (0.0,)
    computer: object = None
    cost: DrafterCost | None = None
    unread: float = 0.0
    name: str = ""
    replays: Sequence[float] = ()

    def seconds(self, tokens: int, part: float = 1.0) -> float:
        """What a draft of so many tokens takes, with the replays. part: see `part`."""
        return part * self.alone[tokens] + self.replay(tokens)

    def replay(self, tokens: int) -> float:
        """The seconds of replays after a draft of so many tokens, or of the longest one."""
        return self.replays[min(tokens, len(self.replays) - 1)] if self.replays else 0.0

    def part(self, texts: int) -> float:
        """What each of so many texts with this computer pays, as a part of `alone`."""
        return self.cost.part(texts) if self.cost and self.computer is not None else 1.0

    def after_reading(self) -> "Drafting":
        """That once the prompt is read."""
        return replace(self, unread=0.0) if self.unread else self


NO_DRAFTING = Drafting()


class Parts:
    """What each text pays of shared decodes, the same for all texts of one round.

    Each text has learnt by itself; what the first one that is asked says holds for all.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], float] = {}

    def of(self, drafting: Drafting, texts: int) -> float:
        """What each of so many texts pays of a decode that also draws for this one."""
        key = id(drafting.computer), texts
        part = self._known.get(key)
        if part is None:
            part = self._known[key] = drafting.part(texts)
        return part


class JointDrafting:
    """The drafts of one round, token by token. seconds: what all of them take."""

    def __init__(self, parts: Parts) -> None:
        self.seconds = 0.0
        self._parts = parts
        # By computer and place: how many texts draft a token there, what it would take alone, and
        # what it takes.
        self._places: dict[tuple[int, int], tuple[int, float, float]] = {}

    def add(self, drafting: Drafting, place: int) -> float:
        """Add the token at this place of a text's draft, from 1; return what the text pays.

        It pays for drawing it; a replay is paid with the pass.
        """
        seconds = drafting.alone[place] - drafting.alone[place - 1]
        self.seconds += drafting.replay(place) - drafting.replay(place - 1)
        if drafting.computer is None:
            self.seconds += seconds
            return seconds
        key = id(drafting.computer), place
        texts, alone, before = self._places.get(key, (0, 0.0, 0.0))
        part = self._parts.of(drafting, texts + 1)
        now = part * (alone + seconds)
        self._places[key] = texts + 1, alone + seconds, now
        self.seconds += now - before
        return part * seconds
