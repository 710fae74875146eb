"""Folded lines: short labels that stand for very long lines in a text box.

At each key Textual divides and wraps the whole line in which it is typed: with 100 kB in a line,
that takes more than 100 ms.
"""

import re

from localspec.utils.format import format_bytes

# Characters of a line up to which it is not folded.
LONGEST = 8192
_TOO_LONG = re.compile(rf"[^\r\n]{{{LONGEST + 1},}}")


class FoldedLines:
    """The lines that labels in a text stand for. A label is edited as if it were one character."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._labels: re.Pattern[str] | None = None

    def fold(self, text: str) -> str:
        """The text with a label in place of each line that is too long."""
        if len(text) <= LONGEST:
            return text
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

    def _label(self, line: str, text: str) -> str:
        for label, known in self._lines.items():
            if known == line:
                return label
        number, size = len(self._lines) + 1, format_bytes(len(line.encode("utf-8", "replace")))
        while (label := f"[pasted #{number}: {size} in one line]") in text:
            number += 1
        self._lines[label] = line
        self._labels = re.compile("|".join(map(re.escape, self._lines)))
        return label
