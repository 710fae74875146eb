"""Address: where the server listens, and who may use it."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from localspec.errors import InvalidValueError

HOST, PORT = "127.0.0.1", 8080
# All addresses of a machine, and the one of them by which its own programs reach it.
_THIS_MACHINE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
# Addresses that are reserved for documents, and belong to nobody.
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server listens, and who may use it.

    hosts: names under which it may be addressed besides its address. key, origins, most_bytes: as
    in Guard.
    """

    host: str = HOST
    port: int = PORT
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    key: str | None = None
    most_bytes: int = 32 * 2**20

    def __post_init__(self) -> None:
        if not self.is_local and self.key is None:
            raise InvalidValueError(
                f"host is {self.host!r}, which others can reach; give it a key (--api-key-file "
                "FILE, or LOCALSPEC_API_KEY)"
            )

    @property
    def is_local(self) -> bool:
        """Whether only programs of this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def url(self) -> str:
        """The base URL for programs of this machine."""
        return self._url(_THIS_MACHINE.get(self.host, self.host))

    @property
    def others(self) -> str:
        """Where other machines reach it, in words; empty where the base URL says it.

        A server that listens at all addresses of a machine has as many URLs.
        """
        if self.host not in _THIS_MACHINE:
            return ""
        # At 0.0.0.0 it listens at those of IPv4 alone.
        known = [each for each in own_addresses() if self.host == "::" or ":" not in each]
        found = [self._url(each) for each in known]
        return " or ".join(found) or f"port {self.port} at any address of this machine"

    def _url(self, host: str) -> str:
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def own_addresses() -> list[str]:
    """The addresses from which this machine would speak to others; none without a network."""
    found: list[str] = []
    for family, elsewhere in _ELSEWHERE.items():
        # This sends nothing: it only asks the system for a route.
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((elsewhere, 9))
            found.append(asked.getsockname()[0])
    return found
