"""Translation: between the tokens of a target and those of a drafter with another vocabulary."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.spelling import Spelling, Tokenizer
from localspec.sampling.block_maxima import Ids

# Stands for no token, and for one that was not looked up yet.
NONE, _UNKNOWN = -1, -2
# A text of several kinds, to compare the lengths of two spellings.
_SAMPLE = b"""The quick brown fox jumps over the lazy dog, and 1,234 others don't; see page 56.

def mean(values: list[float]) -> float:
    \"\"\"Return the mean of the values; 0.0 if there are none.\"\"\"
    return sum(values) / len(values) if values else 0.0

Use `tar`:
```sh
tar --extract --file "archive.tar.gz" -C /tmp/folder && ls -la | grep '.txt'
```
{"name": "value", "numbers": [1, 2, 3], "nested": {"is_open": true}}
"""


class Translation:
    """What is known of two vocabularies, for all texts of the target.

    target, own: the spellings of the target and of the drafter.

    Tokens without text go by what they are: the token that begins a text, those that end one, and
    control tokens that are written alike. Other control tokens are read as they are written.
    """

    def __init__(self, target: Tokenizer, drafter: Tokenizer) -> None:
        self.target, self.own = Spelling(target), Spelling(drafter)
        self.begins = [drafter.bos] if drafter.adds_bos and drafter.bos >= 0 else []
        self._ends = dict(_ends(target, drafter))
        self._controls: dict[int, list[int]] = {}
        # The target's token that each of the drafter's tokens begins with, as far as it is known.
        self._firsts = np.full(drafter.n_vocab, _UNKNOWN, np.int64)
        for token, piece in enumerate(self.own.pieces):
            if not piece:
                self._firsts[token] = self._ends.get(token, NONE)
            elif (same := self.target.token_of(piece)) is not None:
                self._firsts[token] = same

    @property
    def lengthening(self) -> float:
        """How many tokens of the drafter spell what one of the target's does, on a usual text."""
        own, target = (len(each.tokens(_SAMPLE)) for each in (self.own, self.target))
        # A vocabulary without these characters spells nothing of it.
        return max(1, own) / max(1, target)

    def end(self, token: int) -> int | None:
        """The target's token for one of the drafter's that ends a text; None for all others."""
        return self._ends.get(token)

    def firsts(self, tokens: Ids) -> NDArray[np.int64]:
        """The target's token that each of these tokens of the drafter begins with, or NONE."""
        found = self._firsts[tokens]
        for place in np.flatnonzero(found == _UNKNOWN):
            token = tokens[place]
            spelled = self.target.tokens(self.own.pieces[token])
            found[place] = self._firsts[token] = spelled[0] if spelled else NONE
        return found

    def control(self, token: int) -> Sequence[int]:
        """The drafter's tokens for a control token of the target."""
        if token not in self._controls:
            self._controls[token] = self._control(token)
        return self._controls[token]

    def _control(self, token: int) -> list[int]:
        target, own = self.target.tokenizer, self.own.tokenizer
        if token == target.bos:
            return [own.bos] if own.bos >= 0 else []
        text = target.piece_text(token)
        same = own.tokenize_after(text, parse_special=True)
        if len(same) == 1 and own.piece_text(same[0]) == text:
            return same
        if token in target.end_tokens and own.eos >= 0:
            return [own.eos]
        return self.own.tokens(text.encode())


def _ends(target: Tokenizer, drafter: Tokenizer) -> Iterator[tuple[int, int]]:
    """Yield each token of the drafter that ends a text, with that of the target."""
    by_text = {target.piece_text(token): token for token in target.end_tokens}
    usual = target.eos if target.eos in target.end_tokens else min(target.end_tokens, default=NONE)
    for token in drafter.end_tokens:
        same = by_text.get(drafter.piece_text(token), usual)
        if same != NONE:
            yield token, usual if token == drafter.eos else same
