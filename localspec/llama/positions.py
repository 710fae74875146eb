"""Positions: where tokens are in the rotations of a model that tells rows and columns apart."""

from collections.abc import Sequence

from localspec.utils.media import MediaToken, has_media


class Positions:
    """The position of each token of a text; with images it may be less than its place (M-RoPE).

    All rows of an image have the position where it begins, and rows and columns beside it; what
    follows goes on behind the longer side of the image.
    """

    def __init__(self) -> None:
        # Of each image: where it begins, its rows, and the positions that it takes.
        self._images: list[tuple[int, int, int]] = []

    def add(self, start: int, count: int, positions: int) -> None:
        """An image of `count` rows begins behind `start` tokens."""
        self.cut(start)  # as its other passes say it, or one that was not computed
        if positions != count:
            self._images.append((start, count, positions))

    def of(self, length: int) -> int:
        """The position of the token behind `length` tokens; in an image, where that begins."""
        saved = 0
        for start, count, positions in self._images:
            if length >= start + count:
                saved += count - positions
            elif length > start:
                return start - saved
        return length - saved

    def whole(self, length: int) -> int:
        """The most of `length` tokens that end in no image: its rows can only go together."""
        for start, count, _ in self._images:
            if start < length < start + count:
                return start
        return length

    def cut(self, length: int) -> None:
        """Forget the images behind `length` tokens."""
        self._images = [each for each in self._images if each[0] < length]

    def copy(self, other: "Positions", length: int) -> None:
        """Take those of the first `length` tokens of another text."""
        self._images = list(other._images)
        self.cut(length)

    def read(self, tokens: Sequence[int]) -> None:
        """Take those of a text."""
        self._images = []
        if has_media(tokens):
            for start, token in enumerate(tokens):
                if isinstance(token, MediaToken) and token.place == 0:
                    self.add(start, token.media.count, token.media.positions)
