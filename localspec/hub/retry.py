"""Retry: which errors of a server are temporary, and how long to wait before the next attempt."""

import re
from time import monotonic

from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx, parse_ratelimit_headers

from localspec.errors import HubError

# Attempts after the first one, without progress between them.
MAX_RETRIES = 5
# Seconds before the first retry; each further delay is twice as long, up to the longest.
FIRST_DELAY, LONGEST_DELAY = 0.5, 8.0
# Seconds for which a download that has begun waits for the network, and its longest delay.
_PATIENCE, _PATIENT_DELAY = 15 * 60.0, 30.0
# Seconds without an answer after which it is said that the server is silent.
SILENCE = 5.0
# Seconds; where the server asks for a longer delay, there is no retry. The Hub counts requests in
# windows of five minutes, which a download that has begun waits for.
_LONGEST_SERVER_DELAY, _PATIENT_SERVER_DELAY = 60.0, 300.0
# What a server answers where it is not the request that is wrong.
_TEMPORARY = (408, 429, 500, 502, 503, 504)
# The network may be gone, or the server, or a proxy between them.
_NO_ANSWER = httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError
# The answer of a proxy that wants a login, or allows no connection to this server.
_REFUSED = re.compile(r"4\d\d\b")
# How Python words that a certificate is not trusted, and why.
_DISTRUST = re.compile(r"certificate verify failed: (.+?)\.?(?: \(_ssl\.c|$)")


class UnreachableError(HubError):
    """There is no connection to a server. host: of that server."""

    def __init__(self, message: str, host: str) -> None:
        super().__init__(message)
        self.host = host


class WrongAnswer(httpx.RemoteProtocolError):
    """A server does answer, but not with what was requested. Its text: with what."""


class StorageError(HfHubHTTPError):
    """The storage answers with an error, for which the Hub's words for this status do not hold.

    The Hub signed the address, and signs a fresh one for each attempt.
    """


class Arrivals:
    """When new bytes last came in any of the transfers of one download.

    One file may wait, without a byte of its own, for the network that the others wait for.
    """

    def __init__(self) -> None:
        self._last: float | None = None

    def note(self) -> None:
        """Note that new bytes have come."""
        self._last = monotonic()

    @property
    def silence(self) -> float | None:
        """Seconds since new bytes came; None where none have come."""
        return None if self._last is None else monotonic() - self._last


def retry_delay(error: Exception, failures: int, silence: float | None = None) -> float | None:
    """Return the seconds to wait after so many failures; None where a retry is of no use.

    silence: seconds since new bytes came; None where none have come, or where the server sends what
    is here already.
    """
    away = _is_away(error)
    patient = away and silence is not None
    over = (silence or 0.0) > _PATIENCE if patient else failures > MAX_RETRIES
    if over or not (away or isinstance(error, WrongAnswer | StorageError)):
        return None
    delay = server_delay(error)
    if delay is None:
        longest = _PATIENT_DELAY if patient else LONGEST_DELAY
        return min(longest, FIRST_DELAY * 2.0 ** min(failures - 1, 10))
    return delay if delay <= (_PATIENT_SERVER_DELAY if patient else _LONGEST_SERVER_DELAY) else None


def server_delay(error: Exception) -> float | None:
    """Return the seconds that the server asks to wait (Retry-After, or the Hub's own RateLimit)."""
    if not isinstance(error, HfHubHTTPError):
        return None
    header = error.response.headers.get("Retry-After", "").strip()
    if header.isdecimal():
        return float(header)
    limit = parse_ratelimit_headers(error.response.headers)
    return float(limit.reset_in_seconds) if limit and not limit.remaining else None


def distrust(error: Exception) -> str | None:
    """Return why the certificate of a server is not trusted; None for every other error."""
    found = _DISTRUST.search(str(error)) if isinstance(error, httpx.ConnectError) else None
    return found[1] if found else None


def _is_away(error: Exception) -> bool:
    """Whether the network or the server is away, or has more to do than it can, for a while."""
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _TEMPORARY
    if distrust(error) or isinstance(error, WrongAnswer):
        return False
    if isinstance(error, httpx.ProxyError):
        return not _REFUSED.match(str(error))
    return isinstance(error, _NO_ANSWER | UnreachableError)
