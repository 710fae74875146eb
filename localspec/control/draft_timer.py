"""Draft timer: what the tokens of one draft take."""

from collections.abc import Callable

from localspec.control.candidate import Candidate
from localspec.control.row_budget import RowShare


class DraftTimer:
    """Measures the seconds of each token of one draft, for the drafter's cost.

    It begins when it is made. deepest: the most tokens of the draft. slowdown: see PassCosts,
    `reading_slowdown`. clock: returns the time in seconds. share: the text's, which knows how many
    texts share a decode.
    """

    def __init__(
        self,
        candidate: Candidate,
        deepest: int,
        slowdown: float,
        clock: Callable[[], float],
        share: RowShare,
    ) -> None:
        # Texts share no pass that draws a whole draft, nor what runs in no computer.
        self._share = None if candidate.parallel or not candidate.drafter.traits.computer else share
        self._cost = candidate.cost
        self._ready = candidate.ready
        self._backlog = candidate.backlog
        self._slowdown = slowdown
        # The rows of the pass that all tokens are drawn from; None: each takes a pass of its own.
        self._rows = deepest if candidate.parallel else None
        self._count = 0
        self._clock = clock
        self._last = clock()

    def tick(self) -> None:
        """Record that a token was drawn just now."""
        now = self._clock()
        texts = self._share.texts if self._share else 1
        if self._count < self._ready or not texts:
            pass
        elif self._count:
            self._cost.learn_further(now - self._last, texts)
        elif self._rows is not None:
            self._cost.learn_pass(now - self._last, self._rows, self._backlog, self._slowdown)
        else:
            self._cost.learn_first(now - self._last, self._backlog, self._slowdown, texts)
        self._count += 1
        self._last = now
