"""Option types: numbers as Python's own, texts and paths, by the annotations of options."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache, reduce, wraps
from inspect import signature
from operator import index, or_
from os import PathLike
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from localspec.errors import InvalidValueError
from localspec.utils.similar_names import did_you_mean

_Options = ParamSpec("_Options")
_Result = TypeVar("_Result")
_NUMBERS = (int, float)
# What other libraries call options.
_ELSEWHERE = {
    "cache_type_k": "kv_type",
    "ctx": "context",
    "ctx_size": "context",
    "draft_max": "depth",
    "flash_attn": "flash_attention",
    "max_new_tokens": "max_tokens",
    "max_length": "max_tokens",
    "model_path": "model",
    "n_ctx": "context",
    "n_gpu_layers": "gpu_layers",
    "n_predict": "max_tokens",
    "n_threads": "threads",
    "num_ctx": "context",
    "num_gpu": "gpu_layers",
    "num_predict": "max_tokens",
    "num_thread": "threads",
    "repetition_penalty": "repeat_penalty",
    "type_k": "kv_type",
}


def typed(options: Mapping[str, Any], owner: Any) -> dict[str, Any]:
    """The options with their numbers as ints, floats and bools; the others as they are.

    owner: the class or function whose annotations are the types. Numbers of numpy and the like are
    converted; a text or a bool is no number. None stays where the type allows it. Raises
    InvalidValueError, which names the option, its value and the type of that.
    """
    kinds = _kinds(owner)
    return {
        name: _typed(name, value, *kinds.get(name, (None, True))) for name, value in options.items()
    }


def type_fields(config: Any) -> None:
    """Give the fields of a frozen dataclass their types, as `typed` does."""
    given = {each.name: getattr(config, each.name) for each in fields(config)}
    for name, value in typed(given, type(config)).items():
        object.__setattr__(config, name, value)


def typed_options(function: Callable[_Options, _Result]) -> Callable[_Options, _Result]:
    """Let a function take its arguments as `typed` has them; an option of None has its default."""
    names = [*signature(function).parameters]

    @known_options
    @wraps(function)
    def with_types(*args: _Options.args, **options: _Options.kwargs) -> _Result:
        typed(dict(zip(names, args, strict=False)), function)
        given = {name: value for name, value in options.items() if value is not None}
        return function(*args, **typed(given, function))

    return with_types


def known_options(function: Callable[_Options, _Result]) -> Callable[_Options, _Result]:
    """Let a function refuse options that it has not as `require_known` does."""
    names = [*signature(function).parameters]

    @wraps(function)
    def with_names(*args: _Options.args, **options: _Options.kwargs) -> _Result:
        require_known(options, names)
        return function(*args, **options)

    return with_names


def require_known(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidValueError for an option of no known name; it says which one may be meant."""
    if unknown := {*given} - {*known}:
        name = min(unknown)
        here = _ELSEWHERE.get(name)
        hint = f"did you mean {here}?" if here in {*known} else did_you_mean(name, known)
        what = f"there is no setting {name!r}"
        raise InvalidValueError(f"{what}; {hint}" if hint else what)


def require_kind(name: str, value: object, kind: Any, what: str) -> None:
    """Raise InvalidValueError unless a value is of a type, or one of a union. what: in words."""
    if not isinstance(value, kind):
        raise InvalidValueError(f"{name} is {value!r:.60}; it must be {what}")


def whole_number(name: str, value: object) -> int:
    """The value as an int. Raises InvalidValueError for one that is no whole number."""
    if not _is_bool(value) and hasattr(value, "__index__"):
        try:
            return index(value)
        except TypeError:  # an array
            pass
    raise _wrong(name, value, int, "a whole number")


def number(name: str, value: object) -> float:
    """The value as a number of Python. Raises InvalidValueError for one that is none."""
    if not _is_bool(value) and hasattr(value, "__float__"):
        try:
            as_float = float(value)
            return value if isinstance(value, int) else as_float
        except (TypeError, OverflowError):  # an array, or too large
            pass
    raise _wrong(name, value, float, "a number")


def _choice(name: str, value: object) -> bool:
    if _is_bool(value) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InvalidValueError(f"{name} is {_described(value)}; it must be True or False")


def _text(name: str, value: object) -> object:
    require_kind(name, value, str, "a text")
    return value


def _path(name: str, value: object) -> object:
    require_kind(name, value, str | PathLike, "a text or a Path")
    return value


def _several(one: Callable[[str, object], Any], wanted: str) -> Callable[[str, object], Any]:
    """The check of a list, or of one item without a list. one: that of an item."""

    def check(name: str, value: Any) -> Any:
        if isinstance(value, str | PathLike):
            return one(name, value)
        require_kind(name, value, Iterable, wanted)
        return tuple(one(f"{name} [{at}]", each) for at, each in enumerate(value))

    return check


def _typed(name: str, value: Any, kind: Any, is_optional: bool = False) -> Any:
    """A value of one of the kinds of numbers and texts, or of a collection of numbers."""
    if value is None and (is_optional or kind not in _TYPES):
        return None
    if kind in _TYPES:
        return _TYPES[kind](name, value)
    parts = [each for each in get_args(kind) if each is not Ellipsis]
    if not parts or not all(each in _NUMBERS for each in parts):
        return value
    if issubclass(get_origin(kind), Mapping):
        if not isinstance(value, Mapping):
            return value  # for the option's own check
        return {
            _typed(f"{name} key", key, parts[0]): _typed(f"{name} of {key!r}", each, parts[1])
            for key, each in value.items()
        }
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidValueError(f"{name} is {_described(value)}; it must be a list of numbers")
    return tuple(_typed(f"{name} [{at}]", each, parts[0]) for at, each in enumerate(value))


_TYPES: dict[Any, Callable[[str, object], Any]] = {
    int: whole_number,
    float: number,
    bool: _choice,
    str: _text,
    str | Path: _path,
    Sequence[str]: _several(_text, "a list of texts"),
    str | Sequence[str]: _several(_text, "a list of texts"),
    str | Path | Sequence[str | Path]: _several(_path, "a list of paths"),
}


@cache
def _kinds(owner: Any) -> dict[str, tuple[Any, bool]]:
    """The annotated types by name, without None, and whether None is one of them."""
    found = {}
    for name, hint in get_type_hints(owner).items():
        choices = [each for each in get_args(hint) if each is not type(None)]
        is_optional = type(None) in get_args(hint)
        found[name] = (reduce(or_, choices) if is_optional else hint, is_optional)
    return found


def _is_bool(value: object) -> bool:
    """Whether it is True or False, numpy's included."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"


def _described(value: object) -> str:
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{value!r:.60}, {'an' if kind.startswith((*'aeiou', 'nd')) else 'a'} {kind}"


def _wrong(name: str, value: object, kind: type[int | float], wanted: str) -> InvalidValueError:
    """The error for a value that is no number. kind: int or float."""
    way_out = ""
    if isinstance(value, str):
        try:
            kind(value)
            way_out = f": write {value.strip()} without quotes"
        except ValueError:
            way_out = ", or None for the default" if value in ("auto", "default", "") else ""
    elif isinstance(value, bool) or (isinstance(value, float) and value.is_integer()):
        way_out = f": write {int(value)}"
    return InvalidValueError(f"{name} is {_described(value)}; it must be {wanted}{way_out}")
