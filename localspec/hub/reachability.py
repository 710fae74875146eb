"""Reachability: whether an address of the Hub, or of its storage, answers; all are tried at once.

The HTTP client tries one address after the other, each for its whole time-out, and huggingface_hub
sends a request of its own before the first one: minutes, where the packets to the Hub are dropped.
"""

import errno
import os
import selectors
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from threading import Lock, Timer
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from huggingface_hub import constants, get_session, set_client_factory

from localspec.hub.error_messages import SILENT, httpx, unreachable
from localspec.hub.retry import SILENCE
from localspec.utils.progress import report_progress

# Seconds for all addresses together: each gets a packet at once, after one second and after three.
_PATIENCE = 5.0
# What connecting over IPv6 may take longer than over IPv4, in seconds, before it is left out.
_HEAD_START = 0.3
_ANY_IPV4 = "0.0.0.0"
_switching, _only_ipv4 = Lock(), False
_PORTS = {"http": 80, "https": 443}
# What connecting without waiting returns where it has not failed.
_BEGUN = (0, errno.EINPROGRESS, errno.EWOULDBLOCK, getattr(errno, "WSAEWOULDBLOCK", 0))
_Address = tuple[int, tuple[Any, ...]]


def require_answer(server: str | None = None) -> None:
    """Raise HubError where a server has no address, or where none of them answers.

    server: its address; None is the Hub's, whose addresses of IPv6 are left out from then on where
    they alone drop packets. An address that refuses does answer. A server behind a
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
    addresses = [(family, address) for family, _, _, _, address in found]
    if _all_silent(addresses, seconds):
        raise unreachable(url.netloc.rpartition("@")[2], SILENT)
    # Of the Hub alone: later, other threads use the client.
    if server is None and not _only_ipv4 and _drops_ipv6(addresses):
        _leave_out_ipv6()


@contextmanager
def silence_told(host: str) -> Iterator[None]:
    """Report as progress that a server sends nothing, where the block takes that long."""
    context = copy_context()
    say = f"nothing has come from {host} for {SILENCE:.0f} s"
    timer = Timer(SILENCE, context.run, [report_progress, say])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _has_proxy(scheme: str, host: str) -> bool:
    return not getproxies().keys().isdisjoint({scheme, "all"}) and not proxy_bypass(host)


def _all_silent(found: Sequence[_Address], seconds: float) -> bool:
    """Whether no address accepts a connection within these seconds.

    Where each of them refuses at once, the HTTP client learns the reason as fast.
    """
    with _connecting(found) as pending:
        if next(_connected(pending, seconds), None):
            return False
        return bool(pending.get_map())


def _drops_ipv6(found: Sequence[_Address]) -> bool:
    """Whether addresses of IPv6 are silent for longer than one of IPv4 needs."""
    if len({family for family, _ in found}) < 2:
        return False
    with _connecting(found) as pending:
        families = [each.family for each in _connected(pending, _HEAD_START)]
        silent = {cast(socket.socket, key.fileobj).family for key in pending.get_map().values()}
    return socket.AF_INET6 in silent and {*families} == {socket.AF_INET}


@contextmanager
def _connecting(found: Sequence[_Address]) -> Iterator[selectors.BaseSelector]:
    """Begin a connection to each address; yield what tells when one of them ends."""
    with ExitStack() as opened, selectors.DefaultSelector() as pending:
        for family, address in found:
            try:
                connection = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
            except OSError:  # this machine has no IPv6
                continue
            connection.setblocking(False)
            if connection.connect_ex(address) in _BEGUN:
                pending.register(connection, selectors.EVENT_WRITE)
        yield pending


def _connected(pending: selectors.BaseSelector, seconds: float) -> Iterator[socket.socket]:
    """Yield connections as they are accepted within these seconds, until none is pending."""
    until = monotonic() + seconds
    while pending.get_map() and (left := until - monotonic()) > 0:
        for key, _ in pending.select(left):
            ended = cast(socket.socket, pending.unregister(key.fileobj).fileobj)
            if not ended.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                yield ended


def _leave_out_ipv6() -> None:
    """Let huggingface_hub's client connect over IPv4 alone, for the rest of this process.

    It tries the addresses of IPv6 first, each for its whole time-out: minutes, where the packets to
    them are dropped and those over IPv4 are not.
    """
    global _only_ipv4
    with _switching:
        if _only_ipv4 or not getproxies().keys().isdisjoint({*_PORTS, "all"}):
            return
        _only_ipv4 = True
        hooks = get_session().event_hooks
        over_ipv4 = {"all://": httpx.HTTPTransport(local_address=_ANY_IPV4)}
        set_client_factory(
            lambda: httpx.Client(
                event_hooks=hooks, follow_redirects=True, timeout=None, mounts=over_ipv4
            )
        )
