"""Highlighting: code in colours."""

from functools import lru_cache

from textual.content import Content
from textual.highlight import (
    ANSIDarkHighlightTheme,
    ANSILightHighlightTheme,
    HighlightTheme,
    highlight,
)

_NO_LANGUAGE = "text"


@lru_cache(512)
def highlighted(code: str, language: str, *, ansi: bool, dark: bool) -> Content:
    """Highlight code for a theme. Code without a known language gets no colours."""
    return highlight(code, language=language or _NO_LANGUAGE, theme=_theme(ansi, dark))


def _theme(ansi: bool, dark: bool) -> type[HighlightTheme]:
    if not ansi:
        return HighlightTheme
    return ANSIDarkHighlightTheme if dark else ANSILightHighlightTheme
