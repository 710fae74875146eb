"""Texts with images as drafters know them that read words alone."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec.speculation.drafter import Evaluated, Traits
from localspec.speculation.words import Words
from localspec.utils.media import BesideMedia, MediaToken, knows_media
from localspec.utils.tokens import common_prefix

MEDIA = SimpleNamespace(count=3, positions=3)
WORDS = st.integers(0, 3)
TOKENS = st.one_of(WORDS, st.integers(-3, -1).map(lambda n: MediaToken(n, MEDIA, 0)))
# The last word is pending when the others have been read.
TEXTS = st.builds(lambda tokens, pending: [*tokens, pending], st.lists(TOKENS, max_size=12), WORDS)
ANSWERS = st.lists(WORDS, max_size=4)


def drafter(**traits: Any) -> Any:
    return SimpleNamespace(traits=Traits(**traits))


READER, BLIND = drafter(reads_hidden=(0,)), drafter()
SEEING = drafter(reads_hidden=(0,), reads_media=True)


def rows_of(text: Sequence[int]) -> np.ndarray:
    """Rows that tell of the whole text up to their token, as those of a model do."""
    return np.array([[crc32(repr(text[: end + 1]).encode())] for end in range(len(text))])


def expected(text: Sequence[int]) -> list[tuple[int, int]]:
    """Each word, and the row of the last token in front of the next word."""
    found: list[tuple[int, int]] = []
    for token, (row,) in zip(text, rows_of(text), strict=True):
        if token >= 0:
            found.append((token, row))
        elif found:
            found[-1] = found[-1][0], row
    return found


@given(prompt=TEXTS, answer=ANSWERS, data=st.data())
def test_each_word_has_the_row_in_front_of_the_next(
    prompt: list[int], answer: list[int], data: st.DataObject
) -> None:
    """However the text is cut into passes, and wherever they begin."""
    words, text = Words(prompt), [*prompt, *answer]
    rows, found = rows_of(text), dict[int, tuple[int, int]]()
    start = 0
    while start < len(text) - 1:
        end = data.draw(st.integers(start + 1, len(text) - 1))
        again = data.draw(st.integers(0, start))
        evaluated = Evaluated(again, text[again:end], {0: rows[again:end]})
        shown = words.shown_to(READER, evaluated)
        assert words.shown_to(SEEING, evaluated) is evaluated
        for at, (token, (row,)) in enumerate(zip(shown.tokens, shown.hidden[0], strict=True)):
            found[shown.start + at] = int(token), row
        start = end
    assert [found[number] for number in range(len(found))] == expected(text[:-1])


@given(prompt=TEXTS, answer=ANSWERS)
def test_the_words_and_their_places(prompt: list[int], answer: list[int]) -> None:
    words, text = Words(prompt), [*prompt, *answer]
    plain = [token for token in text if token >= 0]
    assert [*words.as_read_by(SEEING, text)] == text
    assert [*words.as_read_by(BLIND, text)] == plain
    assert [int(word) for word in words.as_read_by(READER, text)] == plain
    assert [*words.as_read_by(READER, text)][:-1] == [*words.as_read_by(READER, text[:-1])]
    assert knows_media(words.as_read_by(READER, text)) == (len(plain) < len(text))
    assert words.has_media == (len(plain) < len(text))
    for count in range(len(plain) - len(answer)):
        place = words.place(READER, count)
        assert len([token for token in prompt[:place] if token >= 0]) == count
        assert prompt[place] >= 0
        assert words.place(SEEING, count) == count


@given(first=TEXTS, second=TEXTS)
def test_what_two_texts_have_in_common_has_the_same_rows(
    first: list[int], second: list[int]
) -> None:
    """A reader that keeps the rows of the words in common keeps no row of another image."""
    known, other = (Words(each).as_read_by(READER, each) for each in (first, second))
    common = common_prefix(known, other)
    assert expected(first)[:common] == expected(second)[:common]
    # No more is lost than the words from the image on that differs.
    assert common == common_prefix(other, known)
    if common < min(len(known), len(other)):
        assert expected(first)[common] != expected(second)[common]


def test_words_beside_images_equal_themselves_alone() -> None:
    image = [MediaToken(-5, MEDIA, 0), MediaToken(-6, MEDIA, 1)]
    word = BesideMedia(7, image)
    assert word == BesideMedia(7, [-5, -6])
    assert [word] == [BesideMedia(7, [-5, -6])]
    for another in (7, BesideMedia(7, [-5]), BesideMedia(8, image)):
        assert word != another and another != word
        assert [word] != [another] and [another] != [word]
    assert np.array([word, 8], np.int32).tolist() == [7, 8]
    assert {word: 1} == {BesideMedia(7, image): 1}
