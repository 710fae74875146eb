"""Large requests: each is refused before it holds up the texts of others."""

from time import monotonic
from typing import Any

import pytest
from fakes.served import Served

# Far less than reading any of them would take.
SOON = 15
MANY = 50_000
MESSAGES = [{"role": "user", "content": "x"}]


def tool(number: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"f{number}", "description": "x" * 99}}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * MANY}, "entries"),
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user"}] * MANY}, "entries"),
        ("/v1/responses", {"input": [{"role": "user", "content": ""}] * MANY}, "entries"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x \n" * 2_000_000}]},
            "prompt is too long: 6000000 characters, and the context holds 1024 tokens",
        ),
        ("/v1/completions", {"prompt": "x \n" * 2_000_000}, "context holds 1024 tokens"),
        (
            "/v1/completions",
            {"prompt": [5] * 400_000},
            "prompt is too long: 400000 tokens > 1023 maximum; shorten it",
        ),
        ("/tokenize", {"content": "x \n" * 2_000_000}, "send 1048576 at most"),
        ("/detokenize", {"tokens": [5] * 400_000}, "tokens is"),
        ("/detokenize", {"tokens": [5] * 2_000_000}, "1999999 members"),
        ("/v1/completions", {"prompt": "x", "a": [[]] * 600_000}, "600001 lists; send 508192"),
        ("/v1/completions", {"prompt": "x", "a": [{}] * 600_000}, "600001 objects"),
        ("/v1/messages", dict.fromkeys(map(str, range(300_000)), 1), "600000 quotes"),
        ("/v1/completions", {"prompt": "x", "stop": ["y"] * 300}, "300 stop strings; send 256"),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "tools": [tool(n) for n in range(5000)]},
            "characters, and the context holds 1024",
        ),
    ],
    ids=[
        *("chat", "messages", "responses", "text", "prompt", "ids", "tokenize", "detokenize"),
        *("members", "lists", "objects", "keys", "stops", "tools"),
    ],
)
def test_they_are_refused_at_once(served: Served, path: str, body: Any, said: str) -> None:
    began = monotonic()
    answer = served.post(path, body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert monotonic() - began < SOON
