"""JsonScanner against the json module: what is JSON, where it ends, how a cut one is completed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.server.tool_calls.json_scanner import JsonScanner

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=4)
written = st.builds(json.dumps, objects, ensure_ascii=st.booleans(), indent=st.none() | st.just(1))


def scan(text: str) -> tuple[JsonScanner, str, int]:
    scanner = JsonScanner()
    taken, end = scanner.take(text, 0)
    return scanner, taken, end


@given(text=written, after=st.sampled_from(["", "}", " x", ',"', "1"]))
def test_takes_an_object_up_to_its_end(text: str, after: str) -> None:
    scanner, taken, end = scan(text + after)
    assert (scanner.done, taken, end) == (True, text, len(text))


@given(text=written, data=st.data())
def test_completes_an_object_that_is_cut_off(text: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(text)))
    scanner, taken, _ = scan(text[:cut])
    assert taken == text[:cut] and not scanner.broken
    completed, whole = pairs(taken + scanner.completion()), pairs(text)
    assert completed[:-1] == whole[: max(len(completed) - 1, 0)]


def pairs(text: str) -> list[tuple[str, Any]]:
    """The members of an object, in order; a key that was cut off may equal an earlier one."""
    return list(json.loads(text, object_pairs_hook=list))


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("{'a'", "{"),
        ('{"a" 1', '{"a" '),
        ('{"a": tru}', '{"a": tru'),
        ('{"a": 01}', '{"a": 01'),
        ('{"a": 1,}', '{"a": 1,'),
        ('{"a": [1}', '{"a": [1'),
        ('{"a": "\\x"}', '{"a": "\\'),
        ('{"a": "\\u12g"}', '{"a": "\\u12'),
        ("]", ""),
        ("{]", "{"),
    ],
)
def test_takes_up_to_an_error(text: str, taken: str) -> None:
    scanner, got, end = scan(text)
    assert (scanner.broken, got, end) == (True, taken, len(taken))


@pytest.mark.parametrize("text", ["12", "-1.5e3", "true", "null"])
def test_a_number_or_a_word_ends_before_what_follows(text: str) -> None:
    scanner, taken, end = scan(text + ", 1")
    assert (scanner.done, taken, end) == (True, text, len(text))


def test_control_characters_in_strings_are_escaped() -> None:
    _, taken, _ = scan('{"a\n": "\t\x01"}\n')
    assert json.loads(taken) == {"a\n": "\t\x01"}
