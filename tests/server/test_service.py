"""The model as protocols see it."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest
from fakes.respelled import write_respelled

import localspec
from localspec.errors import InvalidValueError
from localspec.models import registry
from localspec.server.app import make_app
from localspec.server.chat_input import ChatInput
from localspec.server.model_switch import ModelSwitch
from localspec.server.options import TextSettings
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

    with service.engine.slots.lock:
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
    assert service.text(whole) == mark
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
    app = make_app(ModelSwitch.of(service))

    async def run() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            asked = [client.post("/detokenize", json={"tokens": [5]}) for _ in range(8)]
            return [answer.status_code for answer in await asyncio.gather(*asked)]

    assert asyncio.run(run()) == [200] * 8
    assert most == 2


def test_a_drafter_of_another_vocabulary_reads_its_own_template(
    own_cache: None, tmp_path: Path
) -> None:
    """Every message that the model sees, in the wording of the drafter's template."""
    drafter = write_respelled(tmp_path / "respelled.gguf", registry.bundled().drafter)
    options: Any = {"threads": 1, "context": 256}
    question = [{"role": "user", "content": "How do I list files?"}]

    async def written(service: Service) -> str:
        settings = TextSettings.of(max_tokens=8, temperature=0, seed=1, depth=2)
        asked = await service.inputs.chat(ChatInput(question, settings))
        async with service.reply(asked) as reply, reply.deltas() as deltas:
            return "".join([delta.text async for delta in deltas])

    with localspec.load(draft="none", **options) as engine:
        expected = asyncio.run(written(Service(engine, SlotPool(engine, 1, 1), ["m"])))
    with localspec.load(draft=drafter, **options) as engine:
        pool = SlotPool(engine, 1, 1)
        assert asyncio.run(written(Service(engine, pool, ["m"]))) == expected
        [cache] = pool.slots[0].slot.loaded.drafter_set.sequences.values()
        wording = cache.model.tokenize("[Q] How do I list files? [A] ")
        assert cache.tokens[: len(wording)] == wording
