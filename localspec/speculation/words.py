"""Words: a text with images or sounds, as drafters know it that read words alone."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

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
        # The places of the words in the text, and the words, those beside images marked as such.
        self._places = [place for place, token in enumerate(self._text) if token >= 0]
        self._words = self._marked()

    def _marked(self) -> list[int]:
        words = list[int]()
        for place, end in zip(self._places, [*self._places[1:], len(self._text)], strict=False):
            # The first word, a 0 among them, is beside what is in front of it, too.
            beside = [min(each, 0) for each in self._text[place + 1 if words else 0 : end]]
            token = self._text[place]
            words.append(BesideMedia(token, beside) if has_media(beside) else token)
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
        return count if self._is_all_known_by(drafter) else self._places[count]

    def shown_to(self, drafter: Drafter, evaluated: Evaluated) -> Evaluated:
        """Tokens that were evaluated, with their hidden rows, as the drafter knows them."""
        if self._is_all_known_by(drafter):
            return evaluated
        start, size, words = evaluated.start, len(self._text), self._words
        if start >= size:
            return Evaluated(start - size + len(words), evaluated.tokens, evaluated.hidden)
        rows = [
            row
            for row in range(len(evaluated.tokens))
            if start + row + 1 >= size or self._text[start + row + 1] >= 0
        ]
        first = bisect_right(self._places, start + rows[0]) - 1 if rows else 0
        if first < 0:  # an image at the beginning of the text
            rows, first = rows[1:], 0
        tokens = [*words, *evaluated.tokens[max(0, size - start) :]][first : first + len(rows)]
        hidden = {layer: each[rows] for layer, each in evaluated.hidden.items()}
        return Evaluated(first, tokens, hidden)

    def _is_all_known_by(self, drafter: Drafter) -> bool:
        return drafter.traits.reads_media or not self.has_media
