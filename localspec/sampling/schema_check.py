"""What llguidance would misread in a JSON schema: refused by name, or written as it understands it.

It computes with 64-bit floats and integers and recurses through references; values outside of
that would silently become others, or end the process.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, cast

from localspec.errors import InvalidValueError
from localspec.sampling.schema_formats import FORMATS
from localspec.sampling.schema_patterns import understood

Schema = Mapping[str, Any]

MAX_DEPTH = 200
MAX_MULTIPLE = 10_000  # a multiple takes as many states of the automaton

_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
# They only narrow a schema, and llguidance does not know them.
NOT_ENFORCED = {
    "uniqueItems", "contains", "minContains", "maxContains", "propertyNames", "dependencies",
    "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties",
    "not", "if", "then", "else",
}  # fmt: skip
_ASSERTIONS_OF_DRAFT_3 = ("disallow", "divisibleBy", "extends")
# Their values are maps from names to schemas.
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
# Their values are JSON of any kind, not schemas. "x-guidance" would have llguidance write no JSON.
_ANNOTATIONS = ("default", "examples", "example", "x-guidance")
_VALUES = ("const", "enum", *_ANNOTATIONS)

# Control characters that JSON escapes by number only, and how a pattern may ask for them.
_CONTROL = re.compile(
    r"[\x00-\x07\x0b\x0e-\x1f\x7f]|\\(x[01]|x7f|u00[01]|u007f|[cv0-9])"
    r"|\\p\{((gc|General_Category)=)?(C|Cc|Control|cntrl|Other)\}",
    re.I,
)


def checked(schema: Schema) -> dict[str, Any]:
    """The schema as llguidance is to get it. schema: as parsed, its fractions as Decimal.

    Raises InvalidValueError, which names the keyword and its value.
    """
    References(schema).require_shallow()
    for each in all_within(schema):
        _require_understood(each)
        for key in (*_BOUNDS, "multipleOf"):
            _require_exact(key, each.get(key), bound=True)
        for key in ("const", "enum"):
            for value in _scalars_within([each.get(key)]):
                _require_exact(key, value)
        _require_countable(each)
        _require_distinct_names(each)
    whole: dict[str, Any] = _rewritten(schema)
    return whole


def unenforced(schema: Schema) -> list[str]:
    """The keywords of a schema itself that nothing is held to, but for those that ask nothing."""
    return [key for key in schema if key in NOT_ENFORCED and not _asks_nothing(key, schema[key])]


def _asks_nothing(key: str, value: Any) -> bool:
    return key == "uniqueItems" and value is False


def spells_texts_one_way(schema: Schema, understood: Schema) -> bool:
    r"""Whether \uXXXX must stay out of all texts, as in names it would pass for another name.

    So it is where an object has properties of a known name or pattern, and any others besides.
    understood: the schema as llguidance gets it, with other patterns for the same texts.
    Raises InvalidValueError if the schema has a text that cannot be written without.
    """
    needed = any(
        ("properties" in each or "patternProperties" in each)
        and each.get("additionalProperties") is not False
        for each in all_within(understood)
    )
    if needed:
        for text in (text for each in all_within(schema) for text in _literals(each)):
            if _CONTROL.search(text):
                raise InvalidValueError(
                    f"schema: {text!r:.60} has a control character, which is supported only where "
                    'all objects with "properties" have "additionalProperties": false'
                )
    return needed


class References:
    """The schemas that the references in a document name."""

    def __init__(self, root: Schema) -> None:
        self._root = root

    def resolve(self, reference: object) -> Any:
        """The schema that a JSON pointer names; True for all others, by $id or $anchor."""
        node: Any = self._root if f"{reference}/".startswith("#/") else True
        for step in str(reference).removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            node = node.get(key, True) if isinstance(node, dict) else True
        return node

    def names(self) -> set[str]:
        """All references in the document."""
        found = (each.get("$ref") for each in all_within(self._root))
        return {each for each in found if isinstance(each, str)}

    def require_shallow(self) -> None:
        """Raise InvalidValueError if schemas lie in each other too deeply, by reference or not."""
        self._height(self._root, 0, {})

    def _height(self, schema: Schema, level: int, heights: dict[int, int]) -> int:
        """How many schemas lie in each other, from this one on; `level` of them are around it."""
        if level + heights.get(id(schema), 1) > MAX_DEPTH:
            raise InvalidValueError(
                f"schema: it is nested too deeply; at most {MAX_DEPTH} schemas may lie in each "
                "other, those behind a $ref included"
            )
        if id(schema) not in heights:
            heights[id(schema)] = 0  # for a schema that contains itself
            named = self.resolve(schema["$ref"]) if "$ref" in schema else None
            parts = [*_parts(schema), *([named] if isinstance(named, dict) else [])]
            heights[id(schema)] = 1 + max(
                (self._height(part, level + 1, heights) for part in parts), default=0
            )
        return heights[id(schema)]


def _parts(schema: Schema) -> Iterator[dict[str, Any]]:
    """The schemas directly within one, those of definitions included."""
    for key, value in schema.items():
        within: Iterable[Any] = [value]
        if key in _MAPS and isinstance(value, dict):
            within = value.values()
        elif key in _VALUES:
            continue
        elif isinstance(value, list):
            within = value
        yield from (each for each in within if isinstance(each, dict))


def list_in(schema: Schema, key: str) -> list[Any]:
    """A list in a schema; empty if what is there is something else, in a part nobody uses."""
    value = schema.get(key)
    return list(value) if isinstance(value, list) else []


def types_in(schema: Schema) -> list[Any]:
    """The types that a schema names."""
    given = schema.get("type", [])
    return given if isinstance(given, list) else [given]


def required_in(schema: Schema) -> list[str]:
    """The names of the members that a schema requires."""
    return [name for name in list_in(schema, "required") if isinstance(name, str)]


def all_within(schema: Schema) -> list[dict[str, Any]]:
    """A schema and those within it, those of definitions included."""
    found = [cast("dict[str, Any]", schema)]
    for each in found:  # which grows
        found.extend(_parts(each))
    return found


def _scalars_within(values: list[Any]) -> Iterator[Any]:
    """All values in these that are neither arrays nor objects, and the names in objects."""
    rest = list(values)
    for value in rest:  # which grows
        if isinstance(value, dict):
            rest.extend((*value, *value.values()))
        elif isinstance(value, list):
            rest.extend(value)
        else:
            yield value


def _literals(schema: Schema) -> Iterator[str]:
    """The texts and patterns that a schema asks for, those of schemas within it left out."""
    maps = (schema.get(key) for key in ("properties", "patternProperties"))
    names = [list(each) for each in maps if isinstance(each, dict)]
    given = [schema.get(key) for key in ("const", "enum", "required", "pattern")]
    yield from (each for each in _scalars_within([*names, *given]) if isinstance(each, str))


def _require_understood(schema: Schema) -> None:
    for key in _ASSERTIONS_OF_DRAFT_3:
        if key in schema:
            raise InvalidValueError(
                f"schema: {key} is of draft 3 and not supported; drafts 4 to 2020-12 are"
            )
    for key in unenforced(schema):
        raise InvalidValueError(
            f"schema: {key} is {_shown(schema[key])}, and no text can be held to it here; leave it "
            "out, and check it afterwards"
        )


def _shown(value: Any) -> str:
    return f"{json.dumps(value, default=str):.60}"


def _require_exact(key: str, value: Any, *, bound: bool = False) -> None:
    """Raise InvalidValueError for a number that llguidance would round."""
    if not isinstance(value, int | Decimal):
        return
    digits, exponent = _decimal(value)
    if digits > 2**53 or abs(exponent) > 22:
        raise InvalidValueError(
            f"schema: {key} is {value!s:.60}; numbers are exact up to 15 digits and 1e22, and no "
            "others are supported"
        )
    if bound and not -(2**63) < value < 2**63:
        raise InvalidValueError(
            f"schema: {key} is {value!s:.60}; bounds must lie within those of 64-bit integers"
        )


def _decimal(value: "int | Decimal") -> tuple[int, int]:
    """The digits of a number as a whole number, and the power of ten that they count."""
    _, digits, exponent = Decimal(value).as_tuple()
    text = "".join(map(str, digits))
    whole = text.rstrip("0") or "0"
    # Beyond 20 digits it is too long anyway; thousands Python does not convert.
    return int(whole[:20]), int(exponent) + len(text) - len(whole) if whole != "0" else 0


def _require_countable(schema: Schema) -> None:
    value = schema.get("multipleOf")
    if not isinstance(value, int | Decimal):
        return
    digits, exponent = _decimal(value)
    if value <= 0 or digits * 10 ** max(0, exponent) > MAX_MULTIPLE:
        raise InvalidValueError(
            f"schema: multipleOf is {value!s:.60}; it must be greater than 0, and without its "
            f"decimal point at most {MAX_MULTIPLE}"
        )


def _require_distinct_names(schema: Schema) -> None:
    """Raise InvalidValueError if names that nobody keeps apart are to be counted."""
    least, required = schema.get("minProperties"), schema.get("required", [])
    if not isinstance(least, int) or not isinstance(required, list):
        return
    names = {name for name in required if isinstance(name, str)}
    if least > len(names) + 1:
        raise InvalidValueError(
            f"schema: minProperties is {least}; it is supported up to one more than the names in "
            f'"required", which are {len(names)}'
        )


def _with_whole_formats(schema: Schema, place: str) -> dict[str, Any]:
    """The schema with patterns beside formats that llguidance knows in part only."""
    new: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _ANNOTATIONS or _asks_nothing(key, value):
            continue
        within = f"{place}/{key}"
        if key in _VALUES:
            new[key] = value
        elif key in _MAPS and isinstance(value, dict):
            spelt = partial(understood, place=within) if key == "patternProperties" else str
            new[key] = {
                spelt(name): _rewritten(each, f"{within}/{name}") for name, each in value.items()
            }
        elif key == "pattern" and isinstance(value, str):
            new[key] = understood(value, place)
        else:
            new[key] = _rewritten(value, within)
    known = FORMATS.get(new["format"]) if isinstance(new.get("format"), str) else None
    if known is not None:
        both = new.get("allOf", [])
        new["allOf"] = [*both, known] if isinstance(both, list) else both
    return new


def _rewritten(value: Any, place: str = "") -> Any:
    """A value of a schema as llguidance is to get it. place: where it stands, for errors."""
    if isinstance(value, dict):
        return _with_whole_formats(value, place)
    if isinstance(value, list):
        return [_rewritten(each, f"{place}/{at}") for at, each in enumerate(value)]
    return value
