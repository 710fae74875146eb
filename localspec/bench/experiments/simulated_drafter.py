"""Simulated drafter: a drafter whose tokens are right at random, and what its decodes cost.

Used by `simulated_users`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np

from localspec.control.row_budget import RowShare
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32)
# Seconds of a decode by its rows, in plain passes of one text: 0.9B on two cores, measured up to 16
# rows and continued as from 8 to 16, and the usual form on a GPU.
COSTS: dict[str, Mapping[int, float]] = {
    name: dict(zip(_ROWS, seconds, strict=True))
    for name, seconds in {
        "Q4_0 A": (1, 1.8, 2.5, 1.7, 2.5, 3.2, 3.9, 3.0, 4.3, 4.2, 6.6),
        "Q4_0 B": (1, 1.8, 2.8, 2.4, 3.1, 3.6, 4.6, 4.1, 5.7, 5.7, 8.9),
        "F16 A": (1, 1.3, 1.4, 1.5, 1.6, 1.7, 1.9, 2.0, 2.4, 2.7, 4.1),
        "F16 B": (1, 1.35, 1.4, 1.6, 1.8, 2.0, 2.25, 2.35, 3.3, 3.8, 6.7),
        "GPU": (1, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14, 1.65, 1.7, 2.4),
    }.items()
}
# Seconds of the first and of each further drafted token, where one text drafts alone.
FIRST, FURTHER = 0.15, 0.1
# Seconds of each token of a prompt that a drafter reads.
READING = 0.03
# All drafters that run a model share its decodes.
_COMPUTER = "one for all"


@dataclass(frozen=True, slots=True)
class User:
    """What a user's drafter is like.

    rate: its acceptance rate. copies: it copies from the text, which takes no time, and only now
    and then finds something. prompt: the tokens that it must read before its first draft.
    """

    rate: float
    copies: bool = False
    prompt: int = 0


# The next user is the next of the list.
MIXES: dict[str, Sequence[User]] = {
    "0.9": [User(0.9)],
    "0.7": [User(0.7)],
    "0.5": [User(0.5)],
    "mixed": [User(0.9), User(0.3), User(0.7), User(0.5)],
    "copies": [User(0.9, copies=True), User(0.5, copies=True)],
    "useless": [User(0.05)],
}


class SimulatedDrafter:
    """Proposes 1 for a right token and 0 for a wrong one; the target's token is always 1.

    decode: returns the seconds of a decode by its rows. share: that of the text, which knows how
    many texts drafted in the last round. seconds: those spent on drafting so far. reading: the
    seconds of `seconds` in which it read a prompt.
    """

    name = "drafter"

    def __init__(
        self, user: User, random: Random, decode: Callable[[int], float], share: RowShare
    ) -> None:
        computer = None if user.copies else lambda: _COMPUTER
        self.traits = Traits(cheap=user.copies, computer=computer, backlog=lambda: self._unread)
        self._unread = user.prompt
        self.reading = 0.0
        self.seconds = 0.0
        self._user, self._random, self._decode, self._share = user, random, decode, share
        # By place from here on: whether the token is right, and the drafter's confidence in it.
        self._coming: list[tuple[bool, float]] = []
        self._found = 0

    def begin(self, tokens: Sequence[int]) -> None:
        """Nothing to do."""

    def draw_text(self, random: Random, tokens: int) -> None:
        """Draw a whole text from other random numbers, so that no decision changes the draws."""
        self._random = random
        self._coming = [self.draw() for _ in range(tokens)]

    def propose(self, limit: Limit) -> Draft:
        """Propose tokens; the same ones until the next step."""
        depth = min(limit.depth, self._found) if self._user.copies else limit.depth
        self.reading += READING * self._unread
        self.seconds += READING * self._unread
        self._unread = 0
        tokens: list[int] = []
        while len(tokens) < depth:
            if len(self._coming) <= len(tokens):
                self._coming.append(self.draw())
            right, margin = self._coming[len(tokens)]
            if not self._user.copies:
                self.seconds += self._share_of(self._share.texts) * (FURTHER if tokens else FIRST)
            tokens.append(int(right))
            if limit.go_on and not self._user.copies and not limit.go_on(margin):
                break
        return Draft(tokens)

    def seconds_of(self, texts: Sequence[int]) -> float:
        """Seconds of a draft. texts: for each of its tokens, how many texts share its decode."""
        if self._user.copies:
            return 0.0
        return sum(
            self._share_of(each) * (FURTHER if number else FIRST)
            for number, each in enumerate(texts)
        )

    def observe(self, outcome: Outcome) -> None:
        """Go on behind the committed tokens."""
        count = len(outcome.tokens)
        self._unread += count if self._unread else 0
        del self._coming[:count]
        self._found = max(0, self._found - count)
        if self._user.copies and not self._found and self._random.random() < 0.1 * count:
            self._found = self._random.randrange(2, 24)

    def _share_of(self, texts: int) -> float:
        """What a text pays of a decode of the drafter's model."""
        return part_of_decode(self._decode, texts)

    def draw(self) -> tuple[bool, float]:
        """Whether the next token is right, and the drafter's confidence."""
        [token] = drawn(self._random, self._user.rate, 1)
        return token


def part_of_decode(decode: Callable[[int], float], texts: int) -> float:
    """What each of so many texts pays of a decode, in parts of one for one text."""
    return decode(texts) / decode(1) / texts


def seconds_of_rows(costs: Mapping[int, float], rows: int) -> float:
    """Seconds of a decode, linear between the known numbers of rows and behind the last."""
    *_, (before, less), (last, most) = costs.items()
    if rows > last:
        return most + (most - less) * (rows - last) / (last - before)
    return float(np.interp(rows, list(costs), list(costs.values())))


def drawn(random: Random, rate: float, tokens: int) -> list[tuple[bool, float]]:
    """Of each token, whether it is right, and the drafter's confidence: it knows the easy ones."""
    found = list[tuple[bool, float]]()
    for _ in range(tokens):
        easy = random.random() < max(0.0, (rate - 0.35) / 0.6)
        chance = 0.95 if easy else min(rate, 0.35)
        found.append((random.random() < chance, 3.5 if easy else 0.4))
    return found
