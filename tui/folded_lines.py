"""Folded lines: short labels that stand for very long lines, and for very many, in a text box.

At each key Textual divides and wraps the whole line in which it is typed: with 100 kB in a line,
that takes more than 100 ms. Where a text comes into the box, all of its lines are wrapped, which
takes 250 ms per 1,000.
"""

import re

from localspec.utils.format import format_bytes

# Characters of a line up to which it is not folded.
LONGEST = 8192
# Lines of a text up to which it is not folded as a whole.
MOST_LINES = 1000
_TOO_LONG = re.compile(rf"[^\r\n]{{{LONGEST + 1},}}")


class FoldedLines:
    """What the labels in a text stand for. A label is edited as if it were one character."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._labels: re.Pattern[str] | None = None

    def fold(self, text: str) -> str:
        """The text with a label for each line that is too long, or for all of too many."""
        if len(text) <= LONGEST:
            return text
        lines = text.splitlines()
        if len(lines) > MOST_LINES:
            return self._label("\n".join(lines) + "\n" * text.endswith(("\n", "\r")), text)
        return _TOO_LONG.sub(lambda found: self._label(found[0], text), text)

    def unfold(self, text: str) -> str:
        """The text with the lines that its labels stand for."""
        return self._labels.sub(lambda found: self._lines[found[0]], text) if self._labels else text

    def outside(self, line: str, start: int, end: int) -> tuple[int, int]:
        """Two columns of a line, moved out of labels: the start to the left, the end to the right.

        Where both are the same, they stay so.
        """
        for found in self._labels.finditer(line) if self._labels else ():
            is_between = start == end
            if found.start() < start < found.end():
                start = found.end() if is_between else found.start()
            if found.start() < end < found.end():
                end = found.end()
        return start, end

    def _label(self, folded: str, text: str) -> str:
        for label, known in self._lines.items():
            if known == folded:
                return label
        number, size = len(self._lines) + 1, format_bytes(len(folded.encode("utf-8", "replace")))
        count = folded.removesuffix("\n").count("\n") + 1
        lines = "one line" if count == 1 else f"{count:,} lines"
        while (label := f"[pasted #{number}: {size} in {lines}]") in text:
            number += 1
        self._lines[label] = folded
        self._labels = re.compile("|".join(map(re.escape, self._lines)))
        return label
