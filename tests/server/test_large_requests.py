"""Large requests: each is refused before it holds up the texts of others."""

from time import monotonic
from typing import Any

import pytest
from fakes.served import Served

# Far less than reading any of them would take.
SOON = 15
MANY = 200_000


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": ""}] * MANY}, "entries"),
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user"}] * MANY}, "entries"),
        ("/v1/responses", {"input": [{"role": "user", "content": ""}] * MANY}, "entries"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x \n" * 2_000_000}]},
            "6000000 characters and the context holds 1024 tokens",
        ),
        ("/v1/completions", {"prompt": "x \n" * 2_000_000}, "context holds 1024 tokens"),
        ("/v1/completions", {"prompt": [5] * 2_000_000}, "2000000 tokens and the context holds"),
        ("/tokenize", {"content": "x \n" * 2_000_000}, "send 1048576 at most"),
        ("/detokenize", {"tokens": [5] * 2_000_000}, "tokens is"),
    ],
    ids=["chat", "messages", "responses", "text", "prompt", "ids", "tokenize", "detokenize"],
)
def test_they_are_refused_at_once(served: Served, path: str, body: Any, said: str) -> None:
    began = monotonic()
    answer = served.post(path, body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert monotonic() - began < SOON
