"""Media: images and sounds in a text. Each of their rows stands among the ids as a token below 0.

A model computes such a row from numbers instead of a token's embedding; it is never drawn. So a
text with an image is a sequence of ids as any other, and two texts share a beginning as far as
their images are the same, too.
"""

from collections.abc import Sequence
from typing import Protocol


class Media(Protocol):
    """An image or a sound of a text.

    count: its rows. positions: how many places it takes in the rotations of a model that tells rows
    and columns of an image apart; elsewhere as many as rows.
    """

    @property
    def count(self) -> int: ...

    @property
    def positions(self) -> int: ...


class MediaToken(int):
    """A row of an image or a sound, as a number below 0, which no vocabulary has.

    media: what it is a row of. place: which one.
    """

    media: Media
    place: int

    def __new__(cls, number: int, media: Media, place: int) -> "MediaToken":
        """number: equal for the same row of equal media only."""
        token = super().__new__(cls, number)
        token.media, token.place = media, place
        return token


class BesideMedia(int):
    """A token of the vocabulary beside images or sounds, for a reader that knows words alone.

    It equals only itself beside the same ones. beside: the numbers of their rows.
    """

    beside: tuple[int, ...]

    def __new__(cls, token: int, beside: Sequence[int]) -> "BesideMedia":
        found = super().__new__(cls, token)
        found.beside = tuple(map(int, beside))
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BesideMedia):
            return False
        return int(self) == int(other) and self.beside == other.beside

    def __ne__(self, other: object) -> bool:  # or else that of int
        return not self == other

    __hash__ = int.__hash__


_MEDIA = {MediaToken, BesideMedia}


def unmarked(tokens: Sequence[int]) -> Sequence[int]:
    """The tokens without what tells that they are beside media."""
    return [*map(int, tokens)] if BesideMedia in set(map(type, tokens)) else tokens


def has_media(tokens: Sequence[int]) -> bool:
    """Whether there is an image or a sound among these tokens."""
    return min(tokens, default=0) < 0


def knows_media(tokens: Sequence[int]) -> bool:
    """Whether there is an image or a sound among or beside these tokens."""
    return not _MEDIA.isdisjoint(map(type, tokens))


def words_of(tokens: Sequence[int]) -> Sequence[int]:
    """The tokens of the vocabulary, without images and sounds."""
    return [token for token in tokens if token >= 0] if has_media(tokens) else tokens


def words_before_media(tokens: Sequence[int]) -> int:
    """How many tokens there are before the first of an image or a sound."""
    return next((count for count, token in enumerate(tokens) if token < 0), len(tokens))


def same_kind(tokens: Sequence[int], at: int, most: int) -> int:
    """How many tokens from `at` on, at most `most`, can be in one pass: words, or of one image."""
    first = tokens[at]
    if isinstance(first, MediaToken):
        return min(most, first.media.count - first.place)
    words = tokens[at : at + most]
    return words_before_media(words) if has_media(words) else len(words)


def outside_media(tokens: Sequence[int], length: int) -> int:
    """The most of the first `length` tokens that end in no image but at its end."""
    if 0 < length < len(tokens):
        following = tokens[length]
        if isinstance(following, MediaToken):
            return length - following.place
    return length
