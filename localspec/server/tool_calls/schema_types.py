"""Types: which JSON types a schema allows, and a text as JSON of such a type.

Families that write arguments between tags write strings bare: `5` may be the string or the number.
The tool's schema decides.
"""

import json
from collections.abc import Mapping
from typing import Any, Never

from localspec.sampling.schema_check import list_in

STRING = frozenset({"string"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})
_TYPE_NAMES = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    str: "string",
    list: "array",
    dict: "object",
}
_DEEPEST = 16


def resolved(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """The schema that a local `$ref` names; the schema itself if it has none.

    A reference that cannot be followed is the schema of anything.
    """
    if not isinstance(schema, Mapping) or "$ref" not in schema:
        return schema
    reference = schema["$ref"]
    if not isinstance(reference, str) or not reference.startswith("#") or depth > _DEEPEST:
        return True
    node: Any = root
    for step in reference[1:].split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        node = node.get(key, True) if isinstance(node, Mapping) else True
    return resolved(node, root, depth + 1)


def types_of(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types of the values of a schema; a string where it does not say.

    root: the schema that local references are looked up in.
    """
    schema = resolved(schema, root)
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return STRING
    if "type" in schema:
        given = schema["type"]
        types = frozenset(filter(_is_type, given if isinstance(given, list) else [given]))
    elif "enum" in schema or "const" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        types = frozenset(map(type_of, values if isinstance(values, list) else []))
    else:
        types = _types_of_parts(schema, root, depth + 1)
    return types or STRING


def _types_of_parts(
    schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> frozenset[str]:
    parts = [part for key in ("anyOf", "oneOf", "allOf") for part in list_in(schema, key)]
    if parts:
        return frozenset().union(*(types_of(part, root, depth) for part in parts))
    if "properties" in schema:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in schema else STRING


def type_of(value: Any) -> str:
    """The JSON type of a value; of a number without fraction it is "integer"."""
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return _TYPE_NAMES.get(type(value), "object")


def as_json(text: str, types: frozenset[str]) -> str:
    """A bare text as JSON of one of these types; a string if it is none of the others.

    Python's True, False and None count as JSON's, as models write them.
    """
    written = {"True": "true", "False": "false", "None": "null"}.get(text.strip(), text)
    try:
        kind = type_of(json.loads(written, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return as_string(text)
    if kind == "string" or not types & {kind, "number" if kind == "integer" else kind}:
        return as_string(text)
    return written.strip()


def as_string(text: str) -> str:
    """A text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def _refuse(constant: str) -> Never:
    raise ValueError(f"{constant} is not JSON")


def _is_type(name: Any) -> bool:
    return isinstance(name, str) and name in _TYPES
