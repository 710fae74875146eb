"""Respelled text: a text that comes in a target's tokens, in the tokens of its drafter.

Only the end of the text is tokenized again when tokens come: what follows the last border, behind
which nothing can change what is before it (see `Spelling.last_border`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.drafters.translation import Translation
from localspec.utils.tokens import common_prefix

# So many tokens of a long text are taken at once, and the state behind them is kept.
_PART = 64
# A stretch of more bytes without a border, as in Chinese, is cut near its middle: it would be
# tokenized again with each token that comes. The tokens at the cut may be other ones than those of
# the whole text, which is rare: what a tokenizer merges depends on what is near.
_LONGEST = 512


@dataclass(frozen=True, slots=True)
class _State:
    """The state after `count` of the target's tokens. stable, end, at_start: see RespelledText."""

    count: int
    stable: int
    end: bytes
    at_start: bool


class RespelledText:
    """The drafter's tokens of one text of its target.

    tokens: those of the whole text. stable: how many of them stay as they are whatever follows.
    end: the bytes of the others.

    A prompt may have another wording for the drafter, in its own chat template (`reword`).
    """

    def __init__(self, translation: Translation) -> None:
        self.translation = translation
        self.tokens: list[int] = []
        self.stable = 0
        self.end = b""
        # Whether no text comes before `end`.
        self._at_start = True
        self._text: list[int] = []
        # The wording of a prompt, and whether it has come since the text was set.
        self._prompt: list[int] = []
        self._wording: list[int] = []
        self._is_reworded = False
        self._states: list[_State] = []
        self._begin(worded=False)

    def reword(self, prompt: Sequence[int], wording: Sequence[int]) -> None:
        """Take other tokens for a prompt, from the next text on.

        prompt: the target's tokens that a text begins with. wording: the drafter's for them.
        """
        if (self._prompt, self._wording) != (list(prompt), list(wording)):
            self._prompt, self._wording = list(prompt), list(wording)
            self._is_reworded = True

    def set_text(self, tokens: Sequence[int]) -> None:
        """Change to another text; what both begin with is not tokenized again."""
        size = len(self._prompt)
        worded = size > 0 and list(tokens[:size]) == self._prompt
        if self._is_reworded or worded != (self._states[0].count > 0):
            self._begin(worded=worded)
            self._is_reworded = False
        self._cut(common_prefix(self._text, tokens))
        self.extend(tokens[len(self._text) :])

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens of the target."""
        for start in range(0, len(tokens), _PART):
            for token in tokens[start : start + _PART]:
                self._append(token)
            self._tokenize()
            if len(self._text) >= self._states[-1].count + _PART:
                self._keep_state()

    def _begin(self, *, worded: bool) -> None:
        """Forget the text; begin with the wording of the prompt, or with nothing."""
        self._text = list(self._prompt) if worded else []
        self.tokens = list(self._wording if worded else self.translation.begins)
        self.stable, self.end, self._at_start = len(self.tokens), b"", not worded
        self._states = []
        self._keep_state()

    def _cut(self, length: int) -> None:
        """Cut the text to the last state within `length` tokens, if it is longer than that."""
        if length >= len(self._text):
            return
        while self._states[-1].count > length:
            self._states.pop()
        state = self._states[-1]
        del self._text[state.count :]
        self.stable, self.end, self._at_start = state.stable, state.end, state.at_start
        self._tokenize()

    def _keep_state(self) -> None:
        self._states.append(_State(len(self._text), self.stable, self.end, self._at_start))

    def _append(self, token: int) -> None:
        target = self.translation.target
        piece, bos = target.pieces[token], target.tokenizer.bos
        is_first = self._text in ([], [bos])
        self._text.append(token)
        if piece:
            # A SentencePiece vocabulary begins a text with a space that is none of it.
            self.end += piece.removeprefix(b" ") if is_first and target.adds_space else piece
        elif self._text != [bos]:
            self._tokenize()
            self.tokens += self.translation.control(token)
            self.stable, self.end, self._at_start = len(self.tokens), b"", False

    def _tokenize(self) -> None:
        """Tokenize the end of the text anew."""
        own = self.translation.own
        found = own.tokens(self.end, first=self._at_start)
        del self.tokens[self.stable :]
        self.tokens += found
        count, size = own.last_border(found, self.end)
        if not count and len(self.end) > _LONGEST:
            count, size = own.middle(found, self.end)
        if count:
            self.stable += count
            self.end = self.end[size:]
            self._at_start = False
