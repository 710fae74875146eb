"""Deciding: what it takes to ask whether to draft, what it gains, and so when to do without."""

# A text rests where deciding has lately cost more than its drafts have gained, until it takes this
# share of the time of plain decoding, or for so many steps; more where all wait for it.
_SHARE, _LONGEST_REST, _LONGEST_BESIDE = 0.005, 32, 128
# In plain steps: what deciding seems to gain before anything was decided, and what a decision may
# seem to lose at most. The weight of the newest decision in that, and in what deciding takes.
_FIRST_GAIN, _MOST_LOST, _NEWEST_GAIN, _NEWEST = 0.3, 1.0, 1 / 16, 1 / 32
# Decisions for which all wait are dear: one that takes n times this counts for n, up to a half.
_CHEAP, _LARGEST = 0.1, 0.5


class Deciding:
    """The account of a text's decisions, in plain steps.

    beside: whether it decides beside other texts: all of them wait for each. takes: how long it
    takes to decide that nothing is drafted.
    """

    def __init__(self, *, beside: bool = False) -> None:
        self.takes, self._gain = 0.0, _FIRST_GAIN
        self._beside, self._longest = beside, _LONGEST_BESIDE if beside else _LONGEST_REST

    def learn(self, takes: float, gain: float, *, drafted: bool) -> None:
        """Learn from a decision what it took, and what it gained.

        gain: the time that its draft has saved, less `takes`. drafted: whether there was one.
        """
        dear = max(1.0, takes / _CHEAP) if self._beside else 1.0
        self._gain += min(_LARGEST, dear * _NEWEST_GAIN) * (max(-_MOST_LOST, gain) - self._gain)
        if not drafted:
            self.takes += min(_LARGEST, dear * _NEWEST) * (min(1.0, takes) - self.takes)

    @property
    def rests(self) -> int:
        """How many steps in a row the text should take without deciding."""
        return min(self._longest, max(0, int(min(self.takes, -self._gain) / _SHARE)))
