"""What the Hub or the network said, in one line with the way out."""

from typing import Any
from urllib.parse import urlsplit

from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

# The HTTP client it is built on: which one depends on its version.
from huggingface_hub.utils import httpx

from localspec.errors import HubError, LocalspecError, ModelNotFoundError
from localspec.hub.retry import asked_to_wait

__all__ = ["endpoint", "explained", "httpx"]

_LOG_IN = "log in with hf auth login or set HF_TOKEN"


def endpoint() -> str:
    """The Hub that is asked (HF_ENDPOINT), as messages name it."""
    return urlsplit(constants.ENDPOINT).netloc.rpartition("@")[2] or constants.ENDPOINT


def explained(error: Exception, repository: str) -> LocalspecError:
    """An error of huggingface_hub or its HTTP client as one of ours.

    No text of a request or a server is repeated, so that no token can be.
    """
    if isinstance(error, HfHubHTTPError):
        return _refused(error, repository)
    if isinstance(error, OfflineModeIsEnabled):
        return HubError(f"{repository} cannot be fetched: HF_HUB_OFFLINE forbids it; unset it")
    host = _host(error)
    if isinstance(error, httpx.ConnectError):
        return HubError(
            f"cannot reach {host} ({error}); check the connection and HF_ENDPOINT, or set "
            "HF_HUB_OFFLINE=1 to use only what is on this machine"
        )
    if isinstance(error, httpx.TimeoutException):
        return HubError(
            f"{host} does not answer; try again later, what was fetched is kept "
            "(HF_HUB_DOWNLOAD_TIMEOUT is how many seconds to wait)"
        )
    if isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError):
        return HubError(
            f"the connection to {host} breaks off again and again; try again later, what was "
            "fetched is kept"
        )
    return HubError(
        f"{host} cannot be asked ({type(error).__name__}); check HF_ENDPOINT and the proxy settings"
    )


def _refused(error: HfHubHTTPError, repository: str) -> LocalspecError:
    status = error.response.status_code
    told = error.response.headers.get("X-Error-Message", "")
    if isinstance(error, GatedRepoError):
        return _gated(error, repository)
    if status == 401 and told.startswith("Invalid credentials"):
        return HubError(f"{endpoint()} does not accept the token; {_LOG_IN} again")
    if isinstance(error, RemoteEntryNotFoundError | RevisionNotFoundError):
        return ModelNotFoundError(f"{repository} has changed meanwhile; pull it again")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        return ModelNotFoundError(
            f"{endpoint()} has no model {repository}, or it is private; check the name, or "
            f"{_LOG_IN}"
        )
    return _unwilling(error, repository)


def _gated(error: HfHubHTTPError, repository: str) -> HubError:
    page = f"{constants.ENDPOINT}/{repository}"
    if "authorization" in error.response.request.headers:
        return HubError(
            f"{repository} is gated, and the token in use has no access to it yet; accept its "
            f"conditions at {page}, and see that the token may read gated repositories"
        )
    return HubError(f"{repository} is gated; accept its conditions at {page}, then {_LOG_IN}")


def _unwilling(error: HfHubHTTPError, repository: str) -> HubError:
    status, host = error.response.status_code, _host(error)
    if status == 403:
        return HubError(
            f"{host} refuses {repository} (403); {_LOG_IN}, with a token that may read it"
        )
    if status == 429:
        seconds = asked_to_wait(error)
        later = f"in {seconds:.0f} s" if seconds else "later"
        return HubError(
            f"{host} has had too many requests (429); try again {later}, what was fetched is kept"
        )
    if status >= 500:
        return HubError(
            f"{host} is in trouble ({status}); try again later, what was fetched is kept"
        )
    return HubError(f"{host} refuses {repository} ({status}); check HF_ENDPOINT")


def _host(error: Exception) -> str:
    """Who was asked last: the Hub, or where it sent us."""
    asked: Any = error.response if isinstance(error, HfHubHTTPError) else error
    try:
        url = asked.request.url
    except (AttributeError, RuntimeError):
        return endpoint()
    return str(url.netloc.decode("ascii", "replace")) or endpoint()
