"""Deciding: what it takes to ask whether to draft, what it gains, and so when to do without."""

# A text rests where deciding has lately cost more than its drafts have gained, until it takes this
# share of the time of plain decoding, or for so many steps.
_SHARE, _LONGEST_REST = 0.005, 32
# In plain steps: what deciding seems to gain before anything was decided, and what a decision may
# seem to lose at most. The weight of the newest decision in that, and in what deciding takes.
_FIRST_GAIN, _MOST_LOST, _NEWEST_GAIN, _NEWEST = 0.3, 1.0, 1 / 16, 1 / 32


class Deciding:
    """The account of a text's decisions, in plain steps.

    takes: how long it takes to decide that nothing is drafted. Where several texts decide in the
    same round, all of them wait for each.
    """

    def __init__(self) -> None:
        self.takes, self._gain = 0.0, _FIRST_GAIN

    def learn(self, takes: float, gain: float, *, drafted: bool) -> None:
        """Learn from a decision what it took, and what it gained.

        gain: the time that its draft has saved, less `takes`. drafted: whether there was one.
        """
        self._gain += _NEWEST_GAIN * (max(-_MOST_LOST, gain) - self._gain)
        if not drafted:
            self.takes += _NEWEST * (min(1.0, takes) - self.takes)

    @property
    def rests(self) -> int:
        """How many steps in a row the text should take without deciding."""
        return min(_LONGEST_REST, max(0, int(min(self.takes, -self._gain) / _SHARE)))
