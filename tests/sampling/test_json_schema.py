"""Schemas: what is written satisfies them; what cannot be kept to is refused by name."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema

BYTES = LLTokenizer("byte")
NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["v"],
}
NEEDS_ITSELF = {**NODE, "required": ["v", "next"]}

KEPT: list[tuple[dict[str, Any], list[Any], list[Any]]] = [
    ({}, [1, "a", [None], {"a": {}}], []),
    ({"type": "integer", "minimum": 0, "maximum": 120}, [0, 99, 120], [-1, 121, "1"]),
    ({"enum": ["a", 'b"\\', "é"]}, ["a", 'b"\\', "é"], ["b"]),
    ({"type": "array", "items": {"const": 1}, "maxItems": 2}, [[], [1, 1]], [[1, 1, 1], [2]]),
    ({"type": "array", "items": {"$ref": "#"}}, [[], [[], [[]]]], [[1]]),
    ({"$ref": "#/$defs/node", "$defs": {"node": NODE}}, [{"v": 1, "next": {"v": 2}}], [{}]),
    (
        {"type": "object", "properties": {"a": True}, "additionalProperties": False},
        [{}, {"a": 1}],
        [{"b": 1}],
    ),
    ({"anyOf": [{"type": "null"}, NEEDS_ITSELF], "$defs": {"node": NODE}}, [None], [1]),
    ({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-13-01"]),
]


@pytest.mark.parametrize("schema, good, bad", KEPT, ids=range(len(KEPT)))
def test_what_may_be_written(schema: Any, good: list[Any], bad: list[Any]) -> None:
    def takes(value: Any) -> bool:
        matcher = LLMatcher(BYTES, compile_schema(json.dumps(schema)), log_level=0)
        text = json.dumps(value, ensure_ascii=False).encode()
        return matcher.consume_tokens(list(text)) and matcher.is_accepting()

    assert all(takes(value) for value in good)
    assert not any(takes(value) for value in bad)


REFUSED = [
    ("{", "line 1, column 2: Expecting property name"),
    ("[]", r"it is \[\], and must be an object"),
    ("false", "it is false, and must be an object"),
    ('{"not": {}}', 'Unimplemented keys: \\["not"\\]'),
    ('{"type": "array", "uniqueItems": true}', 'Unimplemented keys: \\["uniqueItems"\\]'),
    ('{"type": "string", "format": "color"}', "Unknown format: color"),
    ('{"type": "string", "pattern": "("}', "unclosed group"),
    ('{"$ref": "#/x"}', "Pointer '/x' does not exist"),
    ('{"type": "integer", "minimum": 5, "maximum": 3}', "Unsatisfiable"),
    ('{"enum": []}', "Unsatisfiable"),
]


@pytest.mark.parametrize("text, message", REFUSED)
def test_what_cannot_be_kept_to_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^schema[:,].*{message}") as error:
        compile_schema(text)
    assert "\n" not in str(error.value)


ENDLESS = [
    {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
    {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
    {"anyOf": [{"$ref": "#/$defs/node"}], "$defs": {"node": NEEDS_ITSELF}},
]


@pytest.mark.parametrize("schema", ENDLESS, ids=range(len(ENDLESS)))
def test_what_only_an_endless_value_would_satisfy_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidValueError, match="without end"):
        compile_schema(json.dumps(schema))
