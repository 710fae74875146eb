"""Calls as a name and then a JSON object, with marks between: NAME mark {...}.

Mistral since 2025, DeepSeek V3, R1 and V3.1, Kimi K2, Functionary.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.server.tool_calls.parser import CallParser, Reading
from localspec.server.tool_calls.tools import Tool


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """How a family writes calls as a name and a JSON object.

    opening, closing: the marks around all calls of an answer, if there are any. call: the mark
    before each. before_name: what may stand before the name. identifier: what an id begins with,
    where the model writes ids behind names; numbered: whether it is a number, always there.
    before_arguments, after_arguments: what stands around
    the object. end: the mark after each call. between: the text between calls.
    """

    call: str
    before_arguments: str
    opening: str = ""
    closing: str = ""
    before_name: str = ""
    identifier: str = ""
    numbered: bool = False
    after_arguments: str = ""
    end: str = ""
    between: str = ""

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return _NamedParser(self, tools)


class _NamedParser(CallParser):
    def __init__(self, syntax: NamedCalls, tools: Mapping[str, Tool]) -> None:
        self._syntax = syntax
        self.openings = (syntax.opening, syntax.call) if syntax.opening else (syntax.call,)
        super().__init__(tools)

    def calls(self, mark: str) -> Reading[None]:
        syntax = self._syntax
        if mark == syntax.opening:
            yield from self.space()
            yield from self.expect(syntax.call)
        yield from self._call()
        while True:
            yield from self.space()
            if not (yield from self.reads(syntax.call)):
                break
            yield from self._call()
        self._at = 0
        yield from self.closing(*syntax.closing.split())

    def _call(self) -> Reading[None]:
        syntax = self._syntax
        yield from self.space()
        yield from self.reads(syntax.before_name)
        tool = yield from self.name()
        if syntax.identifier and (yield from self.reads(syntax.identifier)):
            yield from self.run_of(str.isalnum, most=64)
        yield from self._expect_parts(syntax.before_arguments)
        yield from self.space()
        yield from self.json_arguments(tool)
        yield from self.closing(*syntax.after_arguments.split(), *syntax.end.split())

    def _expect_parts(self, text: str) -> Reading[None]:
        """Read the words of a text, with any whitespace around them."""
        for word in text.split():
            yield from self.space()
            yield from self.expect(word)
