"""Drawing ahead: what a drafter draws while the target verifies its draft."""

from collections.abc import Callable
from typing import cast

from localspec.errors import LOST
from localspec.speculation.drafter import AheadDrafter, Drafter, ready
from localspec.speculation.passes import Passes


class DrawingAhead:
    """The tokens that a drafter draws during one pass of the target.

    drafter: of the draft; None: of a plain step. tokens: the most that it draws. lose: called with
    a drafter whose machine or device is gone, and the error. passes: for `Pass.meanwhile`; None if
    it draws nothing.
    """

    def __init__(
        self, drafter: Drafter | None, tokens: int, lose: Callable[[Drafter, Exception], None]
    ) -> None:
        self.passes: Passes[None] | None = None
        if drafter and tokens > 0:
            self._drafter, self._lose = drafter, lose
            self._before = ready(drafter)
            self.passes = self._drawing(tokens)

    def end(self) -> int:
        """Draw no more; return how many tokens were drawn."""
        if self.passes is None:
            return 0
        self.passes.close()
        return ready(self._drafter) - self._before

    def _drawing(self, tokens: int) -> Passes[None]:
        try:
            yield from cast(AheadDrafter, self._drafter).passes_ahead(tokens)
        except LOST as error:
            self._lose(self._drafter, error)
