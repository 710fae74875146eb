"""Addresses of workers."""

import pytest

from localspec.errors import InvalidValueError
from localspec.workers.address import Address, parse_address, parse_addresses


def test_a_port_may_be_left_out() -> None:
    assert parse_address(" desk ") == Address("desk", 50052)
    assert str(parse_address("10.0.0.2:7")) == "10.0.0.2:7"


@pytest.mark.parametrize(
    "text", ["", ":", "desk:", ":5", "desk:0", "desk:65536", "desk:-1", "desk:x", "::1", "a\n:1"]
)
def test_what_names_no_worker_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match="a worker is named HOST:PORT"):
        parse_address(text)


def test_each_worker_is_named_once() -> None:
    with pytest.raises(InvalidValueError, match="it names desk:50052 twice"):
        parse_addresses(["desk", "lap", "desk:50052"])
