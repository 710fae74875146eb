"""Idle rounds: rounds of several texts in which none of them decides, as nobody drafted lately.

To decide takes each text a part of a millisecond, one after the other, and a pass of a GPU only ten
or twenty. Where nothing is to gain for a while, most rounds are plain without asking.
"""

# So many rounds in a row in which nobody drafts, though all are asked, let one more rest. To decide
# takes longer the more texts there are: at most as many rest as a text has others beside it.
_ROUNDS_PER_REST = 2


class IdleRounds:
    """Counts the rounds of all texts of a scheduler.

    number: of the present round. A text that decides a second time begins the next one.
    """

    def __init__(self) -> None:
        self.number = 1
        # The rounds in which nobody drafted though all were asked, and how many are still to rest.
        self._idle = self._resting = 0

    def rests(self, last: int, others: int) -> bool:
        """Whether a text need not decide.

        last: the round in which it was asked last. others: how many texts are beside it.
        """
        if last == self.number:
            self.number += 1
            if self._resting:
                self._resting -= 1
            else:
                self._idle += 1
                self._resting = min(self._idle // _ROUNDS_PER_REST, others)
        return self._resting > 0

    def end(self) -> None:
        """Ask all again: somebody drafts, or there are other texts."""
        self._idle = self._resting = 0
