"""Words: a text with images or sounds, as drafters know it that read words alone."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from localspec.speculation.drafter import Drafter, Evaluated
from localspec.utils.media import BesideMedia, has_media, words_of


class Words:
    """The words of a text, of which more words may follow.

    text: as far as it is known; a word is its last token. has_media: whether there are images or
    sounds in it.

    The hidden row of a word is that of the last token before the next word, as the target knew the
    next one from it: for a word before an image, the image's last row. So a drafter that reads
    hidden rows tells texts with the same words beside other images apart (see BesideMedia).
    """

    def __init__(self, text: Sequence[int]) -> None:
        self.has_media = has_media(text)
        self._text = list(text) if self.has_media else []

    @cached_property
    def _places(self) -> list[int]:
        """The places of the words in the text."""
        return [place for place, token in enumerate(self._text) if token >= 0]

    @cached_property
    def _words(self) -> list[int]:
        """The words of the text; those beside images are marked as such, before and behind them."""
        words = [self._text[place] for place in self._places]
        media = {
            number: self._text[start + 1 : end]
            for number, (start, end) in enumerate(pairwise([-1, *self._places]))
            if end - start > 1
        }
        for number in {each - before for each in media for before in (0, 1) if each >= before}:
            beside = [*media.get(number, ()), 0, *media.get(number + 1, ())]
            words[number] = BesideMedia(words[number], beside)
        return words

    def as_read_by(self, drafter: Drafter, text: Sequence[int]) -> Sequence[int]:
        """The text as the drafter knows it, or its beginning, or with words that follow."""
        if self._is_all_known_by(drafter):
            return text
        if drafter.traits.reads_hidden:
            count = bisect_left(self._places, len(text))
            return [*self._words[:count], *text[len(self._text) :]]
        return words_of(text)

    def place(self, drafter: Drafter, count: int) -> int:
        """The place in the text of the drafter's token number `count`."""
        if self._is_all_known_by(drafter):
            return count
        return self._places[count] if count < len(self._places) else len(self._text)

    def place_to_mark(self, place: int) -> int:
        """Where to mark a text that others begin with up to a place.

        Before a word that is followed by an image, as its row is another beside another image.
        """
        return place - 1 if place > 0 and has_media(self._text[place : place + 1]) else place

    def shown_to(self, drafter: Drafter, evaluated: Evaluated) -> Evaluated:
        """Tokens that were evaluated, with their hidden rows, as the drafter knows them."""
        if self._is_all_known_by(drafter):
            return evaluated
        start, size, words = evaluated.start, len(self._text), self._words
        if start >= size:
            return replace(evaluated, start=start - size + len(words))
        # The words behind these; the row of each word is in front of the next.
        end = start + len(evaluated.tokens) + 1
        first = max(1, bisect_right(self._places, start))
        following = [*self._places[first : bisect_left(self._places, end)], *range(size, end)]
        rows = [place - 1 - start for place in following]
        tokens = words[first - 1 : first - 1 + len(rows)]
        tokens += evaluated.tokens[len(evaluated.tokens) - len(rows) + len(tokens) :]
        hidden = {layer: each[rows] for layer, each in evaluated.hidden.items()}
        return replace(evaluated, start=first - 1, tokens=tokens, hidden=hidden)

    def _is_all_known_by(self, drafter: Drafter) -> bool:
        return drafter.traits.reads_media or not self.has_media
