"""Errors of the Hub and the network as one-line messages with the way out."""

from typing import Any
from urllib.request import getproxies

from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
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
from localspec.hub.address import endpoint_host, without_login
from localspec.hub.environment import offline_setting
from localspec.hub.retry import (
    StorageError,
    UnreachableError,
    WrongAnswer,
    distrust,
    server_delay,
)

__all__ = [
    "SILENT",
    "endpoint_name",
    "explain",
    "httpx",
    "reason",
    "require_usable_proxies",
    "unreachable",
]


class NotShownError(ModelNotFoundError):
    """The Hub has no such repository, or does not show it to whoever asks."""


class RefusedError(HubError):
    """The Hub has the repository, and does not give its files to whoever asks."""


SILENT = "it does not answer"

_PROXIES = ("http", "https", "socks5", "socks5h")
_LOG_IN = "log in with hf auth login or set HF_TOKEN"


def endpoint_name() -> str:
    """Return the host of the Hub that is in use (HF_ENDPOINT), without credentials."""
    return endpoint_host()


def explain(error: Exception, repository: str) -> LocalspecError:
    """Return the error to raise for one of huggingface_hub or its HTTP client.

    The message quotes no request and no server, so that it cannot contain a token.
    """
    if isinstance(error, HfHubHTTPError):
        return _explain_status(error, repository)
    if isinstance(error, OfflineModeIsEnabled):
        return HubError(f"{repository} cannot be fetched: {offline_setting()} forbids it; unset it")
    host = _host(error)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError):
        return _explain_connection(error, host)
    if isinstance(error, httpx.TimeoutException | httpx.NetworkError | httpx.RemoteProtocolError):
        return _explain_broken(error, host)
    if isinstance(error, httpx.UnsupportedProtocol):
        return HubError(f"{host} cannot be asked; let HF_ENDPOINT begin with https:// or http://")
    return HubError(
        f"{host} cannot be asked ({type(error).__name__}); check HF_ENDPOINT and the proxy settings"
    )


def reason(error: Exception) -> str:
    """Return why a request has failed, in some words, for an error after which it is sent again."""
    host = _host(error)
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if status == 429:
            return f"{host} got too many requests (429)"
        what = "refuses the file" if status < 500 else "has an error"
        return f"{host} {what} ({status})"
    if isinstance(error, UnreachableError | httpx.ConnectError | httpx.ProxyError):
        return f"there is no connection to {host}"
    if isinstance(error, httpx.TimeoutException):
        return f"{host} does not answer"
    if isinstance(error, WrongAnswer):
        return f"{host} sends {error}"
    return f"the connection to {host} broke"


def unreachable(host: str, why: object) -> UnreachableError:
    """Return the error for a host to which there is no connection."""
    return UnreachableError(
        f"cannot reach {host} ({why}); check the connection and HF_ENDPOINT, which may name a "
        "mirror, or HTTPS_PROXY; HF_HUB_OFFLINE=1 uses only what is on this machine",
        host,
    )


def require_usable_proxies() -> None:
    """Raise HubError where a proxy is of a kind that the HTTP client does not know."""
    for name, address in getproxies().items():
        kind, separator, _ = address.partition("://")
        if separator and name in ("all", "http", "https") and kind.lower() not in _PROXIES:
            raise HubError(
                f"the proxy {kind}:// in {name.upper()}_PROXY is of a kind that cannot be used; "
                "write socks5:// or http:// in front of it, or unset it"
            )


def _explain_connection(error: Exception, host: str) -> HubError:
    if why := distrust(error):
        return HubError(
            f"the certificate of {host} is not trusted ({why}); if a proxy or a mirror of yours "
            "signs it, set SSL_CERT_FILE to the file with its certificate; if not, check the clock"
        )
    if isinstance(error, httpx.ProxyError):  # whose text is the proxy's
        return unreachable(host, "the proxy in use does not connect to it")
    return unreachable(host, SILENT if isinstance(error, httpx.ConnectTimeout) else error)


