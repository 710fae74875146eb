"""What may go wrong between the fake Hub and who asks it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Origin = Literal["hub", "cdn"]
_CHUNK = 16 * 1024


@dataclass
class Faults:
    """Set at any time; all of it holds until it is set otherwise, except what counts down.

    statuses: what an origin answers its next requests with, one each, in order. retry_after:
    seconds, said with a 429. bytes_per_second: of one answer. cut_after, cuts: the connection is
    closed after so many bytes of a file, in so many answers. ignore_range: 200 and all of it,
    whatever was asked. wrong_bytes: the last byte of a file is another one.
    """

    statuses: dict[Origin, list[int]] = field(default_factory=lambda: {"hub": [], "cdn": []})
    retry_after: int | None = None
    bytes_per_second: float | None = None
    cut_after: int = 0
    cuts: int = 0
    ignore_range: bool = False
    wrong_bytes: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def status(self, origin: Origin) -> int | None:
        """What to answer instead, None for what is right."""
        with self._lock:
            left = self.statuses[origin]
            return left.pop(0) if left else None

    def send(
        self, body: bytes, write: Callable[[bytes], None], pause: Callable[[float], bool]
    ) -> bool:
        """Write a file, or some of it; whether it was all that was promised.

        pause: waits some seconds and tells whether to stop.
        """
        promised = len(body)
        if self.wrong_bytes and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if self._cut(promised):
            body = body[: self.cut_after]
        for at in range(0, len(body), _CHUNK):
            chunk = body[at : at + _CHUNK]
            write(chunk)
            if self.bytes_per_second and pause(len(chunk) / self.bytes_per_second):
                return False
        return len(body) == promised

    def _cut(self, promised: int) -> bool:
        with self._lock:
            if not self.cuts or promised <= self.cut_after:
                return False
            self.cuts -= 1
            return True
