"""Detokenizer: the bytes of tokens as text, whole characters only, up to a stop string."""

import codecs
from collections.abc import Sequence


class Detokenizer:
    """Fed one token's bytes at a time, gives the text that is certain.

    stops: strings that end the text; they and what follows them are not part of it. The first one
    to be complete counts, wherever the pieces were cut (of several, the longest).

    Bytes of a character that is not complete, and text that may turn out to be the start of a stop
    string, are held back.
    """

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self.stopped = False
        self._stops = tuple(stops)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def push(self, piece: bytes) -> str:
        """The text that has become certain; after a stop string, always empty."""
        return self._release(self._decoder.decode(piece))

    def flush(self) -> str:
        """What was held back, when nothing follows; half a character becomes U+FFFD."""
        released = self._release(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return released + held

    def _release(self, text: str) -> str:
        if self.stopped:
            return ""
        text = self._held + text
        found = [(at + len(stop), at) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)[1]]
        certain = len(text) - self._doubtful(text)
        self._held = text[certain:]
        return text[:certain]

    def _doubtful(self, text: str) -> int:
        """How many characters at the end may begin a stop string."""
        return max(
            (
                size
                for stop in self._stops
                for size in range(1, min(len(stop), len(text) + 1))
                if text.endswith(stop[:size])
            ),
            default=0,
        )
