"""Completions: the older protocol's own parts."""

from typing import Any

import httpx
import pytest
from fakes.served import Served
from openai import OpenAI
from openai.types import Completion
from pydantic import TypeAdapter

from localspec.engine.engine import Engine

MODEL = "terminal-9m-q8_0"


@pytest.mark.slow
def test_log_probabilities_of_a_stream_are_those_of_the_whole(
    reproducible: Served,
) -> None:
    settings: Any = {
        "model": MODEL, "prompt": "$ ls", "max_tokens": 12, "temperature": 0, "logprobs": 2,
    }  # fmt: skip
    client = OpenAI(base_url=f"{reproducible.url}/v1", api_key="none", max_retries=0)
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
    TypeAdapter(Completion).validate_json(reproducible.post("/v1/completions", settings).content)


def test_several_prompts_are_written_at_once(reproducible: Served) -> None:
    """Each as it is alone; one slot of three stays for other requests."""
    client = OpenAI(base_url=f"{reproducible.url}/v1", api_key="none", max_retries=0)
    prompts = ["$ ls", "$ du -h", "$ cat", "$ grep"]
    settings: Any = {"model": MODEL, "max_tokens": 60, "temperature": 0, "seed": 3}
    settings |= {"extra_body": {"ignore_eos": True}}
    alone = [client.completions.create(prompt=each, **settings) for each in prompts]
    whole = client.completions.create(prompt=prompts, **settings)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in whole.choices] == [each.choices[0].text for each in alone]
    assert whole.usage and whole.usage.prompt_tokens == sum(
        each.usage.prompt_tokens for each in alone if each.usage
    )
    texts, order, most = [""] * 4, list[int](), 0
    for part in client.completions.create(prompt=prompts, stream=True, **settings):
        choice = part.choices[0]
        if not texts[choice.index]:
            order.append(choice.index)
            most = max(most, reproducible.busy)
        texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert sorted(order) == [0, 1, 2, 3]
    assert most <= 2
    client.close()


def test_choices_of_several_prompts(reproducible: Served) -> None:
    """Choice c of prompt p has index p * n + c, and the text that it has alone."""
    settings: Any = {"max_tokens": 12, "temperature": 1, "seed": 4, "n": 3}
    prompts = ["$ ls", "$ du -h"]
    together = reproducible.post("/v1/completions", {"prompt": prompts, **settings}).json()
    assert [each["index"] for each in together["choices"]] == [*range(6)]
    alone = [
        each["text"]
        for prompt in prompts
        for each in reproducible.post("/v1/completions", {"prompt": prompt, **settings}).json()[
            "choices"
        ]
    ]
    assert [each["text"] for each in together["choices"]] == alone
    assert len(set(alone)) > 2


@pytest.mark.parametrize("stream", [False, True])
def test_one_bad_prompt_refuses_all(reproducible: Served, stream: bool) -> None:
    body: Any = {"max_tokens": 4, "stream": stream}
    for bad in ("x " * 2000, [10**6], [], 7):
        answer = reproducible.post("/v1/completions", {"prompt": ["$ ls", bad], **body})
        assert answer.status_code == 400, answer.text
    too_many = reproducible.post("/v1/completions", {"prompt": ["x"] * 65, **body})
    assert too_many.status_code == 400
    assert too_many.json()["error"]["message"] == "there are 65 prompts; send 64 at most"
    many = {"prompt": ["x"] * 64, "max_tokens": 1}
    assert len(reproducible.post("/v1/completions", many).json()["choices"]) == 64
    reproducible.wait_until_free()


def test_a_reader_of_many_prompts_goes_away(reproducible: Served) -> None:
    body: Any = {"prompt": ["$ ls"] * 20, "n": 2, "max_tokens": 400, "ignore_eos": True}
    url = f"{reproducible.url}/v1/completions"
    for _ in range(3):
        with httpx.stream("POST", url, json={**body, "stream": True}, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert reproducible.busy >= 1
        reproducible.wait_until_free()
    answer = reproducible.post("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 2})
    assert len(answer.json()["choices"]) == 2


@pytest.mark.parametrize("per_token", [False, True])
def test_timings_come_with_each_part_if_a_request_asks_for_them(
    client: OpenAI, *, per_token: bool
) -> None:
    extra: Any = {"timings_per_token": per_token, "ignore_eos": True}
    parts = [
        part.model_dump()
        for part in client.completions.create(
            model=MODEL, prompt="$ ls", max_tokens=5, stream=True, extra_body=extra
        )
    ]
    written = [part for part in parts if part["choices"][0]["text"]]
    assert len(written) > 1
    assert all(("timings" in part) == per_token for part in written)
    assert "timings" in parts[-1]


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


def test_an_empty_suffix_is_none(client: OpenAI) -> None:
    settings: Any = {"model": "localspec", "prompt": "ls", "max_tokens": 4, "seed": 3}
    answer = client.completions.create(**settings, suffix="")
    assert answer.choices[0].text == client.completions.create(**settings).choices[0].text
