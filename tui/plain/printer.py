"""Printer: writes a plain chat as lines of text, with no colours and no movement of the cursor."""

from localspec.cli.output import Output, write_to_stderr
from localspec.conversation.turns import Turn
from localspec.utils.format import one_line, without_controls
from localspec_tui.export import how_it_ended
from localspec_tui.plain.message_reader import PROMPT

REASONING, ANSWER = "(reasoning)\n", "(answer)\n"


def as_shown(turn: Turn) -> str:
    """A turn of an earlier chat, as it was typed or written there."""
    if turn.role == "user":
        return f"{PROMPT}{turn.content}\n"
    thought, said = turn.thought.removesuffix("\n"), turn.content.removesuffix("\n")
    parts = [f"{REASONING}{thought}"] if thought else []
    if said:
        parts.append(f"{ANSWER}{said}" if thought else said)
    if how := how_it_ended(turn):
        parts.append(f"({how})")
    return "".join(f"{part}\n" for part in parts)


class Printer:
    """Writes answers to stdout as they grow, and all else to stderr.

    What the chat itself says is in parentheses.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_reasoning = False
        # What was written last of an answer; a line feed where nothing was.
        self._last = "\n"

    def thought(self, text: str) -> None:
        """Write a piece of the model's reasoning."""
        if text and not self._is_reasoning:
            self._is_reasoning = True
            self._write(REASONING)
        self._write(text)

    def said(self, text: str) -> None:
        """Write a piece of an answer."""
        if text and self._is_reasoning:
            self._is_reasoning = False
            self.end_line()
            self._write(ANSWER)
        self._write(text)

    def end_answer(self) -> None:
        """End the last line of an answer."""
        self._is_reasoning = False
        self.end_line()

    def end_line(self) -> None:
        """Let what follows begin on a line of its own."""
        if self._last != "\n":
            self._write("\n")

    def note(self, line: str) -> None:
        """Write a line of the chat's own."""
        self.lines(f"({one_line(line)})\n")

    def lines(self, text: str) -> None:
        """Write whole lines that are no answer of now."""
        if self._output.one_stream:
            self.end_line()
        write_to_stderr(without_controls(text))

    def _write(self, text: str) -> None:
        if text:
            self._output.data(text)
            self._last = text[-1]
