"""Completions: the older protocol's own parts."""

from typing import Any

from fakes.served import Served
from openai import OpenAI
from openai.types import Completion
from pydantic import TypeAdapter

from localspec.engine.engine import Engine

MODEL = "terminal-9m-q8_0"


def test_log_probabilities_of_a_stream_are_those_of_the_whole(
    client: OpenAI, served: Served
) -> None:
    settings: Any = {
        "model": MODEL, "prompt": "$ ls", "max_tokens": 12, "temperature": 0, "logprobs": 2,
    }  # fmt: skip
    whole = client.completions.create(**settings).choices[0]
    assert whole.logprobs
    parts = [part.choices[0] for part in client.completions.create(**settings, stream=True)]
    lists = [part.logprobs for part in parts if part.logprobs]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [value for each in lists for value in getattr(each, name)] == getattr(
            whole.logprobs, name
        )
    for token, offset in zip(whole.logprobs.tokens, whole.logprobs.text_offset, strict=True):
        assert whole.text[offset : offset + len(token)] == token
    TypeAdapter(Completion).validate_json(served.post("/v1/completions", settings).content)


def test_parts_of_characters_are_told_apart(served: Served, alone: Engine) -> None:
    """As bytes; as text they would all be the same one."""
    model = alone.model
    whole = [token for token in range(model.n_vocab) if not _is_half(model.piece(token))]
    banned = {str(token): -100 for token in whole}
    body = {"prompt": "x", "max_tokens": 3, "logprobs": 4, "logit_bias": banned, "seed": 1}
    found = served.post("/v1/completions", body).json()["choices"][0]["logprobs"]
    assert all(token.startswith("bytes:\\x") for token in found["tokens"])
    assert all(len(top) == 4 for top in found["top_logprobs"])


def _is_half(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return True
    return False
