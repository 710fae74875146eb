"""gpt-oss: answers in channels, each message with a header (OpenAI's "harmony" format).

<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>commentary to=functions.name
<|constrain|>json<|message|>{...}<|call|>

openai-harmony reads token ids of its own vocabulary, which it downloads; here the text is read,
with its special tokens. Headers and marks belong to no text, so this parser also runs where no
tools are declared.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localspec.server.tool_calls.events import Reasoning
from localspec.server.tool_calls.parser import CallParser, NotACallError, Reading
from localspec.server.tool_calls.tools import Tool

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
_ENDS = (END, CALL, RETURN, START)
MARKS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)
_LONGEST_HEADER = 300
_RECIPIENT = " to="

_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(analysis|commentary|final)\b")
_FUNCTION = re.compile(r"\bto=(?:functions\.)?([\w.:/@-]+)")


@dataclass(frozen=True, slots=True)
class HarmonyCalls:
    """gpt-oss's calls: messages to functions.NAME."""

    def parser(self, tools: Mapping[str, Tool]) -> CallParser:
        return _HarmonyParser(tools)


class _HarmonyParser(CallParser):
    openings = (START, CHANNEL)

    def read(self) -> Reading[None]:
        # The prompt ends with <|start|>assistant, so that a header may begin with its recipient.
        if (yield from self.reads(_RECIPIENT)):
            self._at = 0
            yield from self.calls_from("")
        yield from super().read()

    def calls(self, mark: str) -> Reading[None]:
        header = mark + (yield from self._header())
        channel = _CHANNEL_NAME.search(header)
        if function := _FUNCTION.search(header):
            if function[1] not in self._tools:
                raise NotACallError
            yield from self.space()
            yield from self.json_arguments(self._tools[function[1]])
            yield from self._end_of_message()
        elif channel:
            self.commit()
            give = self._think if channel[1] == "analysis" else self.say
            if (yield from self.until(_ENDS, give)) is not None:
                yield from self._end_of_message()
        else:
            raise NotACallError

    def _header(self) -> Reading[str]:
        """Read up to and with <|message|>; a header has no other end."""
        start = self._at
        while not (yield from self.reads(MESSAGE)):
            if self._at - start > _LONGEST_HEADER:
                raise NotACallError
            for end in (END, CALL, RETURN):
                if (yield from self.reads(end)):
                    raise NotACallError
            yield from self.peek()
            self._at += 1
        return self._text[start : self._at]

    def _end_of_message(self) -> Reading[None]:
        for end in (END, CALL, RETURN):
            if (yield from self.reads(end)):
                break
        self.commit()

    def _think(self, text: str) -> None:
        self._events.append(Reasoning(text))
