"""Drafter specs: the names in a `draft` option."""

from pathlib import Path
from typing import Any

import pytest

from localspec.drafters.spec import (
    DrafterSpec,
    DraftRequest,
    join_names,
    parse_draft,
    split_kind,
    split_names,
)
from localspec.errors import InvalidValueError
from localspec.speculation.drafter import Traits


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("suffix", ["suffix"]),
        ("suffix, my model.gguf ,ngram", ["suffix", "my model.gguf", "ngram"]),
        ('"a, b.gguf", suffix', ["a, b.gguf", "suffix"]),
        ("suffix,'a,\"b\".gguf'", ["suffix", 'a,"b".gguf']),
        ("Bob's.gguf,Al's.gguf", ["Bob's.gguf", "Al's.gguf"]),
        ("suffix,,ngram", ["suffix", "", "ngram"]),
        ("", [""]),
    ],
)
def test_names_are_separated_by_commas_outside_quotes(text: str, names: list[str]) -> None:
    assert split_names(text) == names
    assert split_names(join_names(names)) == names


def test_an_existing_file_is_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a, b.gguf"
    assert len(split_names(str(file))) == 2
    file.touch()
    assert split_names(str(file)) == [str(file)]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert split_names("~/a, b.gguf") == ["~/a, b.gguf"]
    request = parse_draft(join_names(["suffix", str(file)]))
    assert [each.model for each in request.specs] == [None, str(file)]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("suffix", ("", "suffix")),
        ("pard:a/b:Q8_0", ("pard:", "a/b:Q8_0")),
        ("pard=7:C:\\x.gguf", ("pard=7:", "C:\\x.gguf")),
    ],
)
def test_a_kind_is_no_part_of_the_model(name: str, parts: tuple[str, str]) -> None:
    assert split_kind(name) == parts


@pytest.mark.parametrize("text", ["", "suffix,", ",suffix", "suffix, ,ngram"])
def test_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="with an empty name in it; use auto"):
        parse_draft(text)


SUFFIX, MODEL = DrafterSpec("suffix"), DrafterSpec("draft-model", "x.gguf")
PARSED: list[tuple[Any, tuple[DrafterSpec, ...], bool]] = [
    ("none", (), False),
    (["none", "none"], (), False),
    ("auto", (), True),
    ("auto,auto", (), True),
    ("suffix", (SUFFIX,), False),
    ("suffix,x.gguf,suffix,x.gguf", (SUFFIX, MODEL), False),
    (["auto", ("suffix", ["x.gguf"])], (SUFFIX, MODEL), True),
    ("mtp,lookup", (DrafterSpec("mtp"), DrafterSpec("lookup")), False),
    ("pard:a\nb.gguf", (DrafterSpec("pard", "a\nb.gguf"),), False),
    ("pard=123456789:x", (DrafterSpec("pard", "x", mask_token=123456789),), False),
    # A path is that of a file, whatever it is called.
    ([Path("suffix")], (DrafterSpec("draft-model", Path("suffix")),), False),
    (Path("pard:x"), (DrafterSpec("draft-model", Path("pard:x")),), False),
    ([Path("auto"), "auto"], (DrafterSpec("draft-model", Path("auto")),), True),
    (Path("none"), (DrafterSpec("draft-model", Path("none")),), False),
]


@pytest.mark.parametrize(("draft", "specs", "auto"), PARSED, ids=range(len(PARSED)))
def test_what_is_asked_for(draft: Any, specs: tuple[DrafterSpec, ...], auto: bool) -> None:
    request = parse_draft(draft)
    assert request == DraftRequest(specs, auto)
    assert request.is_off == (not specs and not auto)
    assert request.is_only_auto == (auto and not specs)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (SUFFIX, "suffix"),
        (MODEL, None),
        (DrafterSpec("mtp"), "mtp"),
        (DrafterSpec("mtp", "x.gguf"), None),
        (DrafterSpec("pard", "x.gguf"), None),
    ],
)
def test_a_name_is_known_where_no_file_is_read(spec: DrafterSpec, name: str | None) -> None:
    assert spec.name == name
    assert spec.is_inside == (spec == DrafterSpec("mtp"))


class Own:
    """A drafter of the caller that is equal to everything."""

    def __init__(self, *, without: str = "", name: str = "own") -> None:
        members = {"name": name, "traits": Traits(), "begin": print, "observe": print}
        self.__dict__ = {**members, "propose": print}
        self.__dict__.pop(without, None)

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Raises:
    """Its name is a mistake."""

    traits, begin, propose, observe = Traits(), print, print, print

    @property
    def name(self) -> str:
        raise ZeroDivisionError("its own")


def test_objects_are_never_the_same_drafter() -> None:
    request = parse_draft(["suffix", Own(name="a"), Own(name="b"), Own(name="a")])  # type: ignore[list-item]
    assert [each.name for each in request.specs] == ["suffix", "a", "b", "a"]
    assert not request.auto


def test_one_that_runs_a_model_proposes_by_its_passes() -> None:
    own = Own(without="propose")
    own.__dict__["passes"] = print
    assert parse_draft(own).specs[0].name == "own"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ([], "draft is an empty list; use none"),
        (((), []), "draft is an empty list; use none"),
        ("none,suffix", "names none and something else"),
        (["none", Own()], "names none and something else"),
        (["none", Path("none")], "names none and something else"),
        (7, "draft is 7, which has no name; choose"),
        (["suffix", None], "draft is None, which has no name; choose"),
        (Own(without="propose"), "has no propose; .* begin, propose and observe"),
        (Own(without="observe"), "has no observe"),
        (Raises(), "draft is 'Raises', whose name and traits .*: ZeroDivisionError: its own"),
    ],
)
def test_what_is_no_drafter_is_refused(draft: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        parse_draft(draft)
