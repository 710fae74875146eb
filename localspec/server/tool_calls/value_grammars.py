"""Grammars of argument values that are not written as JSON: bare ones, Gemma's and Python's."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from localspec.errors import InvalidValueError
from localspec.server.tool_calls.lark_rules import LarkRules, string_regexes
from localspec.server.tool_calls.schema_types import resolved, types_of

Schema = Mapping[str, Any]
_DEEPEST = 16
_DEFINITIONS = ("$defs", "definitions")


class ValueGrammar(ABC):
    """The values that satisfy a schema, in one family's notation.

    root: the schema that local references are looked up in.
    """

    def __init__(self, rules: LarkRules, root: Schema) -> None:
        self.rules = rules
        self._root = root
        self._definitions = {key: root[key] for key in _DEFINITIONS if key in root}
        self._references: dict[str, str] = {}  # the names of their rules

    def value(self, schema: Any, depth: int = 0) -> str:
        """An expression for the values of a schema."""
        if depth > _DEEPEST:
            raise InvalidValueError("schema: it is nested too deeply")
        if isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
            return self._referred(schema)
        if not isinstance(schema, Mapping):
            return self.string({})
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return self._either([self.value(part, depth + 1) for part in schema[key]])
        if "const" in schema or "enum" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            return self._either([self.constant(value) for value in values])
        return self._either(
            [
                self.string(schema) if kind == "string" else self.other(kind, schema, depth)
                for kind in sorted(types_of(schema, self._root))
            ]
        )

    def _referred(self, schema: Schema) -> str:
        """The rule of what a schema refers to, which may contain itself."""
        reference = schema["$ref"]
        if reference not in self._references:
            self._references[reference] = name = self.rules.new_name()
            self.rules.define(name, self.value(resolved(schema, self._root)))
        return self._references[reference]

    @abstractmethod
    def string(self, schema: Schema) -> str:
        """A string that satisfies a schema."""

    @abstractmethod
    def constant(self, value: Any) -> str:
        """This value."""

    @abstractmethod
    def other(self, kind: str, schema: Schema, depth: int) -> str:
        """A value of this type, other than a string, that satisfies a schema."""

    def json(self, kind: str, schema: Schema) -> str:
        """A value of this type as JSON."""
        return self.rules.json({**schema, **self._definitions, "type": kind})

    def _either(self, expressions: Sequence[str]) -> str:
        if not expressions:
            raise InvalidValueError("schema: no value satisfies an empty list of choices")
        distinct = list(dict.fromkeys(expressions))
        return distinct[0] if len(distinct) == 1 else self.rules.rule(" | ".join(distinct))


class BareValues(ValueGrammar):
    """Values between tags: strings bare, others as JSON. newline: stands before the last tag."""

    def __init__(self, rules: LarkRules, root: Schema, newline: str, tag: str) -> None:
        super().__init__(rules, root)
        self._newline = newline
        self._tag = tag

    def string(self, schema: Schema) -> str:
        return self.rules.until(self._tag, string_regexes(schema), before=self._newline)

    def constant(self, value: Any) -> str:
        written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return self.rules.text(written, self._newline, self._tag)

    def other(self, kind: str, schema: Schema, depth: int) -> str:
        return f"{self.json(kind, schema)} {self.rules.text(self._newline, self._tag)}"


class GemmaValues(ValueGrammar):
    """Gemma's values: strings between marks, within objects and lists too, and bare keys."""

    def __init__(self, rules: LarkRules, root: Schema, quote: str) -> None:
        super().__init__(rules, root)
        self._quote = quote

    def string(self, schema: Schema) -> str:
        text = self.rules.until(self._quote, string_regexes(schema))
        return f"{self.rules.text(self._quote)} {text}"

    def constant(self, value: Any) -> str:
        if isinstance(value, str):
            return self.rules.text(self._quote, value, self._quote)
        return self.rules.text(json.dumps(value, ensure_ascii=False))

    def other(self, kind: str, schema: Schema, depth: int) -> str:
        if kind == "object":
            return self.object(schema, depth + 1)
        return self._array(schema, depth) if kind == "array" else self.json(kind, schema)

    def object(self, schema: Schema, depth: int = 0) -> str:
        """An object in braces; keys in the alphabet's order, as the template writes them."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return self.rules.text("{}") if depth == 0 else self._anything("object")
        names = sorted(properties, key=str.lower)
        members = members_of(
            self.rules,
            names,
            frozenset(schema.get("required") or ()),
            lambda name: f"{self.rules.text(name, ':')} {self.value(properties[name], depth + 1)}",
            ",",
        )
        return f"{self.rules.text('{')} {members} {self.rules.text('}')}"

    def _array(self, schema: Schema, depth: int) -> str:
        items = schema.get("items")
        item = self.value(items, depth + 1) if items is not None else self._anything()
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        least_more = max(least - 1, 0)
        more = f"({self.rules.text(',')} {item}){{{least_more},{'' if most is None else most - 1}}}"
        several = f"({item} {more})" if most != 0 else '""'
        return f"{self.rules.text('[')} {several}{'' if least else '?'} {self.rules.text(']')}"

    def _anything(self, kind: str = "value") -> str:
        """Any value, or any object."""
        text, rule, define = self.rules.text, self.rules.rule, self.rules.define
        comma, string = text(","), self.string({})
        key = self.rules.terminal("/[A-Za-z_][A-Za-z0-9_]{0,63}/")
        member = rule(f"{key} {text(':')} anything")
        obj = rule(f"{text('{')} ({member} ({comma} {member})*)? {text('}')}")
        items = rule(f"{text('[')} (anything ({comma} anything)*)? {text(']')}")
        scalar = self.rules.json({"type": ["number", "boolean", "null"]})
        define("anything", f"{string} | {scalar} | {obj} | {items}")
        return obj if kind == "object" else "anything"


class PythonValues(ValueGrammar):
    """Python's values: as JSON, which the parser understands too, except for truth and None."""

    def string(self, schema: Schema) -> str:
        return self.json("string", schema)

    def constant(self, value: Any) -> str:
        is_word = value is None or isinstance(value, bool)
        return self.rules.text(str(value) if is_word else json.dumps(value, ensure_ascii=False))

    def other(self, kind: str, schema: Schema, depth: int) -> str:
        if kind == "null":
            return self.constant(None)
        if kind == "boolean":
            return self._either([self.constant(True), self.constant(False)])
        return self.json(kind, schema)


def members_of(
    rules: LarkRules,
    names: Sequence[str],
    required: frozenset[str],
    member: Callable[[str], str],
    comma: str,
) -> str:
    """Members in this order with commas between, of which those that are required must be there."""
    rest = {False: '""', True: '""'}  # by whether a member stands before
    for name in reversed(names):
        written = member(name)
        ways = {}
        for has_before in (False, True):
            way = f"{rules.text(comma)} {written}" if has_before else written
            way = f"{way} {rest[True]}"
            ways[has_before] = rules.rule(
                way if name in required else f"{way} | {rest[has_before]}"
            )
        rest = ways
    return rest[False]
