"""Reachability: whether an address of the Hub, or of its storage, answers; all are tried at once.

The HTTP client tries one address after the other, each for its whole time-out, and huggingface_hub
sends a request of its own before the first one: minutes, where the packets to the Hub are dropped.
"""

import errno
import os
import selectors
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from huggingface_hub import constants

from localspec.hub.error_messages import SILENT, unreachable

# Seconds for all addresses together: each gets a packet at once, after one second and after three.
_PATIENCE = 5.0
_PORTS = {"http": 80, "https": 443}
# What connecting without waiting returns where it has not failed.
_BEGUN = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, getattr(errno, "WSAEWOULDBLOCK", 0))
_Address = tuple[int, tuple[Any, ...]]


def require_answer(server: str | None = None) -> None:
    """Raise HubError where a server has no address, or where none of them answers.

    server: its address; None is the Hub's. An address that refuses does answer. A server behind a
    proxy is not tried, and what is no address is left to the HTTP client.
    """
    try:
        url = urlsplit(server or constants.ENDPOINT)
        host, port = url.hostname or "", url.port or _PORTS[url.scheme]
    except (ValueError, KeyError):
        return
    if not host.isprintable() or _has_proxy(url.scheme, host):
        return
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise unreachable(url.netloc.rpartition("@")[2], error) from error
    asked = constants.HF_HUB_ETAG_TIMEOUT
    # The time that a user has set is kept.
    own = "HF_HUB_ETAG_TIMEOUT" in os.environ or asked != constants.DEFAULT_ETAG_TIMEOUT
    seconds = float(asked) if own else _PATIENCE
    if _all_silent([(family, address) for family, _, _, _, address in found], seconds):
        raise unreachable(url.netloc.rpartition("@")[2], SILENT)


def _has_proxy(scheme: str, host: str) -> bool:
    return not getproxies().keys().isdisjoint({scheme, "all"}) and not proxy_bypass(host)


def _all_silent(found: Sequence[_Address], seconds: float) -> bool:
    """Whether no address accepts a connection within these seconds.

    Where each of them refuses at once, the HTTP client learns the reason as fast.
    """
    until = monotonic() + seconds
    with ExitStack() as opened, selectors.DefaultSelector() as pending:
        for family, address in found:
            try:
                connection = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            except OSError:  # this machine has no IPv6
                continue
            connection.setblocking(False)
            if connection.connect_ex(address) in _BEGUN:
                pending.register(connection, selectors.EVENT_WRITE)
        while pending.get_map() and (left := until - monotonic()) > 0:
            for key, _ in pending.select(left):
                ended = pending.unregister(key.fileobj).fileobj
                if not cast(socket.socket, ended).getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    return False
        return bool(pending.get_map())
