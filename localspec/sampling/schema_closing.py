"""What a schema does not speak of is not written: unnamed members, and integers without end.

JSON schema allows both, but a model that may write one more member or digit does not always end.
llama.cpp, too, reads `properties` as all the members of an object. Values still satisfy the schema.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from localspec.sampling.schema_check import References, all_within, list_in, required_in, types_in

# llguidance reads bounds as floats: the largest one that is a 64-bit integer.
LARGEST = 2**63 - 1024
_MEMBERS = {"properties", "patternProperties", "additionalProperties"}

# A schema in a document that is changed in place.
_Open = dict[str, Any]


def closed(root: _Open) -> _Open:
    """The schema, which is changed in place: its objects closed, its integers bounded.

    An object that the schema allows other members, with `additionalProperties`, stays open; so does
    one whose members are those of several schemas (`allOf`, or others beside `properties`).
    """
    schemas = all_within(root)
    joined = _joined(root, schemas)
    for each in schemas:
        if id(each) not in joined:
            _close(each)
        _bound(each)
    return root


def _close(schema: _Open) -> None:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or schema.keys() & _MEMBERS != {"properties"}:
        return
    named = {**properties, **{name: True for name in required_in(schema) if name not in properties}}
    least = schema.get("minProperties", 0)
    if not (isinstance(least, int) and least > len(named)):
        schema |= {"properties": named, "additionalProperties": False}


def _bound(schema: _Open) -> None:
    kinds = types_in(schema)
    if "integer" in kinds and "number" not in kinds:
        if not schema.keys() & {"minimum", "exclusiveMinimum"}:
            schema["minimum"] = -LARGEST
        if not schema.keys() & {"maximum", "exclusiveMaximum"}:
            schema["maximum"] = LARGEST


def _joined(root: _Open, schemas: Iterable[_Open]) -> set[int]:
    """The ids of schemas whose objects have members of other schemas, too."""
    references = References(root)
    found = []
    for each in schemas:
        groups = [
            *([part] for part in list_in(each, "allOf")),
            *(list_in(each, key) for key in ("anyOf", "oneOf")),
            [references.resolve(each["$ref"])] if "$ref" in each else [],
        ]
        parts = list(filter(None, groups))
        has_own = bool(each.keys() & _MEMBERS)
        if len(parts) + has_own > 1:
            known = each.get("properties")
            named = [_names_others(part, known, references) for part in parts]
            if sum(named) + has_own > 1:
                found.append(each)
    return {*map(id, _in_place(found, references))}


def _names_others(schemas: list[Any], known: Any, references: References) -> bool:
    """Whether one of these speaks of members, other than by requiring some that are known."""
    names = set(known) if isinstance(known, dict) else set()
    return any(
        bool(each.keys() & _MEMBERS) or not {*required_in(each)} <= names
        for each in _in_place(schemas, references)
    )


def _in_place(schemas: Iterable[Any], references: References) -> Iterator[_Open]:
    """These schemas, and all that the same value has to satisfy, or may."""
    rest, seen = [*schemas], set[int]()
    for each in rest:  # which grows
        if isinstance(each, dict) and id(each) not in seen:
            seen.add(id(each))
            yield each
            rest += [part for key in ("allOf", "anyOf", "oneOf") for part in list_in(each, key)]
            rest += [references.resolve(each["$ref"])] if "$ref" in each else []
