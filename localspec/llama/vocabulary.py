"""Vocabulary: the tokens of a model, and texts as tokens."""

import ctypes
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import llama_cpp

from localspec.llama.fim_tokens import FimTokens

# Tokens that are found in a text before the rest of it is tokenized.
_SPECIAL = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
# So many pieces are kept: some work asks for those of all tokens once.
_MOST_KNOWN = 8192


class Vocabulary(ABC):
    """The vocabulary of a model. n_vocab: the number of tokens.

    What the library says of single tokens is asked once: with each of its calls another thread may
    take Python's lock, for which this one then waits.
    """

    n_vocab: int

    def __init__(self) -> None:
        self._pieces: dict[int, bytes] = {}
        self._ends: dict[int, bool] = {}

    @property
    @abstractmethod
    def _vocab(self) -> Any:
        """The library's pointer."""

    def tokenize(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True
    ) -> list[int]:
        """Return the tokens of a text, or of bytes that may cut a character.

        add_special: add BOS and EOS where the model wants them. parse_special: take what is written
        like a control token for that token.
        """
        data = text.encode() if isinstance(text, str) else text
        size = len(data) + 8
        while True:
            ids = (ctypes.c_int32 * size)()
            n = llama_cpp.llama_tokenize(
                self._vocab, data, len(data), ids, size, add_special, parse_special
            )
            if n >= 0:
                return list(ids[:n])
            size = -n

    @cached_property
    def new_line(self) -> int:
        """The token of a line feed, or the last of those that it takes."""
        return [0, *self.tokenize_after("\n")][-1]

    def tokenize_after(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Return the tokens of a text that continues another one: without BOS or a space in front.

        parse_special: as in `tokenize`. What follows the first special token is tokenized as in a
        text of its own.
        """
        alone = self.tokenize(text, add_special=False, parse_special=parse_special)
        if b"".join(self._piece(token, special=True) for token in alone) == text.encode():
            return alone
        # SentencePiece put a space in front, as it does at the start of a text only.
        for before in ("\n", "a"):
            first, both = (
                self.tokenize(part, add_special=False, parse_special=parse_special)
                for part in (before, before + text)
            )
            if both[: len(first)] == first:
                return both[len(first) :]
        return alone

    def spell_after(self, text: str, *, parse_special: bool = True) -> list[int]:
        """Return tokens that spell a text which continues another one, as the model would write it.

        parse_special: as in `tokenize`. Other than in `tokenize_after`, no space is put behind a
        special token, and none is lost beside one. Characters that the vocabulary lacks have the
        tokens that stand for them.
        """
        found, rest = list[int](), text
        while rest:
            tokens = self.tokenize_after(rest, parse_special=parse_special)
            count, size = self._spelled(tokens, rest.encode())
            if not count:
                tokens = self.tokenize_after(rest[0], parse_special=parse_special)
                count, size = len(tokens), len(rest[0].encode())
            found += tokens[:count]
            rest = rest.encode()[size:].decode()
        return found

    def _spelled(self, tokens: Sequence[int], data: bytes) -> tuple[int, int]:
        """How many tokens spell how many bytes of a text, from its beginning.

        Where not all do, up to the last special token of those that do, or the last character.
        """
        at = 0
        special = character = 0, 0
        for count, token in enumerate(tokens, 1):
            piece = self._piece(token, special=True)
            if not data.startswith(piece, at):
                return special if special[0] else character
            at += len(piece)
            if llama_cpp.llama_vocab_get_attr(self._vocab, token) & _SPECIAL:
                special = count, at
            if at == len(data) or data[at] & 0xC0 != 0x80:
                character = count, at
        return character

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token, maybe half a character; none for control tokens."""
        if (known := self._pieces.get(token)) is None:
            if len(self._pieces) >= _MOST_KNOWN:
                self._pieces.clear()
            known = self._pieces[token] = self._piece(token, special=False)
        return known

    def piece_text(self, token: int) -> str:
        """Return a token as it is written in a prompt, control tokens included."""
        return self._piece(token, special=True).decode("utf-8", "replace")

    def detokenized(self, token: int) -> bytes:
        """Return the text of a token that stands alone: without a space that begins a word."""
        size, ids = 64, (llama_cpp.llama_token * 1)(token)
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_detokenize(self._vocab, ids, 1, buffer, size, False, True)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def _piece(self, token: int, *, special: bool) -> bytes:
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if n >= 0:
                return buffer.raw[:n]
            size = -n

    def ends_generation(self, token: int) -> bool:
        """Return whether this token ends a generation (EOS, end of turn, ...)."""
        if (known := self._ends.get(token)) is None:
            known = self._ends[token] = self._is_end(token)
        return known

    def _is_end(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_eog(self._vocab, token))

    @property
    def bos(self) -> int:
        """The token that begins a text, or -1."""
        return int(llama_cpp.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        """The token that ends a text, or -1."""
        return int(llama_cpp.llama_vocab_eos(self._vocab))

    @property
    def vocabulary_type(self) -> int:
        """llama.cpp's number for the kind of tokenizer (SPM, BPE, ...)."""
        return int(llama_cpp.llama_vocab_type(self._vocab))

    @cached_property
    def vocabulary_fingerprint(self) -> str:
        """A SHA-256 over the texts of all tokens: models of equal vocabulary have the same."""
        digest = hashlib.sha256()
        for token in range(self.n_vocab):
            digest.update(self.token_text(token) + b"\0")
        return digest.hexdigest()

    @property
    def adds_bos(self) -> bool:
        """Whether BOS is put in front of a text."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self._vocab))

    @property
    def adds_eos(self) -> bool:
        """Whether EOS is put behind a text."""
        return bool(llama_cpp.llama_vocab_get_add_eos(self._vocab))

    @cached_property
    def fim_tokens(self) -> FimTokens | None:
        """The tokens around the parts of a text with a gap; None if the model was not taught."""
        return FimTokens.of(self._vocab)

    def token_text(self, token: int) -> bytes:
        """Return a token as it stands in the vocabulary of the GGUF."""
        return llama_cpp.llama_vocab_get_text(self._vocab, token) or b""

    @cached_property
    def end_tokens(self) -> Sequence[int]:
        """All tokens that end a generation."""
        return tuple(token for token in range(self.n_vocab) if self._is_end(token))

    @cached_property
    def suppressed_tokens(self) -> Sequence[int]:
        """The tokens that, as the GGUF says, must never be generated."""
        count = ctypes.c_int32(0)
        tokens = llama_cpp.llama_vocab_get_suppress_tokens(self._vocab, ctypes.byref(count))
        return tuple(tokens[: count.value]) if count.value else ()
