"""Calls whose arguments stand between tags, each by itself, strings bare.

Qwen3-Coder and newer Qwen, GLM, Seed-OSS, MiniMax, Nemotron 3, Step. The values become JSON by the
types of the tool's schema.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.server.tool_calls.json_scanner import JsonScanner
from localspec.server.tool_calls.parser import CallParser, NotACallError, Reading
from localspec.server.tool_calls.schema_types import STRING, as_json, as_string
from localspec.server.tool_calls.tools import Tool

_LONGEST_KEY = 256


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """How a family writes calls with arguments between tags.

    opening, closing: the marks around calls. before_name, after_name: around a function's name;
    without them it stands behind the opening mark. before_key, after_key, before_value,
    after_value: around an argument's name and value. end: the mark after a function's arguments.
    newlines: whether a newline stands before and after each value, which belongs to neither value
    nor tag. space: what the template writes between tags.
    """

    opening: str
    closing: str
    before_key: str
    after_key: str
    after_value: str
    before_value: str = ""
    before_name: str = ""
    after_name: str = ""
    end: str = ""
    newlines: bool = False
    space: str = ""

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return _TaggedParser(self, tools)


class _TaggedParser(CallParser):
    def __init__(self, syntax: TaggedCalls, tools: Mapping[str, Tool]) -> None:
        self._syntax = syntax
        self.openings = (syntax.opening,)
        if syntax.before_name:  # models sometimes forget the opening mark
            self.openings += (syntax.before_name,)
        self._value_ends: tuple[str, ...] = (syntax.after_value,)
        if syntax.newlines:
            self._value_ends += ("\n" + syntax.after_value,)
        super().__init__(tools)

    def calls(self, mark: str) -> Reading[None]:
        syntax = self._syntax
        if mark == syntax.opening:
            yield from self.space()
            yield from self.expect(syntax.before_name)
        yield from self._call()
        while syntax.before_name:
            yield from self.space()
            if not (yield from self.reads(syntax.before_name)):
                self._at = 0
                break
            yield from self._call()
        yield from self.closing(syntax.closing)

    def _call(self) -> Reading[None]:
        tool = yield from self.name()
        yield from self.expect(self._syntax.after_name)
        yield from self.space()
        if not (yield from self.reads(self._syntax.before_key)):
            yield from self._end_of_arguments()
            self.begin_call(tool)
            self.give_arguments("{}")
            self.end_call()
            return
        self.begin_call(tool)
        self.give_arguments("{")
        yield from self._argument(tool, "")
        yield from self.space()
        while (yield from self.reads(self._syntax.before_key)):
            yield from self._argument(tool, ", ")
            yield from self.space()
        yield from self._end_of_arguments()
        self.give_arguments("}")
        self.end_call()

    def _end_of_arguments(self) -> Reading[None]:
        """Read the mark after the arguments; the closing mark in its place remains unread.

        They are whole, too, where the end of the text cuts it off.
        """
        end, closing = self._syntax.end, self._syntax.closing
        if end and (yield from self.reads(end)):
            return
        if (yield from self.reads(closing)):
            self._at -= len(closing)
        elif self.is_cut_off(end or closing, self._syntax.before_key):
            self._at = len(self._text)
        else:
            raise NotACallError

    def _argument(self, tool: Tool, before: str) -> Reading[None]:
        syntax = self._syntax
        key = yield from self.run_of(lambda character: character not in '<>"\n', _LONGEST_KEY)
        yield from self.expect(syntax.after_key)
        if syntax.before_value:
            yield from self.space()
            yield from self.expect(syntax.before_value)
        if syntax.newlines:
            yield from self.reads("\n")
        before += as_string(key) + ": "
        if (types := tool.types(key)) == STRING:
            self.give_arguments(before)
            yield from self.json_string(self._value_ends)
        else:
            value = yield from self._value()
            self.give_arguments(before + as_json(value, types))

    def _value(self) -> Reading[str]:
        """Read a value that is no string, and its end; within JSON's strings its end is text."""
        end = self._syntax.after_value
        start = self._at
        first = value = yield from self.find((end,))
        after_first = self._at
        try:
            while _ends_in_string(value):
                yield from self.find((end,))
                value = self._text[start : self._at - len(end)]
        except NotACallError:  # a string that never ends
            value, self._at = first, after_first
        return value.removesuffix("\n") if self._syntax.newlines else value


def _ends_in_string(text: str) -> bool:
    scanner = JsonScanner()
    scanner.take(text, 0)
    return scanner.in_string and not scanner.broken
