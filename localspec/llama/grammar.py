"""Grammar: which tokens may come next in a text that must follow a grammar."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import cast
from weakref import WeakKeyDictionary

import llama_cpp
import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from llguidance.llamacpp import lltokenizer_from_vocab
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.llama.model import Model

Mask = NDArray[np.bool_]

_tokenizers: WeakKeyDictionary[Model, LLTokenizer] = WeakKeyDictionary()
# Matchers at the start of a grammar, of which copies are made; the one used last is the last.
_MOST_BEGUN = 8
_begun_matchers: WeakKeyDictionary[Model, dict[str, LLMatcher]] = WeakKeyDictionary()
# Positions of a text that are kept: more than a draft, its verification and the next draft have.
_MOST_KEPT = 64
_lock = Lock()


@dataclass(frozen=True, slots=True, eq=False)
class _Position:
    """A position in a text, as a linked list: the last token and the position before it."""

    length: int = 0
    before: "_Position | None" = None
    token: int = -1


class Grammar:
    """A grammar at one position of a text: a `Constraint`. Immutable: `then` gives the next one.

    Tokens that end a text are allowed exactly where the grammar may end, and do not change its
    state. After a forbidden token, all tokens are forbidden. Where only one text is possible, only
    its usual tokenization is allowed.
    """

    __slots__ = ("_mask", "_matcher", "_position")

    def __init__(self, matcher: "_SharedMatcher", position: _Position | None) -> None:
        """For `begin` and `then`. position: None is after a forbidden token."""
        self._matcher = matcher
        self._position = position
        self._mask: Mask | None = None

    @classmethod
    def begin(cls, grammar: str, model: Model) -> "Grammar":
        """The start of a grammar from `compile_gbnf`, `compile_lark` or `compile_schema`.

        The beginnings of the last few grammars are kept: requests repeat theirs, and a large one
        takes seconds. Raises InvalidValueError if the grammar is too large or ambiguous to be
        followed, or if no token of the model's vocabulary can begin such a text.
        """
        matcher = _SharedMatcher(grammar, model)
        start = cls(matcher, matcher.start)
        if not start.allowed().any():
            raise InvalidValueError(
                f"no token of {model.path.name} can begin what the grammar describes"
            )
        return start

    def allowed(self) -> Mask:
        """(n_vocab,) whether each token may come next; do not modify it.

        Raises InvalidValueError if the grammar is too large or ambiguous for the matcher.
        """
        if self._mask is None:
            self._mask = self._matcher.mask(self._position)
        return self._mask

    def then(self, token: int) -> "Grammar":
        """The grammar after one more token."""
        here = self._position
        if here is None or not 0 <= token < self.allowed().size or not self.allowed()[token]:
            return Grammar(self._matcher, None)
        if token in self._matcher.ends:
            return self
        return Grammar(self._matcher, self._matcher.after(here, token))

    def fitting(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may follow, in whatever tokens their text is spelled."""
        return self._matcher.fitting(self._position, tokens)

    def behind(self, tokens: Sequence[int]) -> "Grammar":
        """The grammar after tokens that all are `fitting`: of a text that stands already."""
        here = self._position
        for token in tokens:
            here = here and _Position(here.length + 1, here, token)
        return Grammar(self._matcher, here)


