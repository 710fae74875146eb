"""Detokenizer: turns the bytes of tokens into text, up to a stop string."""

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Turns tokens into text incrementally: takes one token's bytes, returns the new text.

    stops: strings that end the text; a stop string and all after it are cut off. The stop string
    that is complete first counts, wherever tokens end; if several end there, the longest.

    Bytes of an incomplete character, and text that may be the start of a stop string, are held
    back until the next token.

    stop: the stop string that ended the text; None before.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.stop: str | None = None
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the text."""
        return self.stop is not None

    @property
    def within_character(self) -> bool:
        """Whether the bytes so far end within a character."""
        return bool(self._decoder.getstate()[0])

    @property
    def held(self) -> str:
        """The text that may be the start of a stop string."""
        return self._held

    def push(self, piece: bytes) -> str:
        """Add a token's bytes; returns the new text, which is empty after a stop string."""
        return self._release_certain(self._decoder.decode(piece))

    def push_standing(self, piece: bytes) -> str:
        """Add a token's bytes to a text that stands: a stop string in it does not end it.

        One may begin in it, and is complete with what is pushed behind it.
        """
        return self._release(self._held + self._decoder.decode(piece))

    def flush(self) -> str:
        """The text that was held back, at the end; an incomplete character becomes U+FFFD."""
        released = self._release_certain(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return released + held

    def _release_certain(self, text: str) -> str:
        if self.stopped:
            return ""
        held, text = len(self._held), self._held + text
        found = [
            (at + len(stop), at)
            for stop in self._stops
            # None ends in what is held: that is no stop string, or it stands.
            if (at := text.find(stop, max(0, held + 1 - len(stop)))) >= 0
        ]
        if found:
            end, at = min(found)
            self.stop, self._held = text[at:end], ""
            return text[:at]
        return self._release(text)

    def _release(self, text: str) -> str:
        """Hold back what may begin a stop string; returns the text before it."""
        certain = len(text) - self._possible_stop_length(text)
        self._held = text[certain:]
        return text[:certain]

    def _possible_stop_length(self, text: str) -> int:
        """The number of characters at the end that may begin a stop string."""
        return max(
            (
                size
                for stop in self._stops
                for size in range(1, min(len(stop), len(text) + 1))
                if text.endswith(stop[:size])
            ),
            default=0,
        )
