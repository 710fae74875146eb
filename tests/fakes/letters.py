"""Tokenizers of toys: a few tokens over a few letters, the longest first."""

from collections.abc import Sequence


class Letters:
    """tokens: the bytes of each token; None for a control token, written <0>, <1>, ...

    bos, ends: tokens. A control token of another vocabulary is read as one that is written alike.
    """

    def __init__(
        self, *tokens: str | bytes | None, bos: int = -1, ends: Sequence[int] = ()
    ) -> None:
        self._pieces = [each.encode() if isinstance(each, str) else each for each in tokens]
        self.n_vocab = len(tokens)
        self.bos, self.end_tokens = bos, ends
        self.eos = min(ends, default=-1)
        self.adds_bos = bos >= 0

    def piece(self, token: int) -> bytes:
        return self._pieces[token] or b""

    def piece_text(self, token: int) -> str:
        piece = self._pieces[token]
        return f"<{token}>" if piece is None else piece.decode("utf-8", "replace")

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        begins = [self.bos] if add_special and self.adds_bos else []
        return begins + self.tokenize_after(text, parse_special=parse_special)

    def tokenize_after(self, text: str, *, parse_special: bool) -> list[int]:
        if parse_special:
            controls = {f"<{i}>": i for i, piece in enumerate(self._pieces) if piece is None}
            if text in controls:
                return [controls[text]]
        rest, found = text.encode(), list[int]()
        while rest:
            fitting = [
                (len(piece), token)
                for token, piece in enumerate(self._pieces)
                if piece and rest.startswith(piece)
            ]
            size, token = max(fitting, default=(1, -1))
            if token >= 0:
                found.append(token)
            rest = rest[size:]
        return found


class AddsSpace(Letters):
    """A tokenizer that begins a text with a space, as SentencePiece does."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return super().tokenize(f" {text}", add_special=add_special, parse_special=parse_special)
