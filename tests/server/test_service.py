"""The model as protocols see it."""

import threading
from collections.abc import Iterator

import pytest

import localspec
from localspec.errors import InvalidValueError
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool


@pytest.fixture
def service(own_cache: None) -> Iterator[Service]:
    with localspec.load(draft="none", threads=1, context=256) as engine:
        yield Service(engine, SlotPool(engine, 1, 1), ["m"])


def test_texts_and_tokens_wait_for_no_decode(service: Service) -> None:
    """The event loop reads some of them, and others are long."""
    found: list[object] = []

    def read() -> None:
        tokens = service.tokens("list files", add_special=False, parse_special=True)
        found.extend([tokens, service.text(tokens)])

    with service.engine.lock:
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(20)
    assert found[1:] == ["list files"]


def test_special_tokens_are_parsed_where_that_is_wanted(service: Service) -> None:
    mark = "<|im_end|>"
    whole = service.tokens(mark, add_special=False, parse_special=True)
    parts = service.tokens(mark, add_special=False, parse_special=False)
    assert len(whole) == 1 < len(parts)
    assert service.text(parts) == mark
    assert service.text(whole) == ""
    with pytest.raises(InvalidValueError, match="token is 99999"):
        service.text([99999])
