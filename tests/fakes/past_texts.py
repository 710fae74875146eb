"""Texts in a store of past texts, without what their tokens were drawn from."""

from collections.abc import Iterable

from localspec.drafters.drawn_from import DrawnFrom, DrawnText
from localspec.drafters.suffix_store import PastTexts


def add(store: PastTexts, *texts: Iterable[int]) -> None:
    """Keep texts of which nothing else is known."""
    store.add(*(DrawnText([*text], DrawnFrom()) for text in texts))


def loaded(store: PastTexts) -> list[list[int]]:
    """The tokens of the kept texts."""
    return [[*text.tokens] for text in store.load()]
