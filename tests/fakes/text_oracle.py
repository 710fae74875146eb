"""Text oracle: what drafters with other vocabularies read and draft, without caches and borders."""

import numpy as np
from fakes.letters import Letters
from fakes.toy import ToyModel

from localspec.sampling.sampler import Sampler

# Spaces, an end, characters of two bytes, and a control token that only the target has.
WORDS = Letters("a", "b", " ", "ab", " a", b"\xc3", b"\xa9", None, "ba", None, bos=7, ends=[9])
READERS = {
    "longer": Letters("b", "a", " ", " ab", "aba", b"\xc3", b"\xa9", "é", "b a", None, ends=[9]),
    "shorter": Letters(None, "a", "b", " ", b"\xc3", b"\xa9", None, bos=0, ends=[6]),
    "no bytes": Letters("a", "b", " a", "bab", " ", None, ends=[5]),
}


class Oracle:
    """What a drafter with this vocabulary and this model drafts, computed from the whole text.

    It is told what the drafter has read, if that was not all of the text, and how many further
    tokens it has room for.
    """

    def __init__(self, own: Letters, model: ToyModel) -> None:
        self._own, self._model = own, model
        spelled = {token: _tokens(WORDS, own.piece(token)) for token in range(own.n_vocab)}
        # The target's token that each token begins with.
        self._firsts = {token: found[0] for token, found in spelled.items() if found}
        self._firsts |= dict.fromkeys(own.end_tokens, WORDS.eos)

    def draft(
        self,
        text: list[int],
        depth: int,
        sampler: Sampler,
        *,
        certain: bool,
        read: list[int] | None = None,
        room: int = 1000,
    ) -> list[int]:
        own, written, drawn = self.spelled(text) if read is None else [*read], b"", 0
        drafted: list[int] = []
        while own and len(drafted) < depth and drawn < min(8 * depth, room):
            row = self._model.logits(own)
            logits = np.full(WORDS.n_vocab, -np.inf, np.float32)
            for token, first in self._firsts.items():
                logits[first] = np.logaddexp(logits[first], row[token])
            prefix = sampler.prefix([*text, *drafted])
            law = sampler.distribution(logits, prefix)
            chosen = law.token(int(law.logits.argmax())) if certain else sampler.sample(law, prefix)
            beginning = [token for token, first in self._firsts.items() if first == chosen]
            own.append(max(beginning, key=row.__getitem__))
            drawn += 1
            if own[-1] in self._own.end_tokens:
                return [*drafted, WORDS.eos][:depth]
            written += self._own.piece(own[-1])
            drafted = _tokens(WORDS, written)[:depth]
        return drafted

    def spelled(self, text: list[int]) -> list[int]:
        """The tokens of a text."""
        found = [self._own.bos] if self._own.adds_bos else []
        stretch = b""
        for place, token in enumerate(text):
            if WORDS.piece(token):
                stretch += WORDS.piece(token)
            elif place or token != WORDS.bos:
                found += _tokens(self._own, stretch)
                stretch = b""
                if token in WORDS.end_tokens:
                    found.append(self._own.eos)
                elif self._own.bos >= 0:
                    found.append(self._own.bos)
        return found + _tokens(self._own, stretch)


def _tokens(vocabulary: Letters, data: bytes) -> list[int]:
    """The longest tokens of bytes, with half a character as bytes."""
    try:
        return vocabulary.tokenize_after(data.decode(), parse_special=False)
    except UnicodeDecodeError as error:
        valid, invalid = data[: error.start].decode(), data[error.start : error.end]
        known = {vocabulary.piece(token): token for token in reversed(range(vocabulary.n_vocab))}
        of_bytes = [known[bytes([byte])] for byte in invalid if bytes([byte]) in known]
        rest = _tokens(vocabulary, data[error.end :])
        return vocabulary.tokenize_after(valid, parse_special=False) + of_bytes + rest
