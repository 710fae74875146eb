"""What clients get while nothing is written. Those that wait for events see no comments."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import Anthropic
from fakes.listening import listening
from ollama import Client, ResponseError
from openai import OpenAI

import localspec
from localspec.server import exchange
from localspec.server.app import make_app
from localspec.server.input_processor import InputProcessor
from localspec.server.model_switch import ModelSwitch
from localspec.server.service import Service
from localspec.server.slot_pool import SlotPool

QUESTION: Any = [{"role": "user", "content": "How do I list files by size?"}]
GREEDY: Any = {"temperature": 0}


@pytest.fixture(scope="module")
def url(own_cache: None) -> Iterator[str]:
    """A server that takes its time before each answer."""
    chat = InputProcessor.chat

    async def slow(*given: Any, **options: Any) -> Any:
        await asyncio.sleep(0.5)
        return await chat(*given, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_SILENT_SECONDS", 0.1)
        patch.setattr(InputProcessor, "chat", slow)
        with localspec.load(draft="none", threads=1, context=256) as engine:
            app = make_app(ModelSwitch.of(Service(engine, SlotPool(engine, 1, 1), ["m"])))
            with listening(app) as port:
                yield f"http://127.0.0.1:{port}"


def test_messages_have_pings(url: str) -> None:
    body = {"messages": QUESTION, "max_tokens": 20, "stream": True, **GREEDY}
    text = httpx.post(f"{url}/v1/messages", json=body, timeout=60).text
    ping = 'event: ping\ndata: {"type": "ping"}\n\n'
    assert text.startswith(2 * ping + "event: ") and "\n: " not in text
    with (
        Anthropic(base_url=url, api_key="none") as claude,
        claude.messages.stream(
            model="m", messages=QUESTION, max_tokens=20, extra_body=GREEDY
        ) as stream,
    ):
        kinds = [event.type for event in stream]
        assert stream.get_final_text()
    assert kinds[0] == "message_start"


def test_ollama_has_empty_parts(url: str) -> None:
    with Client(url) as client:
        parts = [*client.chat("m", QUESTION, stream=True, options=GREEDY)]
    said = [part.message.content for part in parts]
    assert said[:2] == ["", ""] and "".join(said)
    assert not any(part.done for part in parts[:-1])


def test_ollama_is_told_of_what_fails_after_a_heartbeat(url: str) -> None:
    with Client(url) as client, pytest.raises(ResponseError, match="logit_bias token is 99999"):
        options: Any = {"logit_bias": {"99999": 1}}
        for part in client.chat("m", QUESTION, stream=True, options=options):
            assert not part.done


def test_responses_are_in_progress(url: str) -> None:
    with OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        settings: Any = {"model": "m", "input": QUESTION, "max_output_tokens": 20, **GREEDY}
        whole = client.responses.create(**settings)
        events: list[Any] = [*client.responses.create(stream=True, **settings)]
        with client.responses.stream(**settings) as stream:
            stream.until_done()
    kinds = [event.type for event in events]
    assert kinds[:3] == ["response.created", *2 * ["response.in_progress"]]
    assert kinds.count("response.created") == 1
    assert [event.sequence_number for event in events] == [*range(len(events))]
    assert len({event.response.id for event in events if hasattr(event, "response")}) == 1
    assert events[-1].response.output_text == whole.output_text


def test_a_response_that_fails_after_a_heartbeat_says_so(url: str) -> None:
    """Its status, 200, has been sent by then."""
    body = {"input": QUESTION, "stream": True, "logit_bias": {"99999": 1}}
    text = httpx.post(f"{url}/v1/responses", json=body, timeout=60).text
    assert "event: response.failed" in text
    assert "logit_bias token is 99999" in text


def test_chat_has_comments(url: str) -> None:
    """Its protocol has no event for it."""
    body = {"messages": QUESTION, "max_tokens": 20, "stream": True, **GREEDY}
    text = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).text
    assert text.startswith(": ") and text.endswith("data: [DONE]\n\n")
