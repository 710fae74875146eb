"""Addresses of workers, as `--rpc` and `--device` take them."""

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


def parse_address(text: str, option: str = "rpc") -> Address:
    """Return the address that `HOST:PORT` or `HOST` names. Raises InvalidValueError.

    option: what the user set, for the error.
    """
    host, _, port = text.strip().partition(":")
    number = int(port) if port.isdecimal() and len(port) <= 5 else 0
    if not port and not text.strip().endswith(":"):
        number = DEFAULT_PORT
    if not host or not host.isprintable() or not 0 < number < 1 << 16:
        raise InvalidValueError(f"{option} is {text!r:.80}; a worker is named HOST:PORT")
    return Address(host, number)


def parse_addresses(names: Sequence[str], option: str = "rpc") -> list[Address]:
    """Return the addresses of several workers. Raises InvalidValueError, also for doubles."""
    found = [parse_address(name, option) for name in names]
    for address in found:
        if found.count(address) > 1:
            given = ",".join(names)
            raise InvalidValueError(f"{option} is {given!r:.80}; it names {address} twice")
    return found
