"""Logit bias: OpenAI's map of token ids, and llama-server's list of pairs, in both texts too."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from localspec.errors import InvalidValueError
from localspec.server.errors import ApiError
from localspec.server.fields import Fields

_NAME = "logit_bias"
# OpenAI's least bias, and llama-server's `false`, ban a token.
_BANS = -100
_MOST = 100
# Characters of all texts together.
_MOST_TEXT = 120_000
# A member's name that is an id, as strtol reads it.
_NUMBER = re.compile(r"\s*[+-]?[0-9]+", re.ASCII)
# No vocabulary has ids of so many digits.
_LONGEST_ID = 20

# The tokens of a text. Raises InvalidValueError for a text that is no valid Unicode.
Tokenize = Callable[[str], Sequence[int]]


def logit_bias(body: Fields, tokenize: Tokenize) -> dict[int, float] | None:
    """The bias of each token that a request names; None: it names none. Raises ApiError.

    A text biases each of its tokens, and what a token gets from several adds up, as in
    llama-server.
    """
    given = body.values.get(_NAME)
    if isinstance(given, list):
        pairs: Iterable[tuple[Any, Any]] = [_pair(each, body) for each in given]
    else:
        members = body.member(_NAME)
        pairs = [(_id(name), value) for name, value in members.values.items()] if members else []
    pairs = list(pairs)
    if sum(len(key) for key, _ in pairs if isinstance(key, str)) > _MOST_TEXT:
        raise body.wrong(_NAME, f"of texts with {_MOST_TEXT} characters at most")
    biases: dict[int, float] = {}
    for key, value in pairs:
        bias = _bias(value, body)
        for token in _tokens(key, tokenize, body):
            biases[token] = biases.get(token, 0.0) + bias
    return biases or None


def _pair(given: Any, body: Fields) -> tuple[Any, Any]:
    if not isinstance(given, list) or len(given) != 2:
        raise _wrong(body)
    return given[0], given[1]


def _id(name: str) -> int | str:
    """The token id that a member's name spells, else the name, which is a text."""
    if not _NUMBER.fullmatch(name):
        return name
    return int(name) if len(name) < _LONGEST_ID else -1


def _tokens(key: Any, tokenize: Tokenize, body: Fields) -> Sequence[int]:
    if isinstance(key, str):
        try:
            return tokenize(key)
        except InvalidValueError as error:
            raise body.wrong(_NAME, "of texts that are valid Unicode") from error
    if type(key) is not int or key < 0:
        raise _wrong(body)
    return [key]


def _bias(value: Any, body: Fields) -> float:
    if value is False:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(body)
    if not -_MOST <= value <= _MOST:
        raise body.wrong(_NAME, f"of numbers from {-_MOST} to {_MOST}")
    return float("-inf") if value == _BANS else float(value)


def _wrong(body: Fields) -> ApiError:
    return body.wrong(_NAME, "a map of token ids or texts to numbers, or a list of pairs of these")
