"""Spelling: the bytes of a vocabulary's tokens, and the tokens of bytes."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

_SPACE = 0x20
# The first two bits of the bytes of a character behind its first one.
_CONTINUATION = 0x80
_WHITESPACE = frozenset(b" \t\n\v\f\r")


class Tokenizer(Protocol):
    """A model's vocabulary. Tokens are ids, -1 where the vocabulary has none."""

    n_vocab: int

    @property
    def bos(self) -> int: ...

    @property
    def eos(self) -> int: ...

    @property
    def adds_bos(self) -> bool: ...

    @property
    def end_tokens(self) -> Sequence[int]: ...

    def piece(self, token: int) -> bytes:
        """The bytes of a token; none for control tokens."""
        ...

    def piece_text(self, token: int) -> str:
        """A token as it is written in a prompt, control tokens included."""
        ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]: ...

    def tokenize_after(self, text: str, *, parse_special: bool) -> list[int]: ...


class Spelling:
    """What one vocabulary spells. tokenizer: of its model.

    pieces: the bytes of each token; empty for control tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.pieces = [tokenizer.piece(token) for token in range(tokenizer.n_vocab)]
        self._ids: dict[bytes, int] = {}
        for token, piece in enumerate(self.pieces):
            self._ids.setdefault(piece, token)
        # A SentencePiece vocabulary has an ASCII character twice: as a byte and as a token.
        for letter in map(chr, range(128)):
            for token in self._of_text(letter, first=False):
                self._ids[self.pieces[token]] = token
        self._ids.pop(b"", None)
        self._before_space = _bytes_before_a_space(self.pieces)
        self.adds_space = self._adds_space()

    def token_of(self, data: bytes) -> int | None:
        """The token of exactly these bytes; None if there is none."""
        return self._ids.get(data)

    def tokens(self, data: bytes, *, first: bool = False) -> list[int]:
        """The tokens of a text.

        first: whether the text begins here; otherwise it continues another one. What is no valid
        UTF-8, such as the beginning of a character, is spelled by tokens of its bytes.
        """
        found: list[int] = []
        while data:
            try:
                return found + self._of_text(data.decode(), first=first and not found)
            except UnicodeDecodeError as error:
                valid, invalid = data[: error.start], data[error.start : error.end]
                data = data[error.end :]
            if valid:
                found += self._of_text(valid.decode(), first=first and not found)
            found += self._of_bytes(invalid)
        return found

    def last_border(self, tokens: Sequence[int], data: bytes) -> tuple[int, int]:
        """The last border in a text of these tokens: how many tokens and bytes come before it.

        A border is a place in front of a space, behind a byte that no token has in front of a
        space. No token reaches across, whatever follows: both sides are tokenized as if they were
        alone. (0, 0) if there is none, or if the tokens have other bytes than the text, as those of
        a tokenizer that changes texts.
        """
        places = self._places(tokens, data)
        for count in range(len(places) - 1, 0, -1):
            at = places[count - 1]
            if at > 0 and data[at] == _SPACE and data[at - 1] not in self._before_space:
                return count, at
        return 0, 0

    def middle(self, tokens: Sequence[int], data: bytes) -> tuple[int, int]:
        """The first place in the second half of a text that is between tokens and characters.

        How many tokens and bytes come before it, as `last_border`; all if there is none.
        """
        for count, at in enumerate(self._places(tokens, data), start=1):
            if len(data) <= 2 * at < 2 * len(data) and data[at] & 0xC0 != _CONTINUATION:
                return count, at
        return len(tokens), len(data)

    def _places(self, tokens: Sequence[int], data: bytes) -> list[int]:
        """How many bytes of a text end with each of its tokens; none if they have other bytes."""
        ends: list[int] = np.cumsum([len(self.pieces[token]) for token in tokens]).tolist()
        # A tokenizer may have put a space in front.
        shift = ends[-1] - len(data) if ends else 0
        if not 0 <= shift <= 1 or b"".join(map(self.pieces.__getitem__, tokens))[shift:] != data:
            return []
        return [end - shift for end in ends]

    def _of_text(self, text: str, *, first: bool) -> list[int]:
        if first:
            return self.tokenizer.tokenize(text, add_special=False, parse_special=False)
        return self.tokenizer.tokenize_after(text, parse_special=False)

    def _of_bytes(self, data: bytes) -> list[int]:
        """The longest tokens of these bytes; bytes that no token spells are left out."""
        found: list[int] = []
        while data:
            size = len(data)
            while size and data[:size] not in self._ids:
                size -= 1
            if size:
                found.append(self._ids[data[:size]])
            data = data[size or 1 :]
        return found

    def _adds_space(self) -> bool:
        tokens = self._of_text("a", first=True)
        return b"".join(self.pieces[token] for token in tokens) == b" a"


def _bytes_before_a_space(pieces: Sequence[bytes]) -> frozenset[int]:
    """The bytes that some token has in front of a space, and all whitespace."""
    found = set(_WHITESPACE)
    for piece in pieces:
        at = piece.find(b" ", 1)
        while at > 0:
            found.add(piece[at - 1])
            at = piece.find(b" ", at + 1)
    return frozenset(found)
