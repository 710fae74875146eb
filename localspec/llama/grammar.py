"""Grammar: what may come next in a text that has to follow one."""

import warnings
from dataclasses import dataclass
from typing import cast
from weakref import WeakKeyDictionary

import llama_cpp
import numpy as np
from llguidance import LLMatcher, LLTokenizer
from llguidance.llamacpp import lltokenizer_from_vocab
from numpy.typing import NDArray

from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama.model import Model

Mask = NDArray[np.bool_]

_tokenizers: WeakKeyDictionary[Model, LLTokenizer] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """A text, as its last token and what came before."""

    length: int = 0
    before: "_Place | None" = None
    token: int = -1


class Grammar:
    """A grammar at one point of a text: a `Constraint`. Never changed, only gone on from.

    Tokens that end a text are allowed exactly where the grammar may end; the state after one is
    the state before. After a token that is not allowed, none is. Where only one text can follow,
    it is spelt as the tokenizer spells it.
    """

    __slots__ = ("_mask", "_place", "_walker")

    def __init__(self, walker: "_Walker", place: _Place | None) -> None:
        """For `begin` and `then`. place: None is nowhere."""
        self._walker = walker
        self._place = place
        self._mask: Mask | None = None

    @classmethod
    def begin(cls, grammar: str, model: Model) -> "Grammar":
        """The beginning of a grammar that `compile_gbnf` or `compile_schema` made.

        Raises InvalidValueError when no token of this vocabulary can begin what it describes.
        """
        walker = _Walker(grammar, model)
        start = cls(walker, walker.start)
        if not start.allowed().any():
            raise InvalidValueError(
                f"no token of {model.path.name} can begin what the grammar describes"
            )
        return start

    def allowed(self) -> Mask:
        """(n_vocab,) whether each token may come next; do not write to it.

        Raises LocalspecError when the grammar is too ambiguous to follow.
        """
        if self._mask is None:
            self._mask = self._walker.mask(self._place)
        return self._mask

    def then(self, token: int) -> "Grammar":
        """The grammar after one more token."""
        if self._place is None or not 0 <= token < self.allowed().size or not self.allowed()[token]:
            return Grammar(self._walker, None)
        if token in self._walker.ends:
            return self
        return Grammar(self._walker, _Place(self._place.length + 1, self._place, token))


class _Walker:
    """One matcher, taken to whatever place is asked about: cutting back costs it next to nothing.

    A copy per place would cost time in proportion to the text.
    """

    def __init__(self, grammar: str, model: Model) -> None:
        self.ends = frozenset(model.end_tokens)
        self._model = model
        self._matcher = LLMatcher(_tokenizer(model), grammar, log_level=0)
        self.start = self._place = _Place()
        self._require_sound()

    def mask(self, place: _Place | None) -> Mask:
        """(n_vocab,) what may follow there."""
        if place is None:
            return np.zeros(self._model.n_vocab, dtype=np.bool_)
        self._go(place)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._require_sound()
        mask = np.unpackbits(bits, count=self._model.n_vocab, bitorder="little")
        return cast(Mask, mask.view(np.bool_))

    def _go(self, place: _Place) -> None:
        """Back to where the way to `place` leaves the way taken, and on from there."""
        _ = self._model.handle  # raises for a closed model, whose vocabulary the matcher reads
        forward: list[int] = []
        goal, here, back = place, self._place, 0
        while goal is not here:
            if goal.length >= here.length and goal.before:
                forward.append(goal.token)
                goal = goal.before
            elif here.before:
                here, back = here.before, back + 1
        self._matcher.rollback(back)
        self._matcher.consume_tokens(forward[::-1])
        self._place = place
        self._require_sound()

    def _require_sound(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().splitlines()[0]
            raise LocalspecError(f"the grammar cannot be followed: {reason}")


def _tokenizer(model: Model) -> LLTokenizer:
    """The vocabulary as llguidance wants it; made once per model (0.6 s for 131k tokens)."""
    if model not in _tokenizers:
        vocabulary = llama_cpp.llama_model_get_vocab(model.handle)
        with warnings.catch_warnings():
            # It calls a function of the binding by its former name.
            warnings.simplefilter("ignore", DeprecationWarning)
            _tokenizers[model] = lltokenizer_from_vocab(
                vocabulary, eos_token=list(model.end_tokens)
            )
    return _tokenizers[model]
