"""Shown texts: what the turns of a conversation show, for a search."""

from collections.abc import Iterable, Sequence

from textual.content import Content

from localspec.conversation.turns import Turn
from localspec_tui.found_text import shown_text
from localspec_tui.markdown.block_parser import BlockParser
from localspec_tui.markdown.layout import BlockLayout
from localspec_tui.sanitized import sanitized
from localspec_tui.widgets.turn_entry import TurnEntry

# Cells of a line. Where it is wrapped makes no difference to what is found.
_WIDTH = 1000


class ShownTexts:
    """Keeps the texts of answers, because to parse them takes long."""

    def __init__(self) -> None:
        # What an answer was, and what it shows, by the key of its turn.
        self._parsed: dict[str, tuple[tuple[str, bool], str]] = {}

    def of(self, entry: TurnEntry) -> Sequence[str]:
        """What a turn shows: one text, or its reasoning and the text."""
        turn = entry.turn
        text = self._answer(turn) if entry.shows_markdown else sanitized(turn.content)
        return [sanitized(turn.thought), text] if entry.shows_thought else [text]

    def forget_others(self, turns: Iterable[Turn]) -> None:
        """Forget the texts of turns that are none of these."""
        kept = {turn.key for turn in turns}
        self._parsed = {key: each for key, each in self._parsed.items() if key in kept}

    def _answer(self, turn: Turn) -> str:
        source = turn.content, turn.stop_reason is not None
        known = self._parsed.get(turn.key)
        if known is None or known[0] != source:
            known = self._parsed[turn.key] = source, markdown_text(*source)
        return known[1]


def markdown_text(source: str, ended: bool = True) -> str:
    """What Markdown shows. ended: whether it is complete."""
    parser = BlockParser(sanitized(source), ended=ended)
    blocks = (each.block for each in parser.blocks())
    return shown_text(BlockLayout(_plain).lines(blocks, _WIDTH))


def _plain(code: str, _language: str) -> Content:
    return Content(code)
