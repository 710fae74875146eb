"""Translation: between the tokens of a target and those of a drafter with another vocabulary."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.spelling import Ids, Spelling, Tokenizer

# Stands for no token, and for one that was not looked up yet.
NONE, _UNKNOWN = -1, -2
# So many spellings of parts of tokens are kept.
_MOST_PARTS = 50_000


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
        self._first_of: dict[bytes, int] = {}

    def end(self, token: int) -> int | None:
        """The target's token for one of the drafter's that ends a text; None for all others."""
        return self._ends.get(token)

    def firsts(self, tokens: Ids, skipped: bytes = b"") -> NDArray[np.int64]:
        """The target's token that each of these tokens of the drafter begins with, or NONE.

        skipped: bytes that all of them begin with, and which the target has written already.
        """
        if skipped:
            pieces = (self.own.pieces[token][len(skipped) :] for token in tokens)
            return np.array([self._first(piece) for piece in pieces], np.int64)
        found = self._firsts[tokens]
        for place in np.flatnonzero(found == _UNKNOWN):
            token = tokens[place]
            found[place] = self._firsts[token] = self._first(self.own.pieces[token])
        return found

    def control(self, token: int) -> Sequence[int]:
        """The drafter's tokens for a control token of the target."""
        if token not in self._controls:
            self._controls[token] = self._control(token)
        return self._controls[token]

    def _first(self, data: bytes) -> int:
        if data not in self._first_of:
            if len(self._first_of) >= _MOST_PARTS:
                self._first_of.clear()
            same = self.target.token_of(data)
            found = [same] if same is not None else self.target.tokens(data)
            self._first_of[data] = found[0] if found else NONE
        return self._first_of[data]

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
