"""Schemas without what no text can be held to: it is left out by name, and nothing else is."""

import json
from copy import deepcopy
from typing import Any

import jsonschema
import pytest

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema
from localspec.sampling.schema_enforcing import with_listed_names, without_unenforced

COLOR, KEY = {"format": "color"}, {"enum": ["x", "y"]}
# A schema, what is left out of it, and values of all kinds that such schemas speak of.
LEFT_OUT: list[tuple[dict[str, Any], list[str]]] = [
    ({"type": "string"}, []),
    ({"type": "string", "not": {"const": "a"}}, ["not"]),
    ({"type": "array", "uniqueItems": False}, []),
    (
        {"type": "array", "uniqueItems": True, "items": {"contains": {}}},
        ["contains", "uniqueItems"],
    ),
    ({"properties": {"not": {"if": {}}, "x": COLOR}}, ["format color", "if"]),
    ({"const": {"not": 1, **COLOR}}, []),
    ({"type": "string", **COLOR}, ["format color"]),
    ({"type": ["integer", "string"], **COLOR}, ["format color"]),
    (COLOR, ["format color"]),
    ({"type": "integer", "format": "int32"}, []),
    ({"format": "date"}, []),
    ({"format": "x" * 99}, ["format " + "x" * 40]),
    ({"type": "string", "pattern": "^#f"}, []),
    ({"type": "string", "pattern": "^#(?!a)"}, ["pattern ^#(?!a)"]),
    ({"properties": {"x": {"pattern": r"\bf", "format": "date"}}}, [r"pattern \bf"]),
    ({"properties": {"pattern": {"type": "string"}}}, []),
    ({"type": "object", "propertyNames": KEY}, []),
    ({"type": "object", "propertyNames": {"pattern": "^x"}}, ["propertyNames"]),
    ({"type": "object", "propertyNames": KEY, "not": {"required": ["x"]}}, ["not"]),
]
VALUES: list[Any] = [
    *(None, True, 1, 2.5, "a", "#fff", "2024-02-29", [], [1, 1], [[1]], {}, {"x": 1}, {"z": 1}),
    *({"x": 1, "y": "#fff"}, {"x": "#fff"}, {"not": 1, "x": "a"}, {"not": 1, "format": "color"}),
]


@pytest.mark.parametrize(("schema", "names"), LEFT_OUT, ids=range(len(LEFT_OUT)))
def test_what_is_left_out_is_named(schema: dict[str, Any], names: list[str]) -> None:
    before = deepcopy(schema)
    held, left_out = without_unenforced(schema)
    assert schema == before
    assert left_out == names
    compile_schema(json.dumps(held))
    asked, is_held = (jsonschema.Draft202012Validator(each).is_valid for each in (schema, held))
    for value in VALUES:
        assert is_held(value) or not asked(value), value
        assert names or is_held(value) == asked(value), value


LISTED: list[tuple[dict[str, Any], bool]] = [
    ({"propertyNames": KEY}, True),
    ({"propertyNames": {"const": "x"}, "minProperties": 1}, True),
    ({"propertyNames": {"$ref": "#/$defs/k"}, "$defs": {"k": KEY}}, True),
    ({"propertyNames": {"enum": [f"x{i}" for i in range(256)]}}, True),
    ({"propertyNames": {"enum": [f"x{i}" for i in range(257)]}}, False),
    ({"propertyNames": {"enum": ["x", 5]}}, False),
    ({"propertyNames": {**KEY, "maxLength": 1}}, False),
    ({"propertyNames": {"$ref": "#/$defs/k", "maxLength": 1}, "$defs": {"k": KEY}}, False),
    ({"propertyNames": KEY, "properties": {"z": True}}, False),
    ({"propertyNames": KEY, "patternProperties": {"^z": True}}, False),
    ({"propertyNames": {}}, False),
    ({"propertyNames": True}, False),
]


@pytest.mark.parametrize(("schema", "are_listed"), LISTED, ids=range(len(LISTED)))
def test_names_are_properties_where_all_are_listed(schema: Any, are_listed: bool) -> None:
    before = deepcopy(schema)
    spelled = with_listed_names(schema)
    assert schema == before
    if not are_listed:
        assert spelled == schema
        with pytest.raises(InvalidValueError, match="schema: propertyNames is"):
            compile_schema(json.dumps(schema))
        return
    compile_schema(json.dumps(schema))
    values = [{}, {"x": 1}, {"y": 1}, {"z": 1}, {"x": 1, "y": 2}, {"x0": 1}, {"x256": 1}, 5]
    for value in values:
        asked, found = (
            jsonschema.Draft202012Validator(each).is_valid(value) for each in (schema, spelled)
        )
        assert asked == found, value
