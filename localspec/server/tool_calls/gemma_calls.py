"""Gemma's calls: call:name{key:<|"|>text<|"|>,other:3}."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.server.tool_calls.parser import CallParser, NotACallError, Reading
from localspec.server.tool_calls.schema_types import as_json, as_string
from localspec.server.tool_calls.tools import Tool

_DEEPEST = 64
# A value without quotes is a number, a truth value or null; other words count as strings.
_WORDS = frozenset({"number", "boolean", "null"})


@dataclass(frozen=True, slots=True)
class GemmaCalls:
    """How a family writes calls of Gemma's kind: the marks around a call, and around strings."""

    opening: str
    closing: str
    quote: str

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return _GemmaParser(self, tools)


class _GemmaParser(CallParser):
    def __init__(self, syntax: GemmaCalls, tools: Mapping[str, Tool]) -> None:
        self._syntax = syntax
        self.openings = (syntax.opening,)
        super().__init__(tools)

    def calls(self, mark: str) -> Reading[None]:
        yield from self.space()
        yield from self.expect("call:")
        tool = yield from self.name()
        yield from self.expect("{")
        self.begin_call(tool)
        yield from self._members()
        self.end_call()
        yield from self.closing(self._syntax.closing)

    def _members(self, depth: int = 1) -> Reading[None]:
        """An object behind its opening brace."""
        if depth > _DEEPEST:
            raise NotACallError
        self.give_arguments("{")
        before = ""
        yield from self.space()
        while not (yield from self.reads("}")):
            if before:
                yield from self.expect(",")
                yield from self.space()
            key = yield from self._key()
            yield from self.expect(":")
            self.give_arguments(f"{before}{as_string(key)}: ")
            yield from self._value(depth)
            before = ", "
        self.give_arguments("}")

    def _items(self, depth: int) -> Reading[None]:
        """A list behind its opening bracket."""
        if depth > _DEEPEST:
            raise NotACallError
        self.give_arguments("[")
        first = True
        yield from self.space()
        while not (yield from self.reads("]")):
            if not first:
                yield from self.expect(",")
                self.give_arguments(", ")
            yield from self._value(depth)
            first = False
        self.give_arguments("]")

    def _key(self) -> Reading[str]:
        if (yield from self.reads(self._syntax.quote)):
            return (yield from self.find((self._syntax.quote,)))
        if (yield from self.peek()) == '"':
            return str(json.loads((yield from self.json_value())))
        key = yield from self.run_of(lambda character: character not in ':,{}[]"<>\n', 256)
        if not key.strip():
            raise NotACallError
        return key.strip()

    def _value(self, depth: int) -> Reading[None]:
        yield from self.space()
        if (yield from self.reads(self._syntax.quote)):
            yield from self.json_string((self._syntax.quote,))
        elif (yield from self.reads("{")):
            yield from self._members(depth + 1)
        elif (yield from self.reads("[")):
            yield from self._items(depth + 1)
        elif (yield from self.peek()) == '"':
            self.give_arguments((yield from self.json_value()))
        else:
            word = yield from self.run_of(lambda character: character not in ",{}[]<\n")
            yield from self.peek()  # a word that the end cuts off is not certain
            if not word.strip():
                raise NotACallError
            self.give_arguments(as_json(word.strip(), _WORDS))
        yield from self.space()
