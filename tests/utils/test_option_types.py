"""Option types: what a value must be by its annotation, and how a wrong one is named."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from localspec.errors import InvalidValueError
from localspec.utils.option_types import typed, typed_options


class Options:
    count: int
    share: float | None
    name: str
    maybe_name: str | None
    place: str | Path | None
    names: Sequence[str]
    said: str | Sequence[str]
    files: str | Path | Sequence[str | Path]
    shares: Sequence[float]
    other: Iterable[str] | None
    either: str | Mapping[str, Any] | None


@pytest.mark.parametrize(
    ("option", "value", "is_now"),
    [
        ("count", np.int64(3), 3),
        ("share", np.float32(0.5), 0.5),
        ("share", None, None),
        ("name", "a", "a"),
        ("maybe_name", None, None),
        ("place", Path("a"), Path("a")),
        ("place", None, None),
        ("names", ["a", "b"], ("a", "b")),
        ("names", "a,b", "a,b"),
        ("said", "a", "a"),
        ("said", iter(["a"]), ("a",)),
        ("files", Path("a"), Path("a")),
        ("files", ["a", Path("b")], ("a", Path("b"))),
        ("shares", (1, 2), (1, 2)),
        ("other", 5, 5),
        ("either", 5, 5),
        ("unknown", 5, 5),
    ],
)
def test_what_is_right(option: str, value: object, is_now: object) -> None:
    assert typed({option: value}, Options) == {option: is_now}


@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("count", "3", "count is '3', a str; it must be a whole number: write 3 without quotes"),
        ("count", None, "count is None; it must be a whole number"),
        ("name", 5, "name is 5; it must be a text"),
        ("name", None, "name is None; it must be a text"),
        ("maybe_name", b"a", "maybe_name is b'a'; it must be a text"),
        ("place", 5, "place is 5; it must be a text or a Path"),
        ("place", ["a"], "place is ['a']; it must be a text or a Path"),
        ("names", 5, "names is 5; it must be a list of texts"),
        ("names", b"ab", "names [0] is 97; it must be a text"),
        ("names", ["a", 5], "names [1] is 5; it must be a text"),
        ("said", [None], "said [0] is None; it must be a text"),
        ("files", 5, "files is 5; it must be a list of paths"),
        ("files", [5], "files [0] is 5; it must be a text or a Path"),
        ("shares", "1", "shares is '1', a str; it must be a list of numbers"),
    ],
)
def test_what_is_wrong_is_named(option: str, value: object, line: str) -> None:
    with pytest.raises(InvalidValueError) as refused:
        typed({option: value}, Options)
    assert str(refused.value) == line


def test_an_unknown_option_is_named_with_the_one_that_may_be_meant() -> None:
    @typed_options
    def taken(*, context: int = 3, gpu_layers: int = 0) -> object:
        return context, gpu_layers

    for name, said in (
        ("contex", "; did you mean context?"),
        ("n_ctx", "; did you mean context?"),
        ("num_gpu", "; did you mean gpu_layers?"),
        ("n_predict", ""),  # what it is called elsewhere is no option of this function
    ):
        with pytest.raises(InvalidValueError) as refused:
            taken(**{name: 5})
        assert str(refused.value) == f"there is no setting {name!r}{said}"


def test_arguments_are_checked_and_an_option_of_none_has_its_default() -> None:
    @typed_options
    def taken(place: str | Path | None = None, name: str = "a", *, count: int = 3) -> object:
        return place, name, count

    assert taken() == taken(None, name=None, count=None) == (None, "a", 3)  # type: ignore[arg-type]
    assert taken("b", "c", count=np.int64(4)) == ("b", "c", 4)  # type: ignore[arg-type]
    for wrong in (lambda: taken(5), lambda: taken("b", None), lambda: taken(place=5)):  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError, match=r"^(place|name) is"):
            wrong()
    with pytest.raises(TypeError, match="positional"):
        taken("b", "c", 4)  # type: ignore[misc]
