"""ThinkingBudget: the most tokens of reasoning that a text may have."""

from sys import maxsize

from localspec.conversation.reasoning import Splitter
from localspec.engine.detokenizer import Detokenizer

# No tag has more tokens.
_LONGEST_TAG = 16


class ThinkingBudget:
    """Counts the reasoning tokens of one text, and says when their budget is used up.

    tokens: the budget; None: no limit. splitter, detokenizer: those of the text; without a
    splitter there is no reasoning. used: the reasoning tokens so far.
    """

    def __init__(
        self, tokens: int | None, splitter: Splitter | None, detokenizer: Detokenizer
    ) -> None:
        self.tokens = tokens
        self.used = 0
        self._splitter = splitter
        self._detokenizer = detokenizer

    def count(self) -> None:
        """Count the next token, whose text is not split yet."""
        if self._splitter:
            self.used += self._splitter.thinking

    def is_spent(self) -> bool:
        """Whether the reasoning goes on and has as many tokens as it may.

        It ends neither within a character nor within the closing tag, for which it waits a little.
        """
        if self.tokens is None or not self._splitter or not self._splitter.thinking:
            return False
        if self.used < self.tokens or self._detokenizer.within_character:
            return False
        waited = self.used - self.tokens
        return waited >= _LONGEST_TAG or not self._splitter.within_tag(self._detokenizer.held)

    def room(self) -> int:
        """How many tokens may be written before `is_spent` has to be asked again.

        A step that committed more would have to be taken back, which not every cache can do.
        """
        if self.tokens is None or not self._splitter:
            return maxsize
        if self._splitter.thinking:
            return max(1, self.tokens - self.used)
        # The next token may be the opening tag.
        return maxsize if self._splitter.begun else 1 + self.tokens
