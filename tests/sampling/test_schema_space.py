"""Whitespace in the values of a schema: room for the indent of the deepest one, and for no more."""

import json
import re
from typing import Any

import jsonschema
import pytest

from localspec.sampling.json_schema import compile_schema
from localspec.sampling.schema_space import BLANKS_PER_LEVEL, MOST_LEVELS, space_within

NULL, END = {"type": "null"}, {"additionalProperties": False}
LIST = {"type": "array", "items": NULL}
LISTS = {"type": "array", "items": LIST}
OBJECT = {"type": "object", **END}
REFERENCE = {"$ref": "#/$defs/x"}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"

SCHEMAS: list[dict[str, Any]] = [
    {},
    {"type": ["null", "string"]},
    {"enum": [1, None]},
    {"const": None},
    LIST,
    LISTS,
    {"type": "array"},
    {"type": "array", "items": False},
    {"type": ["array", "null"], "items": LISTS},
    {"type": "array", "items": NULL, "properties": {"a": LISTS}},
    {"type": "array", "prefixItems": [NULL, LIST], "items": False},
    {"type": "array", "prefixItems": [NULL], "items": LISTS},
    {"$schema": DRAFT_7, "type": "array", "items": [NULL, LIST], "additionalItems": False},
    {"type": "object"},
    OBJECT,
    {**OBJECT, "properties": {"a": NULL}},
    {**OBJECT, "properties": {"a": NULL, "b": LISTS}},
    {**OBJECT, "patternProperties": {"^a": LIST}},
    {**OBJECT, "items": LISTS},
    {"type": "object", "additionalProperties": NULL},
    {"type": "object", "properties": {"b": NULL}, "additionalProperties": LIST},
    {"allOf": [LISTS, {}]},
    {"type": "array", "allOf": [LIST]},
    {"anyOf": [NULL, LISTS, LIST]},
    {"oneOf": [LISTS, OBJECT, NULL]},
    {**REFERENCE, "$defs": {"x": LISTS}},
    {"type": "array", "items": {"allOf": [REFERENCE]}, "$defs": {"x": LIST}},
    {"type": "array", "items": {"$ref": "#"}},
    {"anyOf": [NULL, {**OBJECT, "properties": {"a": {"$ref": "#"}}}]},
]
# Those of which not everything is looked at: there may be more room than their values need.
LOOSE: list[dict[str, Any]] = [
    {"const": [[None]]},
    {"enum": [1, {"a": [None]}]},
    {"type": "array", "items": LISTS, "maxItems": 0},
]


def nested() -> dict[str, int]:
    """JSON values, and how deeply their arrays and objects lie in each other."""
    found, last = {"null": 0, '"a"': 0, "1": 0}, ["null"]
    for depth in range(1, 4):
        shapes = ("[%s]", "[null, %s]", '{"a": %s}', '{"b": %s}')
        last = [shape % inner for shape in shapes for inner in last]
        found |= dict.fromkeys(last, depth) | {"[]": 1, "{}": 1}
    for depth in range(4, MOST_LEVELS + 3):
        found |= {"[" * depth + "]" * depth: depth, '{"a": ' * depth + "null" + "}" * depth: depth}
    return found


NESTED = [(json.loads(text), depth) for text, depth in nested().items()]


@pytest.mark.parametrize("schema", [*SCHEMAS, *LOOSE], ids=range(len(SCHEMAS) + len(LOOSE)))
def test_the_deepest_value_has_its_indent(schema: dict[str, Any]) -> None:
    made = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    valid = made(schema).is_valid
    deepest = min(MOST_LEVELS, max(depth for value, depth in NESTED if valid(value)))
    space = re.compile(space_within(schema))
    room = max(tabs for tabs in range(20) if space.fullmatch("\n" + "\t" * tabs))
    assert room == deepest or (schema in LOOSE and deepest < room <= MOST_LEVELS)
    blanks = [space.fullmatch("\n" + " " * (BLANKS_PER_LEVEL * room + more)) for more in (0, 1)]
    assert blanks[0] and not blanks[1]
    compile_schema(json.dumps(schema))


def test_a_schema_that_names_itself_in_place_says_nothing() -> None:
    assert space_within({"anyOf": [NULL, {"$ref": "#"}]}) == space_within({"$ref": "#"})
    assert space_within({"$ref": "#"}) == space_within({})
