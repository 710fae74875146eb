"""JsonScanner: follows a JSON value that arrives in pieces, up to its end or its first error."""

import json
import re

_SPACE = " \t\r\n"
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = ("true", "false", "null")
_SHORT_ESCAPES = '"\\/bfnrt'


class JsonScanner:
    """Takes the text of one JSON value, piece by piece.

    done: the value has ended. broken: the text is not JSON. What was taken is the beginning of a
    JSON value, or all of it. Control characters in strings, which JSON forbids and models write,
    are escaped in what `take` returns.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._open: list[str] = []  # the brackets around this place
        self._expects = "value"
        self._token = ""  # of a string its part after a backslash; of others all
        self._is_key = False

    def take(self, text: str, start: int) -> tuple[str, int]:
        """Take text from `start`: what was taken, as JSON, and the index of the rest."""
        taken: list[str] = []
        at = start
        while at < len(text) and not self.done and not self.broken:
            if self.in_string and not self._token and (plain := _PLAIN.match(text, at)):
                taken.append(plain[0])
                at = plain.end()
                continue
            if self._expects == "scalar" and not self._goes_on(text[at]):
                self._end_scalar()  # this character belongs to what follows
                continue
            self._step(text[at])
            if not self.broken:
                is_control = text[at] < " " and self.in_string
                taken.append(json.dumps(text[at])[1:-1] if is_control else text[at])
                at += 1
        return "".join(taken), at

    def completion(self) -> str:
        """What completes the text so far to a JSON value; for a text that was cut off."""
        last = ""
        match self._expects:
            case "string":
                last = self._rest_of_escape() + '"' + (": null" if self._is_key else "")
            case "scalar":
                last = self._rest_of_scalar()
            case "value":
                last = "null"
            case "key":
                last = '"": null'
            case "colon":
                last = ": null"
        closing = {"{": "}", "[": "]"}
        return last + "".join(closing[bracket] for bracket in reversed(self._open))

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends within a string."""
        return self._expects == "string"

    def _step(self, character: str) -> None:
        if self._expects == "string":
            self._in_string(character)
        elif self._expects == "scalar":
            self._token += character
        elif character not in _SPACE:
            self._between(character)

    def _between(self, character: str) -> None:
        """A character between strings, numbers and literals."""
        expected = self._expects
        if character in "}]" and expected in ("comma", "first key", "first value"):
            self._close(character)
        elif expected == "comma" and character == ",":
            self._expects = "key" if self._open[-1] == "{" else "value"
        elif expected == "colon" and character == ":":
            self._expects = "value"
        elif expected in ("key", "first key") and character == '"':
            self._begin_string(key=True)
        elif expected in ("value", "first value"):
            self._begin_value(character)
        else:
            self.broken = True

    def _begin_value(self, character: str) -> None:
        if character == '"':
            self._begin_string(key=False)
        elif character in "{[":
            self._open.append(character)
            self._expects = "first key" if character == "{" else "first value"
        elif character in "-0123456789tfn":
            self._expects, self._token = "scalar", character
        else:
            self.broken = True

    def _begin_string(self, *, key: bool) -> None:
        self._expects, self._is_key, self._token = "string", key, ""

    def _in_string(self, character: str) -> None:
        if not self._token:
            if character == '"':
                self._end_string()
            elif character == "\\":
                self._token = character
            return
        self._token += character
        if self._token[1] == "u":
            self.broken = len(self._token) > 2 and character not in "0123456789abcdefABCDEF"
            if len(self._token) == 6:
                self._token = ""
        else:
            self.broken = character not in _SHORT_ESCAPES
            self._token = ""

    def _end_string(self) -> None:
        if self._is_key:
            self._expects = "colon"
        else:
            self._end_value()

    def _goes_on(self, character: str) -> bool:
        """Whether a number or literal goes on with this character."""
        if self._token[0] in "tfn":
            return any(literal.startswith(self._token + character) for literal in _LITERALS)
        return character in "+-.eE0123456789"

    def _end_scalar(self) -> None:
        if self._token in _LITERALS or _NUMBER.fullmatch(self._token):
            self._token = ""
            self._end_value()
        else:
            self.broken = True

    def _end_value(self) -> None:
        self._expects = "comma"
        self.done = not self._open

    def _close(self, bracket: str) -> None:
        if self._open and self._open[-1] + bracket in ("{}", "[]"):
            self._open.pop()
            self._end_value()
        else:
            self.broken = True

    def _rest_of_escape(self) -> str:
        if self._token.startswith("\\u"):
            return "0" * (6 - len(self._token))
        return "\\" if self._token else ""

    def _rest_of_scalar(self) -> str:
        for literal in _LITERALS:
            if literal.startswith(self._token):
                return literal[len(self._token) :]
        return "" if _NUMBER.fullmatch(self._token) else "0"
