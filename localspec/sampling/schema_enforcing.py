"""What of a JSON schema a text can be held to: keywords spelled in others, or left out by name."""

import json
from copy import deepcopy
from typing import Any

from localspec.errors import InvalidValueError
from localspec.sampling.schema_check import (
    NOT_ENFORCED,
    References,
    Schema,
    all_within,
    types_in,
    unenforced,
)
from localspec.sampling.schema_formats import KNOWN
from localspec.sampling.schema_patterns import understood

# Keywords beside a list of names that do not narrow it.
_BESIDE_NAMES = {"enum", "const", "type", "title", "description", "default"}
_MOST_NAMES = 256


def without_unenforced(schema: Schema) -> tuple[Schema, list[str]]:
    """A schema without the keywords that no text can be held to here, and their names.

    What satisfies the schema satisfies the one without them.
    """
    schema = with_listed_names(schema)
    schemas = all_within(schema)
    left_out = {key for each in schemas for key in unenforced(each)}
    formats = {each["format"] for each in schemas if _is_unknown_format(each)}
    patterns = {each["pattern"] for each in schemas if _has_unreadable_pattern(each)}
    if left_out or formats or patterns:
        schema = json.loads(json.dumps(schema))
        for each in all_within(schema):
            for key in NOT_ENFORCED & each.keys():
                del each[key]
            if _is_unknown_format(each):
                del each["format"]
            if _has_unreadable_pattern(each):
                del each["pattern"]
    named = [f"format {name:.40}" for name in formats] + [
        f"pattern {each:.60}" for each in patterns
    ]
    return schema, sorted([*left_out, *named])


def _is_unknown_format(schema: Schema) -> bool:
    name, kinds = schema.get("format"), types_in(schema)
    return isinstance(name, str) and name not in KNOWN and (not kinds or "string" in kinds)


def _has_unreadable_pattern(schema: Schema) -> bool:
    """Whether a schema has a pattern that no grammar here can follow, as with look-around."""
    try:
        understood(pattern if isinstance(pattern := schema.get("pattern"), str) else "")
    except InvalidValueError:
        return True
    return False


def with_listed_names(schema: Schema) -> Schema:
    """A schema whose `propertyNames`, where they list all names, are `properties`.

    So pydantic writes a dict whose keys are an enum or literals.
    """
    if not any("propertyNames" in each for each in all_within(schema)):
        return schema
    schema = deepcopy(schema)
    references = References(schema)
    for each in all_within(schema):
        names = _listed(each, references)
        if names is not None:
            value = each.get("additionalProperties", True)
            del each["propertyNames"]
            each |= {"properties": dict.fromkeys(names, value), "additionalProperties": False}
    return schema


def _listed(schema: Schema, references: References) -> list[str] | None:
    """The only names that the members of an object may have, if they are listed."""
    given: Any = schema.get("propertyNames")
    if schema.keys() & {"properties", "patternProperties"}:
        return None
    if isinstance(given, dict) and given.keys() == {"$ref"}:
        given = references.resolve(given["$ref"])
    if not isinstance(given, dict) or not given.keys() <= _BESIDE_NAMES:
        return None
    names = given.get("enum", [given["const"]] if "const" in given else None)
    if not isinstance(names, list) or len(names) > _MOST_NAMES:
        return None
    return names if all(isinstance(name, str) for name in names) else None