def _explain_broken(error: Exception, host: str) -> HubError:
    """Return the error for a server that was reached, and from which no file comes."""
    if isinstance(error, httpx.TimeoutException):
        return HubError(
            f"{host} does not answer; try again later, what was fetched is kept "
            "(HF_HUB_DOWNLOAD_TIMEOUT is how many seconds to wait)"
        )
    if isinstance(error, WrongAnswer):
        return HubError(
            f"{host} sends {error}; a proxy or a mirror on the way may be why; what was fetched "
            "is kept; try again later or in another network"
        )
    return HubError(
        f"the connection to {host} breaks again and again; try again later, what was "
        "fetched is kept"
    )


def _explain_status(error: HfHubHTTPError, repository: str) -> LocalspecError:
    status, headers = error.response.status_code, error.response.headers
    if isinstance(error, StorageError):
        return _explain_other_status(error, repository)
    if isinstance(error, RemoteEntryNotFoundError | RevisionNotFoundError):
        return ModelNotFoundError(f"{repository} has changed meanwhile; pull it again")
    if isinstance(error, GatedRepoError) or status == 403:
        return _explain_refusal(error, repository)
    # Where the Hub means the repository and not the token, it gives a code.
    if status == 401 and _has_token(error) and not headers.get("X-Error-Code"):
        return HubError(f"{endpoint_name()} does not accept the token; {_LOG_IN} again")
    if isinstance(error, RepositoryNotFoundError) or status in (401, 404):
        way_out = _LOG_IN
        if _has_token(error):
            way_out = f"see that the token in use may read it ({_LOG_IN} again)"
        return NotShownError(
            f"{endpoint_name()} has no model {repository}, or it is private; check the name, or "
            f"{way_out}"
        )
    return _explain_other_status(error, repository)


def _explain_refusal(error: HfHubHTTPError, repository: str) -> RefusedError:
    if isinstance(error, DisabledRepoError):
        return RefusedError(
            f"{repository} is disabled on {endpoint_name()}, for everybody; choose another "
            "repository"
        )
    what, first = f"{_host(error)} refuses {repository} (403)", ""
    if isinstance(error, GatedRepoError):
        page = f"{without_login(constants.ENDPOINT)}/{repository}"
        what, first = f"{repository} is gated", f"accept its conditions at {page}, then "
    if _has_token(error):
        return RefusedError(
            f"{what}, and the token in use has no access to it; {first}see that the token may read "
            "gated repositories, or set another one"
        )
    return RefusedError(f"{what}; {first}{_LOG_IN}")


def _has_token(error: HfHubHTTPError) -> bool:
    return "authorization" in error.response.request.headers


def _explain_other_status(error: HfHubHTTPError, repository: str) -> HubError:
    status, host = error.response.status_code, _host(error)
    of_storage = isinstance(error, StorageError)
    if status == 429:
        seconds = server_delay(error)
        later = f"in {seconds:.0f} s" if seconds else "later"
        more = (
            "" if of_storage or _has_token(error) else f"; it allows more with a token: {_LOG_IN}"
        )
        return HubError(
            f"{host} got too many requests (429); try again {later}, what was fetched is kept{more}"
        )
    if status >= 500:
        return HubError(
            f"{host} has an error ({status}); try again later, what was fetched is kept"
        )
    if of_storage:
        return HubError(
            f"the storage {host} refuses the file ({status}), although the Hub names it; no token "
            "changes that; try again later, what was fetched is kept"
        )
    return HubError(f"{host} refuses {repository} ({status}); check HF_ENDPOINT")


def _host(error: Exception) -> str:
    """Return the host of the last request: the Hub, or the storage that it redirected to."""
    if isinstance(error, UnreachableError):
        return error.host
    requested: Any = error.response if isinstance(error, HfHubHTTPError) else error
    try:
        url = requested.request.url
    except (AttributeError, RuntimeError):
        return endpoint_name()
    return str(url.netloc.decode("ascii", "replace")) or endpoint_name()
