"""The vocabulary in a GGUF's header, with the same defaults as in llama.cpp."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from localspec.gguf.reader import Array, Header
from localspec.gguf.types import STRING

_NO_TOKEN = -1


class _Tokenizer(NamedTuple):
    """A kind of tokenizer: llama.cpp's number for it, and the defaults of missing keys."""

    number: int = 0
    bos: int = _NO_TOKEN
    eos: int = _NO_TOKEN
    adds_bos: bool = False
    adds_eos: bool = False


_UNKNOWN = _Tokenizer()
_BYTE_PAIR = _Tokenizer(2, bos=11, eos=11)
# By `tokenizer.ggml.model`.
_TOKENIZERS = {
    "llama": _Tokenizer(1, bos=1, eos=2, adds_bos=True),
    **dict.fromkeys(("gpt2", "hybriddna", "whitespace"), _BYTE_PAIR),
    "gemma4": _Tokenizer(2),
    "bert": _Tokenizer(3, bos=101, adds_bos=True),
    "t5": _Tokenizer(4, eos=1, adds_eos=True),
    "rwkv": _Tokenizer(5),
    "plamo2": _Tokenizer(6, bos=1, eos=2),
    "test": _Tokenizer(7),
}
TOKENIZER_NAMES = ("none", "SPM", "BPE", "WPM", "UGM", "RWKV", "PLaMo2", "TEST")

# Byte-pair vocabularies whose defaults depend on `tokenizer.ggml.pre`.
_BOS_BY_DEFAULT = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
    *("jina-v5-nano", "tekken", "chameleon"),
)
_BOS_ALWAYS = ("gemma4", "granite-embed-multi-311m")
_NO_BOS_BY_DEFAULT = ("chatglm-bpe", "glm4", "glm5")

# Texts of tokens that end a turn, for files that do not name theirs. Where a vocabulary has
# several of them, llama.cpp takes any one.
_END_OF_TURN = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>"),
    *("<EOT>", "_<EOT>", "[EOT]", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<end_of_utterance>"),
)
_END_OF_MESSAGE = ("<|eom_id|>",)


class HeaderVocabulary:
    """The vocabulary of a model that is not loaded.

    n_vocab: the number of tokens. Tokens are ids, -1 where the vocabulary has none.
    """

    def __init__(self, header: Header) -> None:
        self._metadata = header.metadata
        model, pre = self._get("model"), self._get("pre")
        self._tokenizer = _TOKENIZERS.get(model if isinstance(model, str) else "", _UNKNOWN)
        self._pre = "gemma4" if model == "gemma4" else pre
        tokens = self._get("tokens")
        self._tokens: Sequence[str] = (
            tokens if isinstance(tokens, Array) and tokens.kind == STRING else ()
        )
        self.n_vocab = len(self._tokens)

    @property
    def vocabulary_type(self) -> int:
        """llama.cpp's number for the kind of tokenizer, an index of TOKENIZER_NAMES."""
        return self._tokenizer.number

    @property
    def bos(self) -> int:
        """The token that begins a text."""
        no_default = self._tokenizer == _BYTE_PAIR and self._pre in _NO_BOS_BY_DEFAULT
        return self._token("bos", _NO_TOKEN if no_default else self._tokenizer.bos)

    @property
    def eos(self) -> int:
        """The token that ends a text."""
        return self._token("eos", self._tokenizer.eos)

    @property
    def adds_bos(self) -> bool:
        """Whether every prompt gets BOS at its start."""
        byte_pair = self.vocabulary_type == _BYTE_PAIR.number
        if byte_pair and self._pre in _BOS_ALWAYS:
            return True
        default = self._tokenizer.adds_bos or (byte_pair and self._pre in _BOS_BY_DEFAULT)
        return self._flag("add_bos_token", default)

    @property
    def adds_eos(self) -> bool:
        """Whether every prompt gets EOS at its end."""
        return self._flag("add_eos_token", self._tokenizer.adds_eos)

    @cached_property
    def special(self) -> Mapping[str, int]:
        """The ids of bos, eos, eot and eom (end of turn, of message), as far as there are any."""
        found = {
            "bos": self.bos,
            "eos": self.eos,
            "eot": self._token("eot", self._token_of_text(_END_OF_TURN)),
            "eom": self._token("eom", self._token_of_text(_END_OF_MESSAGE)),
        }
        return {name: token for name, token in found.items() if token != _NO_TOKEN}

    @cached_property
    def fingerprint(self) -> str:
        """A SHA-256 of the texts of all tokens, which identifies the vocabulary."""
        return hashlib.sha256(b"".join(text + b"\0" for text in self._texts)).hexdigest()

    def token_text(self, token: int) -> bytes:
        """Return the bytes of a token in the vocabulary."""
        return self._texts[token]

    @cached_property
    def _texts(self) -> Sequence[bytes]:
        """All tokens as in llama.cpp, which cuts a token at its first NUL and names empty ones."""
        texts = (text.encode("utf-8", "surrogateescape") for text in self._tokens)
        return [
            text.partition(b"\0")[0] or b"[EMPTY_%d]" % number for number, text in enumerate(texts)
        ]

    def _get(self, key: str) -> object:
        return self._metadata.get(f"tokenizer.ggml.{key}")

    def _flag(self, key: str, default: bool) -> bool:
        value = self._get(key)
        return value if isinstance(value, bool) else default

    def _token(self, name: str, default: int) -> int:
        """Return the token that the file names, else the default, else -1."""
        for token in (self._get(f"{name}_token_id"), default):
            if isinstance(token, int) and 0 <= token < self.n_vocab:
                return token
        return _NO_TOKEN

    def _token_of_text(self, spellings: Sequence[str]) -> int:
        """Return the token with the first of these texts that the vocabulary has."""
        ids = {text: token for token, text in enumerate(self._tokens) if text in spellings}
        return next((ids[text] for text in spellings if text in ids), _NO_TOKEN)
