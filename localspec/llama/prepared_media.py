"""Prepared media: the images and sounds that are ready for texts to have them, as tokens.

Each has its pixels, so only some are kept: those of texts in caches, those that were asked for
last, and those that wait for their text.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b, sha256
from weakref import ref

from localspec.utils.media import Media, MediaToken

# How many are kept beside those of texts; with those that wait for their text.
_KEPT, _MOST_KEPT = 8, 32
# And so many rows at most, each of some 10 kB of pixels; a single image may have more.
_MOST_KEPT_ROWS = 16_384
# Tokens of the vocabulary, or an image, or one of the parts that a model cuts an image into.
Part = list[int] | Media


class PreparedMedia:
    """The images and sounds of a projector, by their contents; for one thread at a time."""

    def __init__(self) -> None:
        # Those that were asked for last are at the end, and those that wait for their text.
        self._tokens: OrderedDict[bytes, list[int]] = OrderedDict()
        self._waiting: set[bytes] = set()
        # Of all that are in texts.
        self._parts: dict[bytes, Sequence[list[int] | ref[Media]]] = {}

    def tokens(
        self, data: bytes, read: Callable[[bytes], Iterable[Part]], *, waits: bool
    ) -> list[int]:
        """The tokens of a file's contents.

        read: its parts; called where they are not kept. waits: whether it is kept until its tokens
        are asked for again.
        """
        key = sha256(data).digest()
        known = self._tokens.get(key) or [*_spelled(self._in_texts(key), key)]
        if not known:
            parts = [*read(data)]
            self._parts[key] = [each if isinstance(each, list) else ref(each) for each in parts]
            known = [*_spelled(parts, key)]
        self._tokens[key] = known
        self._tokens.move_to_end(key)
        if waits:
            self._waiting.add(key)
        else:
            self._waiting.discard(key)
        self._forget()
        return [*known]

    def clear(self) -> None:
        """Keep none any more."""
        self._tokens.clear()
        self._waiting.clear()
        self._parts.clear()

    def _in_texts(self, key: bytes) -> Sequence[Part]:
        """The parts of an image that some text still has; none without one."""
        parts = [each if isinstance(each, list) else each() for each in self._parts.get(key, ())]
        found = [each for each in parts if each is not None]
        return found if len(found) == len(parts) else ()

    def _forget(self) -> None:
        """Drop those that were asked for long ago, and do not wait; of all, a few stay at most."""
        others = [key for key in self._tokens if key not in self._waiting]
        for key in {*others[:-_KEPT], *[*self._tokens][:-_MOST_KEPT]}:
            del self._tokens[key]
        while len(self._tokens) > 1 and sum(map(len, self._tokens.values())) > _MOST_KEPT_ROWS:
            self._tokens.popitem(last=False)
        self._waiting &= self._tokens.keys()
        self._parts = {key: parts for key, parts in self._parts.items() if self._in_texts(key)}


def _spelled(parts: Iterable[Part], key: bytes) -> Iterator[int]:
    """The tokens of the parts of a file. key: its digest."""
    for number, part in enumerate(parts):
        if isinstance(part, list):
            yield from part
        else:
            for place in range(part.count):
                yield MediaToken(_number(key, number, place), part, place)


def _number(key: bytes, part: int, place: int) -> int:
    """A number below 0 for a row; other media have others at nearly every place."""
    digest = blake2b(key + part.to_bytes(4, "little") + place.to_bytes(4, "little"), digest_size=4)
    return -1 - int.from_bytes(digest.digest(), "little") % (2**31 - 1)
