"""Calls as JSON objects: {"name": ..., "arguments": {...}}, between marks or as the whole answer.

Hermes and Qwen, Llama 3, Mistral until 2024, Granite, Command, Nemotron.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.server.tool_calls.parser import CallParser, NotACallError, Reading
from localspec.server.tool_calls.tools import Tool

_NAME_KEYS = ("name", "tool_name", "function")
_ARGUMENT_KEYS = ("arguments", "parameters", "args")


@dataclass(frozen=True, slots=True)
class ObjectCalls:
    """How a family writes calls as JSON objects.

    opening, closing: the marks around calls. bare: whether an answer may also be calls without
    marks. listed: whether the objects stand in a JSON list; else each has marks of its own.
    name_key, arguments_key: the keys that the template teaches; the usual others are understood.
    between: the text between bare calls.
    """

    opening: str
    closing: str = ""
    bare: bool = False
    listed: bool = False
    name_key: str = "name"
    arguments_key: str = "arguments"
    space: str = ""
    between: str = "\n"

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return ObjectParser(self, tools)


class ObjectParser(CallParser):
    def __init__(self, syntax: ObjectCalls, tools: Mapping[str, Tool]) -> None:
        self._syntax = syntax
        self.openings = (syntax.opening,)
        self.bare = "{" if syntax.bare else ""
        super().__init__(tools)

    def calls(self, mark: str) -> Reading[None]:
        yield from self.space()
        if (yield from self.reads("[")):
            yield from self._list()
        else:
            yield from self._objects()
        yield from self.closing(*self._syntax.closing.split())

    def _list(self) -> Reading[None]:
        while True:
            yield from self._object()
            yield from self.space()
            if (yield from self.reads("]")):
                self.commit()
                return
            yield from self.expect(",")

    def _objects(self) -> Reading[None]:
        """One object, or several, as some models write them between one pair of marks."""
        yield from self._object()
        while True:
            yield from self.space()
            if (yield from self.reads(";")) or (yield from self.reads(",")):
                yield from self.space()
            if self._text[self._at : self._at + 1] != "{":
                self._at = 0
                return
            yield from self._object()

    def _object(self) -> Reading[None]:
        """An object whose keys may come in any order; arguments after the name are passed on."""
        yield from self.space()
        yield from self.expect("{")
        tool, held, called = None, None, False
        while True:
            yield from self.space()
            key = yield from self._string()
            yield from self.space()
            yield from self.expect(":")
            yield from self.space()
            if key in _NAME_KEYS and tool is None:
                tool = self._tool((yield from self._string()))
            elif key in _ARGUMENT_KEYS and not called:
                if tool and (yield from self.peek()) == "{":
                    yield from self.json_arguments(tool)
                    called = True
                else:
                    held = _arguments((yield from self.json_value()))
            else:
                yield from self.json_value()
            if tool and held is not None and not called:
                self._give_call(tool, held)
                called = True
            yield from self.space()
            if not (yield from self.reads(",")):
                break
        yield from self.expect("}")
        if not called:
            if tool is None:
                raise NotACallError
            self._give_call(tool, "{}")
        self.commit()

    def _give_call(self, tool: Tool, arguments: str) -> None:
        self.begin_call(tool)
        self.give_arguments(arguments)
        self.end_call()

    def _string(self) -> Reading[str]:
        if (yield from self.peek()) != '"':
            raise NotACallError
        return str(json.loads((yield from self.json_value())))

    def _tool(self, name: str) -> Tool:
        if name not in self._tools:
            raise NotACallError
        return self._tools[name]


def _arguments(written: str) -> str:
    """The arguments, which may be missing, or an object as JSON in a string.

    Raises NotACallError if they are no object.
    """
    if written == "null":
        return "{}"
    if written.startswith('"'):
        written = str(json.loads(written)) or "{}"
    try:
        is_object = isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise NotACallError
    return written
