"""LarkRules: builds a grammar in llguidance's Lark notation, rule by rule."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema
from localspec.sampling.lark import HEADER

ANY = "(?s:.*)"


class LarkRules:
    """The rules of a grammar.

    special: the ids of the marks that are tokens of their own in the model's vocabulary, by their
    text. A special token is no text: a text never contains one, whatever is written in it.

    The methods return expressions, which may be put together with blanks, | and ?.
    """

    def __init__(self, special: Mapping[str, int]) -> None:
        self._special = special
        self._rules: dict[str, str] = {}  # name by definition
        self._named: dict[str, str] = {}  # definition by name

    def grammar(self, start: str) -> str:
        """The whole grammar; its texts are those of the expression `start`."""
        named = [(name, definition) for definition, name in self._rules.items()]
        rules = [f"{name}: {text}" for name, text in [*named, *self._named.items()]]
        return "\n".join([HEADER + " {}", f"start: {start}", *rules, ""])

    def rule(self, definition: str) -> str:
        """A rule of its own; the same one for the same definition."""
        return self._rules.setdefault(definition, f"r{len(self._rules)}")

    def terminal(self, definition: str) -> str:
        """A terminal: strings and regular expressions, which may be joined by & and ~."""
        return self._rules.setdefault(definition, f"T{len(self._rules)}")

    def new_name(self) -> str:
        """A name to `define`, whose definition may contain it."""
        name = f"n{len(self._named)}"
        self._named[name] = '""'
        return name

    def define(self, name: str, definition: str) -> None:
        """Define a rule by its name."""
        self._named[name] = definition

    def text(self, *parts: str) -> str:
        """A fixed text, in which marks may be special tokens."""
        pieces = re.split(self._special_pattern(), "".join(parts))
        return " ".join(self._piece(piece) for piece in pieces if piece) or '""'

    def _piece(self, piece: str) -> str:
        if piece in self._special:
            return f"<[{self._special[piece]}]>"
        return json.dumps(piece, ensure_ascii=False)

    def _special_pattern(self) -> str:
        marks = sorted(self._special, key=len, reverse=True)
        return f"({'|'.join(map(re.escape, marks))})" if marks else "(?!)"

    def json(self, schema: Mapping[str, Any]) -> str:
        """A JSON value that satisfies a schema. Raises InvalidValueError as compile_schema does."""
        return self.embedded(compile_schema(json.dumps(schema)))

    def embedded(self, compiled: str) -> str:
        """What another grammar describes, which was compiled for `Grammar.begin`."""
        if compiled.lstrip().startswith(HEADER):
            return self.rule(f"%lark {{\n{compiled}\n}}")
        return self.rule("%json " + json.dumps(json.loads(compiled)["grammars"][0]["json_schema"]))

    def until(self, mark: str, allowed: Sequence[str] = (), before: str = "") -> str:
        """Text without this mark, and then `before` and the mark.

        allowed: regular expressions that the text must match, all of them.
        """
        regexes = " & ".join(f"/{regex}/" for regex in allowed or [ANY])
        first = re.split(self._special_pattern(), mark)[0]
        if not first:  # no text contains a special token, so that the text ends where it comes
            return f"{self.terminal(regexes)} {self.text(before, mark)}"
        end = json.dumps(before + mark, ensure_ascii=False)
        body = self.terminal(regexes)
        unended = f"~/{ANY}{_escaped(mark)}(?s:.+)/"
        return self.terminal(f"({body} {end}) & {unended}")


def string_regexes(schema: Mapping[str, Any]) -> list[str]:
    """Regular expressions of the strings that satisfy a schema, all of which must match."""
    regexes = []
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if least or most is not None:
        regexes.append(f"(?s:.{{{least},{'' if most is None else most}}})")
    if isinstance(pattern := schema.get("pattern"), str):
        regexes.append(_searched(pattern))
    return regexes


def _searched(pattern: str) -> str:
    """A regular expression of the texts in which this one is found."""
    if re.search(r"\\[bBAzZ]|\(\?[=!<]", pattern):
        raise InvalidValueError(
            f"schema: the pattern {pattern!r:.80} has assertions, which no grammar can follow"
        )
    inner = re.sub(r"(?<!\\)/", r"\\/", pattern.removeprefix("^"))
    inner, tail = (inner[:-1], "") if re.search(r"(?<!\\)\$$", inner) else (inner, ANY)
    return f"{'' if pattern.startswith('^') else ANY}({inner}){tail}"


def _escaped(text: str) -> str:
    """A text as a part of a regular expression between Lark's slashes."""
    return re.escape(text).replace("\\\n", r"\n").replace("\\ ", " ").replace("/", r"\/")
