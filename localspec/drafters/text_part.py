"""Text part: what a drafter reads of its text, which may be all but the middle of a long prompt.

Sadhukhan et al. 2024 (MagicDec) draft with a part of the keys and values of a long text, too.
"""

from collections.abc import Callable, Sequence
from math import inf

# How many tokens of a prompt it reads where it leaves out those before; with twice as many unread.
END_TOKENS = 64


class TextPart:
    """The part of its text that a drafter reads: all of it, or all but a gap in front of its end.

    gap: the places of the tokens that are left out. is_unread: whether none was read since the text
    began.

    Below, `length` is that of the whole text, `loose` the number of its last tokens that may still
    become others, `held` how many tokens of the part the drafter has read, and `room` how many it
    can hold. Where a part leaves no room for a draft, less is read, also amid an answer.
    """

    def __init__(self) -> None:
        self.gap = range(0)
        self.is_unread = True

    def begin(
        self, text: list[int], shared: Callable[[Sequence[int]], int], *, loose: int = 0
    ) -> None:
        """Start on a text; what was left out stays so if it holds more of the text that way.

        shared: returns how many tokens at the beginning of others the drafter holds.
        """
        # The last token is always evaluated, for its logits.
        whole, part = text[:-1], self.of(text)[:-1]
        stays = self.gap and self.gap.stop <= len(text) - loose - END_TOKENS
        if not stays or shared(part) <= max(self.gap.start, shared(whole)):
            self.gap = range(0)
        self.is_unread = True

    def of(self, text: list[int], start: int = 0) -> list[int]:
        """The tokens of the text that are read, without the first `start` of them."""
        if start >= self.gap.start:
            return text[start + len(self.gap) :]
        return text[start : self.gap.start] + text[self.gap.stop :]

    def size(self, length: int) -> int:
        """How many tokens are read."""
        return length - len(self.gap)

    def backlog(self, length: int, held: int) -> int:
        """How many tokens must be read until all of the text is."""
        return length - (self.gap.start if self.gap else held)

    def end(self, length: int, held: int, *, room: float = inf, loose: int = 0) -> int | None:
        """How many tokens must be read to draft from the end of the text; None: all of it is read.

        As `Traits.end`.
        """
        if self._may_leave_out(length, held, room, loose):
            return END_TOKENS + loose
        return self.size(length) - held if self.gap else None

    def choose(
        self,
        length: int,
        held: int,
        *,
        from_end: bool,
        room: float = inf,
        cut: Callable[[int], int] = lambda length: length,
        loose: int = 0,
    ) -> int:
        """Leave out what is in front of the end, or take it back; returns `held` of the new part.

        from_end: as in Limit. cut: rolls the cache back to at most so many tokens; returns how many
        are left.
        """
        if from_end and self._may_leave_out(length, held, room, loose):
            front, end = min(held, self.gap.start) if self.gap else held, END_TOKENS + loose
            if front + end + END_TOKENS > room:
                # Half of the room is for what comes.
                front = max(0, int(room) // 2 - end)
            # A cache that cannot be cut there keeps less.
            held = cut(front)
            self.gap = range(held, length - end)
        elif not from_end and self.gap and length < room:
            held, self.gap = min(held, self.gap.start), range(0)
        return held

    def _may_leave_out(self, length: int, held: int, room: float, loose: int) -> bool:
        if self.size(length) >= room:
            return END_TOKENS + loose < room
        return self.is_unread and self.size(length) - loose - held >= 2 * END_TOKENS
