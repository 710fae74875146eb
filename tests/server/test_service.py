"""The model as protocols see it."""

import asyncio
import threading
from collections.abc import Iterator
from time import sleep

import httpx
import pytest

import localspec
from localspec.errors import InvalidValueError
from localspec.server.app import make_app
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


def test_long_texts_of_tokens_leave_threads_to_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Event loops have few threads for all that may take its time."""
    at_once, most, lock = 0, 0, threading.Lock()

    def text(_service: Service, _tokens: object) -> str:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        sleep(0.05)
        with lock:
            at_once -= 1
        return "x"

    monkeypatch.setattr(Service, "text", text)
    app = make_app(service)

    async def run() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [client.post("/detokenize", json={"tokens": [5]}) for _ in range(8)]
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert asyncio.run(run()) == [200] * 8
    assert most == 2
