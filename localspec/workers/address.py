"""Addresses of workers, as `--rpc` takes them."""

from collections.abc import Sequence
from typing import NamedTuple

from localspec.errors import InvalidValueError

# llama.cpp's own default.
DEFAULT_PORT = 50052


class Address(NamedTuple):
    """Where a worker listens: a name or an IPv4 address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address that `HOST:PORT` or `HOST` names. Raises InvalidValueError."""
    host, _, port = text.strip().partition(":")
    number = int(port) if port.isdecimal() and len(port) <= 5 else 0
    if not port and not text.strip().endswith(":"):
        number = DEFAULT_PORT
    if not host or not host.isprintable() or not 0 < number < 1 << 16:
        raise InvalidValueError(f"rpc is {text!r:.80}; a worker is named HOST:PORT")
    return Address(host, number)


def parse_addresses(names: Sequence[str]) -> list[Address]:
    """Return the addresses of several workers. Raises InvalidValueError, also for doubles."""
    found = [parse_address(name) for name in names]
    for address in found:
        if found.count(address) > 1:
            raise InvalidValueError(f"rpc names {address} twice; name each worker once")
    return found
