"""Logit bias: OpenAI's map of token ids, and llama-server's list of pairs."""

from collections.abc import Iterable
from typing import Any

from localspec.server.errors import ApiError
from localspec.server.fields import Fields

_NAME = "logit_bias"
# OpenAI's least bias, and llama-server's `false`, ban a token.
_BANS = -100
_MOST = 100


def logit_bias(body: Fields) -> dict[int, float] | None:
    """The bias of each token that a request names; None: it names none. Raises ApiError."""
    given = body.values.get(_NAME)
    if isinstance(given, list):
        pairs: Iterable[tuple[Any, Any]] = [_pair(each, body) for each in given]
    else:
        members = body.member(_NAME)
        pairs = [(_id(name), value) for name, value in members.values.items()] if members else []
    return {_token(token, body): _bias(value, body) for token, value in pairs} or None


def _pair(given: Any, body: Fields) -> tuple[Any, Any]:
    if not isinstance(given, list) or len(given) != 2:
        raise _wrong(body)
    return given[0], given[1]


def _id(name: str) -> Any:
    """The token id that a member's name spells, else the name."""
    return int(name) if name.isascii() and name.isdigit() and len(name) < 10 else name


def _token(token: Any, body: Fields) -> int:
    if type(token) is not int or token < 0:
        raise _wrong(body)
    return token


def _bias(value: Any, body: Fields) -> float:
    if value is False:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(body)
    if not -_MOST <= value <= _MOST:
        raise body.wrong(_NAME, f"of numbers from {-_MOST} to {_MOST}")
    return float("-inf") if value == _BANS else float(value)


def _wrong(body: Fields) -> ApiError:
    return body.wrong(_NAME, "a map of token ids to numbers, or a list of pairs of these")
