"""What a schema does not speak of is not written: unnamed members, and integers without end.

JSON schema allows both, but a model that may write one more member or digit does not always end.
llama.cpp, too, reads `properties` as all the members of an object, those of `allOf` together.
Values still satisfy the schema.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from localspec.sampling.schema_check import References, all_within, list_in, required_in, types_in

# llguidance reads bounds as floats: the largest one that is a 64-bit integer.
LARGEST = 2**63 - 1024
_OPEN = {"patternProperties", "additionalProperties"}
_MEMBERS = {"properties", *_OPEN}
_CHOICES = ("anyOf", "oneOf")

# A schema in a document that is changed in place.
_Open = dict[str, Any]


def closed(root: _Open) -> _Open:
    """The schema, which is changed in place: its objects closed, its integers bounded.

    An object whose members several schemas name (`allOf`, a reference, or choices beside others) is
    closed where they are joined, and has the members of all of them. One that a schema allows other
    members, with `additionalProperties`, stays open.
    """
    objects = _Objects(root)
    for each, names in [*objects.closings()]:
        _close(each, names)
    for each in objects.schemas:
        _bound(each)
    return root


def _close(schema: _Open, names: Iterable[str]) -> None:
    own = schema.get("properties", {})
    if not isinstance(own, dict):
        return
    named = {**dict.fromkeys(names, True), **own}
    least = schema.get("minProperties", 0)
    if not (isinstance(least, int) and least > len(named)):
        schema |= {"properties": named, "additionalProperties": False}


def _bound(schema: _Open) -> None:
    kinds = types_in(schema)
    if "integer" in kinds and "number" not in kinds:
        schema.setdefault("minimum", -LARGEST)
        schema.setdefault("maximum", LARGEST)


class _Objects:
    """Which schemas of a document describe the members of the same objects."""

    def __init__(self, root: _Open) -> None:
        self.schemas = all_within(root)
        self._references = References(root)
        parts = (self._in_place([each], _CHOICES) for each in self.schemas if self._joins(each))
        # They stay open themselves: their objects have members of others, too.
        self._parts = {id(part) for within in parts for part in [*within][1:]}

    def closings(self) -> Iterator[tuple[_Open, list[str]]]:
        """The schemas to close, and the names of the members that their objects may have."""
        for each in self.schemas:
            if id(each) not in self._parts:
                together = self._in_place([each])
                is_joined = any(id(part) in self._parts for part in together)
                if "properties" in each or is_joined:
                    yield from self._closings(each, [])

    def _closings(self, schema: _Open, outer: list[str]) -> Iterator[tuple[_Open, list[str]]]:
        """Those of a schema and its choices. outer: names that are known of the same objects."""
        together = [*self._in_place([schema])]
        if any(each.keys() & _OPEN for each in together):
            return
        names = [*outer, *(name for each in together for name in _names(each))]
        naming = [
            (each, choices)
            for each in together
            for choices in _choices(each)
            if self._names_others(choices, names)
        ]
        if not naming:
            yield schema, names
        elif len(naming) == 1 and naming[0][0] is schema:
            for choice in naming[0][1]:
                if isinstance(choice, dict):
                    yield from self._closings(choice, names)

    def _joins(self, schema: _Open) -> bool:
        """Whether several schemas describe the members of its objects."""
        together = [*list_in(schema, "allOf")]
        together += [self._resolved(schema)] if "$ref" in schema else []
        parts = [*([part] for part in together), *_choices(schema)]
        has_own = bool(schema.keys() & _MEMBERS)
        known = _names(schema)
        return sum(self._names_others(part, known) for part in parts) + has_own > 1

    def _names_others(self, schemas: list[Any], known: Iterable[str]) -> bool:
        """Whether one of these speaks of members, other than by requiring some that are known."""
        names = {*known}
        return any(
            bool(each.keys() & _MEMBERS) or not {*required_in(each)} <= names
            for each in self._in_place(schemas, _CHOICES)
        )

    def _in_place(self, schemas: Iterable[Any], choices: Iterable[str] = ()) -> Iterator[_Open]:
        """These schemas, and all that the same value has to satisfy; of choices: or may."""
        rest, seen = [*schemas], set[int]()
        for each in rest:  # which grows
            if isinstance(each, dict) and id(each) not in seen:
                seen.add(id(each))
                yield each
                rest += [part for key in ("allOf", *choices) for part in list_in(each, key)]
                rest += [self._resolved(each)] if "$ref" in each else []

    def _resolved(self, schema: _Open) -> Any:
        return self._references.resolve(schema["$ref"])


def _choices(schema: _Open) -> list[list[Any]]:
    return [choices for key in _CHOICES if (choices := list_in(schema, key))]


def _names(schema: _Open) -> list[str]:
    """The names of members that a schema itself speaks of."""
    properties = schema.get("properties")
    return [*(properties if isinstance(properties, dict) else ()), *required_in(schema)]
