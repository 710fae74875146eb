"""Open fence: a code block that is not closed yet, so that its lines need no parsing."""

import re
from dataclasses import replace

from localspec_tui.markdown.blocks import CodeBlock

_OPENING = re.compile(r"( {0,3})((`|~)\3{2,})")


class OpenFence:
    """text: source of the code block, and a blank line before it if there was one; the line with
    the opening fence is complete. code: as it was parsed.
    """

    def __init__(self, text: str, code: CodeBlock) -> None:
        self._first = code.blank_before + 1
        opening = _OPENING.match(text.split("\n")[code.blank_before])
        assert opening, "an unfinished code block begins with a fence"
        indent, marks, mark = opening.groups()
        self._code = code
        self._indent = re.compile(f"^ {{0,{len(indent)}}}", re.MULTILINE)
        self._closing = re.compile(rf"^ {{0,3}}{mark}{{{len(marks)},}}[ \t]*\n", re.MULTILINE)
        self._maybe_closing = re.compile(rf" {{0,3}}{mark}+[ \t]*")

    def is_closed(self, text: str, start: int) -> bool:
        """Whether a complete line of the text, from index `start` on, closes the code block."""
        return self._closing.search(text, start) is not None

    def code_block(self, text: str) -> CodeBlock:
        """The code block so far. A last line that may become the closing fence is left out."""
        lines = text.split("\n")[self._first :]
        if self._maybe_closing.fullmatch(lines[-1]):
            lines.pop()
        code = self._indent.sub("", "\n".join(lines))
        return replace(self._code, text=code.rstrip("\n"))
