"""CallParser: separates tool calls from text while the text arrives.

A family's parser is a generator that reads the text as if all of it were there, and waits where
more is needed. What it decides depends on the text alone, never on where the pieces were cut.

A text that begins like a call and turns out not to be one is given as text, byte for byte. A call
is certain once the name of a declared tool and the beginning of its arguments were read; from then
on its arguments are passed on as they come. If such a call breaks or is cut off, what was passed on
stays, the call ends as incomplete, and the rest is text.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from functools import lru_cache
from typing import TypeVar

from localspec.server.tool_calls.events import (
    Arguments,
    CallBegun,
    CallEnded,
    Event,
    Text,
    joined,
)
from localspec.server.tool_calls.json_scanner import JsonScanner
from localspec.server.tool_calls.schema_types import as_string
from localspec.server.tool_calls.tools import Tool

T = TypeVar("T")
# A generator that yields where it needs more text, and returns what it read.
Reading = Generator[None, None, T]

_SPACE = " \t\r\n"


class NotACallError(Exception):
    """The text is not a call, or goes on as none."""


class CallParser(ABC):
    """Separates the calls of the declared tools from an answer's text.

    `push` takes the text piece by piece and returns the events that are certain by then; `finish`
    returns the last ones. Text without any call is held back only while it may begin one.
    """

    # The marks that a call may begin with.
    openings: tuple[str, ...] = ()
    # What calls may begin with at the beginning of an answer, without a mark.
    bare = ""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        self._text = ""  # from the first character that is in no event
        self._at = 0  # where the generator reads
        self._finished = False
        self._events: list[Event] = []
        self._index = -1
        self._call_is_open = False
        self._generator = self.read()

    @property
    def unread(self) -> str:
        """The end of the text that is in no event yet."""
        return self._text

    def push(self, text: str) -> list[Event]:
        """Take another piece of the answer."""
        self._text += text
        return self._advance()

    def finish(self) -> list[Event]:
        """Take the end of the answer."""
        self._finished = True
        return self._advance()

    def _advance(self) -> list[Event]:
        next(self._generator, None)
        events, self._events = joined(self._events), []
        return events

    # What the answer consists of.

    def read(self) -> Reading[None]:
        """Read the whole answer: text, with calls in it."""
        if self.bare:
            yield from self.space()
            self.say_what_was_read()
            if self._text.startswith(self.bare):
                yield from self.calls_from("")
        while (mark := (yield from self.until(self.openings, self.say))) is not None:
            yield from self.calls_from(mark)

    def calls_from(self, mark: str) -> Reading[None]:
        """Read calls after an opening mark, and those that follow after whitespace alone."""
        following: str | None = mark
        while following is not None:
            following = yield from self._attempt(following)

    def _attempt(self, mark: str) -> Reading[str | None]:
        """Read calls after an opening mark; return the mark of others that follow at once."""
        self._at += len(mark)
        after_mark, index = self._at, self._index
        try:
            yield from self.calls(mark)
        except NotACallError:
            if self._call_is_open:
                self.end_call(complete=False)
            if self._index == index:  # no call has begun
                self._at = after_mark
                self.say_what_was_read()
            self._at = 0
            return None
        self.commit()
        return (yield from self._next_opening())

    def _next_opening(self) -> Reading[str | None]:
        """The opening mark that follows after whitespace, which is no text between calls."""
        yield from self.space()
        for mark in self.openings:
            if (yield from self.reads(mark)):
                self._at -= len(mark)
                return mark
        self._at = 0
        return None

    @abstractmethod
    def calls(self, mark: str) -> Reading[None]:
        """Read what follows an opening mark.

        Raises NotACallError if it is not a call or goes on as none; what was read since the last
        `commit` is text then.
        """

    # What is certain.

    def commit(self) -> None:
        """What was read belongs to a call."""
        self._text, self._at = self._text[self._at :], 0

    def say(self, text: str) -> None:
        if text:
            self._events.append(Text(text))

    def say_what_was_read(self) -> None:
        self.say(self._text[: self._at])
        self.commit()

    def begin_call(self, tool: Tool) -> None:
        """A call whose arguments follow, which are none as long as they are not whole."""
        self._index += 1
        self._call_is_open = True
        self._events.append(CallBegun(self._index, tool.name))
        self.commit()

    def give_arguments(self, text: str) -> None:
        if text:
            self._events.append(Arguments(self._index, text))
        self.commit()

    def end_call(self, *, complete: bool = True) -> None:
        self._call_is_open = False
        self._events.append(CallEnded(self._index, complete))

    # How the text is read.

    def wait(self) -> Reading[None]:
        """Wait for more text. Raises NotACallError where there is none."""
        if self._finished:
            raise NotACallError
        yield

    def peek(self) -> Reading[str]:
        """The next character. Raises NotACallError at the end of the text."""
        while self._at == len(self._text):
            yield from self.wait()
        return self._text[self._at]

    def space(self) -> Reading[None]:
        """Read whitespace, if there is some."""
        yield from self.run_of(_SPACE.__contains__)

    def run_of(self, belongs: Callable[[str], bool], most: int | None = None) -> Reading[str]:
        """Read the characters that belong; `most` of them at most, if given."""
        start = self._at
        while True:
            while self._at < len(self._text):
                if not belongs(self._text[self._at]) or self._at - start == most:
                    return self._text[start : self._at]
                self._at += 1
            if self._finished:
                return self._text[start:]
            yield

    def reads(self, mark: str) -> Reading[bool]:
        """Read this mark, if the text goes on with it."""
        while True:
            rest = self._text[self._at : self._at + len(mark)]
            if rest == mark:
                self._at += len(mark)
                return True
            if self._finished or not mark.startswith(rest):
                return False
            yield

    def expect(self, mark: str) -> Reading[None]:
        """Read this mark. Raises NotACallError if the text goes on with another."""
        if not (yield from self.reads(mark)):
            raise NotACallError

    def is_cut_off(self, mark: str, *others: str) -> bool:
        """Whether the end of the text cuts off this mark, and none of the others."""
        rest = self._text[self._at :]
        could_be = [each for each in (mark, *others) if rest and each.startswith(rest)]
        return self._finished and could_be == [mark]

    def closing(self, *marks: str) -> Reading[None]:
        """Read and commit these marks, each after whitespace, as far as they are there.

        They stand behind whole calls: one that the end of the text cuts off, as where a limit of
        tokens ends the answer, is no text either.
        """
        for mark in marks:
            yield from self.space()
            if not (yield from self.reads(mark)):
                if self.is_cut_off(mark):
                    self._text = ""
                self._at = 0
                return
            self.commit()

    def name(self) -> Reading[Tool]:
        """Read the name of a declared tool, the longest that the text goes on with."""
        while True:
            rest = self._text[self._at : self._at + 128]
            if self._finished or not any(
                len(name) > len(rest) and name.startswith(rest) for name in self._tools
            ):
                break
            yield
        names = [name for name in self._tools if rest.startswith(name)]
        if not names:
            raise NotACallError
        name = max(names, key=len)
        self._at += len(name)
        return self._tools[name]

    def until(self, marks: tuple[str, ...], give: Callable[[str], None]) -> Reading[str | None]:
        """Give and commit the text before the first of these marks as soon as it is certain.

        Returns the mark, which is not yet read; None at the end of the text. marks: none is the
        beginning of another.
        """
        while True:
            start, mark = first_of(marks, self._text, self._at, whole=self._finished)
            self._at = start
            text = self._text[:start]
            self.commit()
            if text:
                give(text)
            if mark is not None or self._finished:
                return mark
            yield

    def json_string(self, marks: tuple[str, ...]) -> Reading[None]:
        """Read a bare string up to and with the first of these marks, passing it on as JSON.

        Raises NotACallError at the end of the text.
        """
        self.give_arguments('"')
        while True:
            start, mark = first_of(marks, self._text, self._at, whole=False)
            piece, self._at = self._text[self._at : start], start
            self.give_arguments(as_string(piece)[1:-1])
            if mark is not None:
                self._at = len(mark)
                self.give_arguments('"')
                return
            yield from self.wait()

    def find(self, marks: tuple[str, ...]) -> Reading[str]:
        """Read up to and with the first of these marks; return the text before it.

        Raises NotACallError at the end of the text.
        """
        start, seen = self._at, self._at
        while True:
            seen, mark = first_of(marks, self._text, seen, whole=False)
            if mark is not None:
                self._at = seen + len(mark)
                return self._text[start:seen]
            yield from self.wait()

    def json_value(self) -> Reading[str]:
        """Read a JSON value. Raises NotACallError if it is none, or not whole."""
        scanner = JsonScanner()
        parts: list[str] = []
        while not scanner.done:
            yield from self._scan(scanner, parts.append)
        return "".join(parts)

    def json_arguments(self, tool: Tool) -> Reading[None]:
        """Read a call's arguments, a JSON object, passing it on as it comes."""
        if (yield from self.peek()) != "{":
            raise NotACallError
        self.begin_call(tool)
        scanner = JsonScanner()
        while not scanner.done:
            yield from self._scan(scanner, self.give_arguments)
        self.end_call()

    def _scan(self, scanner: JsonScanner, give: Callable[[str], None]) -> Reading[None]:
        taken, self._at = scanner.take(self._text, self._at)
        give(taken)
        if scanner.broken:
            raise NotACallError
        if not scanner.done:
            yield from self.wait()


@lru_cache(maxsize=64)
def _pattern(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)) or r"(?!)")


def first_of(
    marks: tuple[str, ...], text: str, start: int, *, whole: bool
) -> tuple[int, str | None]:
    """Where the first of these marks begins, and which it is.

    None for the mark: where one may begin that the end of the text cuts off; with `whole`, the text
    goes on no further, and this is its length.
    """
    found = _pattern(marks).search(text, start)
    end = found.start() if found else len(text)
    if not whole:
        longest = max(map(len, marks), default=0)
        for at in range(max(start, len(text) - longest + 1), end):
            if any(mark.startswith(text[at:]) for mark in marks):
                return at, None
    return (end, found[0]) if found else (end, None)


class PassThrough(CallParser):
    """The parser where no tools are declared: everything is text, at once."""

    def calls(self, mark: str) -> Reading[None]:
        yield from self.expect(mark)  # never: it has no opening marks
