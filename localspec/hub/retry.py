"""Retry: which refusals of a server pass, and how long to wait until then."""

from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import httpx, parse_ratelimit_headers

# How often in a row the same thing is tried again.
RETRIES = 5
# Seconds before the first of them; each of the next waits twice as long, up to the longest.
SHORTEST, LONGEST = 0.5, 8.0
# Seconds that a server may ask for.
_PATIENCE = 60.0
# 416: the part that is here is longer than what the server has; it is dropped meanwhile.
_PASSING = (408, 416, 429, 500, 502, 503, 504)


def pause(error: Exception, failed: int) -> float | None:
    """Seconds to wait before trying again after so many failures, None if that is of no use."""
    if failed > RETRIES or not _passing(error):
        return None
    asked = asked_to_wait(error)
    if asked is None:
        return min(LONGEST, SHORTEST * 2.0 ** (failed - 1))
    return asked if asked <= _PATIENCE else None


def asked_to_wait(error: Exception) -> float | None:
    """Seconds the server asks to wait (Retry-After, or the Hub's own RateLimit)."""
    if not isinstance(error, HfHubHTTPError):
        return None
    told = error.response.headers.get("Retry-After", "").strip()
    if told.isdecimal():
        return float(told)
    limit = parse_ratelimit_headers(error.response.headers)
    return float(limit.reset_in_seconds) if limit and not limit.remaining else None


def _passing(error: Exception) -> bool:
    if isinstance(error, HfHubHTTPError):
        return error.response.status_code in _PASSING
    return isinstance(
        error, httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError
    )