class _SharedMatcher:
    """llguidance's matcher, moved to the position that is asked about.

    Its rollback is cheap; a matcher per position would cost time in proportion to the text. A
    drafter, the target and the text ask about the same positions, so the last ones are kept, with
    their masks.
    """

    def __init__(self, grammar: str, model: Model) -> None:
        self.ends = frozenset(model.end_tokens)
        self._grammar, self._model = grammar, model
        self.start = _Position()
        self._begin()
        self._after: dict[tuple[_Position, int], _Position] = {}
        self._masks: dict[_Position, Mask] = {}
        self._require_no_error()

    def _begin(self) -> None:
        self._matcher, self._position = _begun(self._grammar, self._model), self.start

    def after(self, position: _Position, token: int) -> _Position:
        """The position after one more token."""
        if (position, token) not in self._after:
            if len(self._after) >= _MOST_KEPT:
                self._after.clear()
                self._masks.clear()
            self._after[position, token] = _Position(position.length + 1, position, token)
        return self._after[position, token]

    def fitting(self, position: _Position | None, tokens: Sequence[int]) -> int:
        """How many of these tokens may come at this position; none may after None."""
        if position is None:
            return 0
        self._move_to(position)
        return self._matcher.validate_tokens([*tokens])

    def mask(self, position: _Position | None) -> Mask:
        """(n_vocab,) whether each token may come at this position; none may after None."""
        if position is None:
            return np.zeros(self._model.n_vocab, dtype=np.bool_)
        if position not in self._masks:
            self._masks[position] = self._computed_mask(position)
        return self._masks[position]

    def _computed_mask(self, position: _Position) -> Mask:
        self._move_to(position)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._require_no_error()
        mask = np.unpackbits(bits, count=self._model.n_vocab, bitorder="little")
        return cast(Mask, mask.view(np.bool_))

    def _move_to(self, position: _Position) -> None:
        """Roll back to the last common position with `position`, then consume its tokens."""
        _ = self._model.handle  # raises for a closed model, whose vocabulary the matcher reads
        forward: list[int] = []
        goal, here, back = position, self._position, 0
        while goal is not here:
            if goal.length >= here.length and goal.before:
                forward.append(goal.token)
                goal = goal.before
            elif here.before:
                here, back = here.before, back + 1
        self._matcher.rollback(back)
        self._matcher.consume_tokens(forward[::-1])
        self._position = position
        self._require_no_error()

    def _require_no_error(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().splitlines()[0]
            # It could not move any more, though only a drafted token may have led here.
            self._begin()
            raise InvalidValueError(f"the grammar cannot be followed: {reason}")


def _begun(grammar: str, model: Model) -> LLMatcher:
    """A new matcher at the start of a grammar."""
    with _lock:
        begun = _begun_matchers.setdefault(model, {})
        if matcher := begun.pop(grammar, None):
            begun[grammar] = matcher
            return matcher.deep_copy()
    matcher = LLMatcher(_tokenizer(model), grammar, log_level=0)
    matcher.compute_bitmask()  # prepares what copies share
    with _lock:
        begun[grammar] = matcher
        for oldest in list(begun)[:-_MOST_BEGUN]:
            del begun[oldest]
        return matcher.deep_copy()


def special_tokens(model: Model, texts: Iterable[str]) -> dict[str, int]:
    """The ids of those texts that are special tokens in a grammar, which are no text there."""
    found = {}
    for text in texts:
        tokens = model.tokenize_after(text)
        if len(tokens) == 1 and model.piece_text(tokens[0]) == text and _special(model, tokens[0]):
            found[text] = tokens[0]
    return found


def _special(model: Model, token: int) -> int:
    """The kind of a special token, as llama.cpp's attributes; 0 for the others.

    They are control tokens, the token of what a vocabulary lacks, and those <in such brackets> that
    a vocabulary's author defined.
    """
    vocabulary = llama_cpp.llama_model_get_vocab(model.handle)
    kind = int(llama_cpp.llama_vocab_get_attr(vocabulary, token))
    if kind & llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED:
        text = model.piece_text(token)
        return kind if text.startswith("<") and text.endswith(">") else 0
    return kind & (llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN)


def _tokenizer(model: Model) -> LLTokenizer:
    """llguidance's tokenizer of a model, made once per model.

    It takes 0.6 s for 131k tokens, and twice as long where an author defined special tokens.
    """
    if model not in _tokenizers:
        vocabulary, ends = llama_cpp.llama_model_get_vocab(model.handle), list(model.end_tokens)
        kinds = {token: kind for token in range(model.n_vocab) if (kind := _special(model, token))}
        only_control = all(kind & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL for kind in kinds.values())
        # Slices make masks quicker, and are half of the work: the tokenizer in use needs them.
        slices: list[str] | None = None if only_control else []
        with warnings.catch_warnings():
            # llguidance calls a deprecated function of the binding.
            warnings.simplefilter("ignore", DeprecationWarning)
            made = lltokenizer_from_vocab(vocabulary, eos_token=ends, slices=slices)
        keeps_spaces = made.decode_bytes(made.tokenize_bytes(b"a b")) == b"a b"
        if not (only_control and keeps_spaces):
            special = {token: model.piece_text(token) for token in kinds}
            own = TokenizerWrapper(_Vocabulary(made, special, model))
            made = LLTokenizer(own, eos_token=ends)
        _tokenizers[model] = made
    return _tokenizers[model]


class _Vocabulary:
    """A vocabulary in which every text is spelled with tokens that are no special ones.

    llama.cpp finds the special tokens that a vocabulary's author defined in any text. Where the
    vocabulary lacks the character that stands for a space, llama.cpp writes a space as the bytes of
    that character. llguidance refuses both.
    """

    def __init__(self, made: LLTokenizer, special: Mapping[int, str], model: Model) -> None:
        """made: llama.cpp's tokenizer. special: the texts of special tokens."""
        self.eos_token_id, self.bos_token_id = model.eos, None
        # Behind 0xff llguidance expects the name of a special token. One that writes nothing, as
        # where a vocabulary is padded, has none, and no grammar may allow it.
        self.tokens = [
            b"\xff" + special[token].encode()
            if token in special
            else model.piece(token) or b"\xff<%d>" % token
            for token in range(model.n_vocab)
        ]
        self._made = made
        self._spelled = {
            token: [*made.greedy_tokenize(text[:-1]), *made.greedy_tokenize(text[-1:])]
            for token, text in special.items()
        }

    def __call__(self, text: str) -> list[int]:
        tokens = self._made.tokenize_str(text)
        if self._made.decode_bytes(tokens) != text.encode():
            tokens = self._made.greedy_tokenize(text)
        return [each for token in tokens for each in self._spelled.get(token, [token])]
