"""Whitespace between the parts of a JSON value: room for an indent, and for no more.

Small models repeat whitespace wherever they may, and llguidance takes one pattern for all places.
So it is a blank, or a newline and the indent of the deepest part that the schema allows.
"""

from collections.abc import Iterator
from typing import Any

from localspec.sampling.schema_check import References, Schema, list_in, types_in

MOST_LEVELS = 5
BLANKS_PER_LEVEL = 4


def space_within(schema: Schema) -> str:
    """A regular expression of the whitespace in the values of a schema."""
    levels = _Nesting(schema).levels(schema, MOST_LEVELS)
    return rf" |\n( {{0,{BLANKS_PER_LEVEL * levels}}}|\t{{0,{levels}}})"


class _Nesting:
    """How deeply the arrays and objects in the values of a document's schemas lie in each other."""

    def __init__(self, root: Schema) -> None:
        self._references = References(root)
        self._known: dict[tuple[int, int], int] = {}

    def levels(self, schema: Any, most: int) -> int:
        """The levels of the values of a schema, `most` where it does not say."""
        if not isinstance(schema, dict) or most == 0:
            return 0 if schema is False else most
        key = (id(schema), most)
        if key not in self._known:
            self._known[key] = most  # for a schema that contains itself
            self._known[key] = min(self._bounds(schema, most), default=most)
        return self._known[key]

    def _bounds(self, schema: Schema, most: int) -> Iterator[int]:
        """Bounds of the levels, one for each keyword that says something about them."""
        given = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(given, list) and not any(isinstance(each, dict | list) for each in given):
            yield 0
        if isinstance(schema.get("$ref"), str):
            yield self.levels(self._references.resolve(schema["$ref"]), most)
        for part in list_in(schema, "allOf"):
            yield self.levels(part, most)
        for key in ("anyOf", "oneOf"):
            if choices := list_in(schema, key):
                yield max(self.levels(choice, most) for choice in choices)
        if "type" in schema:
            kinds = types_in(schema)
            within = [*_members(schema, "object" in kinds), *_items(schema, "array" in kinds)]
            yield max((1 + self.levels(each, most - 1) for each in within), default=0)


def _members(schema: Schema, are_allowed: bool) -> Iterator[Any]:
    if are_allowed:
        for key in ("properties", "patternProperties"):
            if isinstance(named := schema.get(key), dict):
                yield from named.values()
        yield schema.get("additionalProperties", True)


def _items(schema: Schema, are_allowed: bool) -> Iterator[Any]:
    if are_allowed:
        yield from list_in(schema, "prefixItems")
        items = schema.get("items", True)
        yield from items if isinstance(items, list) else [items]
