"""Drafter specs: the names in a `draft` option."""

from pathlib import Path

import pytest

from localspec.drafters.spec import join_names, parse_draft, split_kind, split_names
from localspec.errors import InvalidValueError


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
