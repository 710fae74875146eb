"""ReasoningCalls: calls that a model writes within reasoning which it never closes.

Some models (Qwen3.5 and newer) now and then call a tool without a closing tag before. A call in the
middle of reasoning is only a thought about one: calls count where the model ends with them.
"""

from dataclasses import replace

from localspec.server.tool_calls.events import CallEnded, Event, Reasoning, Text, joined
from localspec.server.tool_calls.parser import CallParser


class ReasoningCalls:
    """Separates reasoning from the calls at its end.

    parser: one of its own. What `push` takes comes back as soon as it is certain to be reasoning;
    the text from a call on is held back until more than space follows it.
    """

    def __init__(self, parser: CallParser) -> None:
        self._parser = parser
        self._held = ""
        self._calls: list[Event] = []

    def push(self, thought: str) -> str:
        """Take another piece of the reasoning; returns what is certain to be no call."""
        given = ""
        for character in thought:  # so that each event ends where the text read so far does
            self._held += character
            self._read(self._parser.push(character))
            if not self._calls:
                certain = len(self._held) - len(self._parser.unread)
                given, self._held = given + self._held[:certain], self._held[certain:]
        return given

    def close(self) -> str:
        """Take the end of reasoning that was closed; returns the rest of it."""
        given, self._held, self._calls = self._held, "", []
        return given

    def finish(self) -> tuple[str, list[Event]]:
        """Take the end of the answer; returns the rest of the reasoning, or its last calls."""
        self._read(self._parser.finish())
        ends = [event for event in self._calls if isinstance(event, CallEnded)]
        if ends and all(end.complete for end in ends):
            # Those that were only thoughts have numbers, too.
            first = ends[0].index
            calls = [each for each in joined(self._calls) if not isinstance(each, Text | Reasoning)]
            return "", [replace(each, index=each.index - first) for each in calls]
        return self._held, []

    def _read(self, events: list[Event]) -> None:
        for event in events:
            if not isinstance(event, Text):
                self._calls.append(event)
            elif event.text.strip():
                self._calls = []
