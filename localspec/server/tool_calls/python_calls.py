"""Calls as Python writes them: [name(key="value", other=3)].

LFM2, Llama 4, and prompts for Gemma 3; Llama 3 writes name.call(...) behind its python tag.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.server.tool_calls.object_calls import ObjectCalls, ObjectParser
from localspec.server.tool_calls.parser import CallParser, NotACallError, Reading
from localspec.server.tool_calls.schema_types import as_string
from localspec.server.tool_calls.tools import Tool

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_QUOTES = ('"""', "'''", '"', "'")


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """How a family writes calls as a Python list of them.

    opening, closing: the marks around the list. bare: whether an answer may also begin with the
    list itself.
    """

    opening: str
    closing: str
    bare: bool = False

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return _PythonParser(self, tools)


class _KeywordArguments(CallParser):
    """Reads the arguments of a Python call."""

    def keyword_arguments(self, tool: Tool) -> Reading[None]:
        """Read what follows a call's opening parenthesis, up to its closing one.

        Passes on each argument when it is whole.
        """
        yield from self.space()
        if (yield from self.reads(")")):
            self.begin_call(tool)
            self.give_arguments("{}")
            self.end_call()
            return
        key = yield from self._key()
        self.begin_call(tool)
        self.give_arguments("{")
        yield from self._value("", key)
        while not (yield from self.reads(")")):
            yield from self.expect(",")
            yield from self.space()
            key = yield from self._key()
            yield from self._value(", ", key)
        self.give_arguments("}")
        self.end_call()

    def _key(self) -> Reading[str]:
        key = yield from self.run_of(_is_of_a_name, most=128)
        yield from self.space()
        yield from self.expect("=")
        if not key:
            raise NotACallError
        return key

    def _value(self, before: str, key: str) -> Reading[None]:
        self.give_arguments(f"{before}{as_string(key)}: ")
        self.give_arguments(_as_json((yield from self._literal())))

    def _literal(self) -> Reading[str]:
        """Read a literal, up to the comma or bracket behind it."""
        start, expected = self._at, [")"]
        while True:
            character = yield from self.peek()
            if len(expected) == 1 and character in ",)":
                return self._text[start : self._at]
            if character in "\"'":
                yield from self._quoted()
                continue
            if character in _BRACKETS:
                expected.append(_BRACKETS[character])
            elif character in ")]}" and character != expected.pop():
                raise NotACallError
            self._at += 1

    def _quoted(self) -> Reading[None]:
        for quote in _QUOTES:
            if (yield from self.reads(quote)):
                break
        while not (yield from self.reads(quote)):
            if (yield from self.reads("\\")):
                yield from self.peek()
            else:
                yield from self.peek()
            self._at += 1


class _PythonParser(_KeywordArguments):
    def __init__(self, syntax: PythonCalls, tools: Mapping[str, Tool]) -> None:
        self._syntax = syntax
        self.openings = (syntax.opening,)
        self.bare = "[" if syntax.bare else ""
        super().__init__(tools)

    def calls(self, mark: str) -> Reading[None]:
        yield from self.space()
        in_list = yield from self.reads("[")
        while True:
            yield from self.space()
            tool = yield from self.name()
            yield from self.expect("(")
            yield from self.keyword_arguments(tool)
            yield from self.space()
            if not in_list or not (yield from self.reads(",")):
                break
        if in_list:
            yield from self.expect("]")
            self.commit()
        self._at = 0
        if mark:
            yield from self.closing(self._syntax.closing)


@dataclass(frozen=True, slots=True)
class LlamaCalls(ObjectCalls):
    """JSON objects as the whole answer or behind the python tag; there also name.call(...)."""

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return _LlamaParser(self, tools)


class _LlamaParser(ObjectParser, _KeywordArguments):
    def calls(self, mark: str) -> Reading[None]:
        yield from self.space()
        if (yield from self.peek()) in "{[":
            yield from super().calls(mark)
            return
        tool = yield from self.name()
        yield from self.expect(".call(")
        yield from self.keyword_arguments(tool)


def _is_of_a_name(character: str) -> bool:
    return character.isalnum() or character == "_"


def _as_json(written: str) -> str:
    """A literal of Python or of JSON, as JSON. Raises NotACallError if it is neither."""
    for read in (json.loads, ast.literal_eval):
        try:
            return json.dumps(_plain(read(written.strip())), ensure_ascii=False, allow_nan=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    raise NotACallError


def _plain(value: Any) -> Any:
    """The value, if JSON has such values. Raises TypeError."""
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        raise TypeError("JSON's keys are strings")
    return value
