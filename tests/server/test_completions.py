"""Completions: the older protocol's own parts."""

from types import SimpleNamespace
from typing import Any, ClassVar

import httpx
import pytest
from fakes.served import Served
from openai import OpenAI
from openai.types import Completion
from pydantic import TypeAdapter

from localspec.engine.engine import Engine
from localspec.engine.generation import Token
from localspec.server.openai_logprobs import CompletionLogprobs

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


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_of_an_echoed_prompt_are_those_that_its_text_had(
    reproducible: Served, *, stream: bool
) -> None:
    client = OpenAI(base_url=f"{reproducible.url}/v1", api_key="none", max_retries=0)
    settings: Any = {"model": MODEL, "temperature": 0, "logprobs": 2}
    settings["extra_body"] = {"ignore_eos": True}
    written = client.completions.create(prompt="$ ls", max_tokens=40, **settings)
    text, [own] = written.choices[0].text, [each.logprobs for each in written.choices]
    ids = reproducible.post("/tokenize", {"prompt": "$ ls"}).json()["tokens"]
    ids += reproducible.post("/tokenize", {"content": text}).json()["tokens"]
    settings |= {"prompt": ids, "max_tokens": 3, "echo": True}
    if stream:
        parts = [part.choices[0] for part in client.completions.create(**settings, stream=True)]
        whole, lists = "".join(part.text for part in parts), dict[str, list[Any]]()
        for part in parts:
            for name, values in (part.logprobs.model_dump() if part.logprobs else {}).items():
                lists[name] = lists.get(name, []) + values
    else:
        choice = client.completions.create(**settings).choices[0]
        whole, lists = choice.text, choice.logprobs.model_dump() if choice.logprobs else {}
    assert own and own.token_logprobs and len(own.token_logprobs) > 10
    assert whole.startswith(f"<|endoftext|>$ ls{text}"), "BOS is one of the given ids"
    assert len(lists["tokens"]) == len(ids) + 3
    assert (lists["token_logprobs"][0], lists["top_logprobs"][0]) == (None, None)
    begin = len(ids) - len(own.token_logprobs)
    for name in ("tokens", "token_logprobs", "top_logprobs"):
        assert lists[name][begin : len(ids)] == getattr(own, name)
    for token, offset in zip(lists["tokens"], lists["text_offset"], strict=True):
        assert whole[offset : offset + len(token)] == token


@pytest.mark.parametrize("stream", [False, True])
def test_choices_of_an_echo_have_one_list_of_its_prompt(
    reproducible: Served, *, stream: bool
) -> None:
    client = OpenAI(base_url=f"{reproducible.url}/v1", api_key="none", max_retries=0)
    settings: Any = {
        "model": MODEL,
        "prompt": ["$ ls -l /tmp", "$ du"],
        "echo": True,
        "logprobs": 1,
    }
    settings |= {"max_tokens": 4, "temperature": 1, "seed": 3}
    found: dict[int, list[float | None]] = {}
    if stream:
        for part in client.completions.create(n=3, stream=True, **settings):
            for each in part.choices:
                lists = each.logprobs.token_logprobs if each.logprobs else None
                found.setdefault(each.index, []).extend(lists or [])
    else:
        for each in client.completions.create(n=3, **settings).choices:
            assert each.logprobs and each.logprobs.token_logprobs
            found[each.index] = each.logprobs.token_logprobs
    assert sorted(found) == [*range(6)]
    for place in (0, 3):
        ahead = {tuple(found[place + choice][:-4]) for choice in range(3)}
        assert len(ahead) == 1 and None in ahead.pop()
    alone = client.completions.create(**settings).choices[1].logprobs
    assert alone and alone.token_logprobs == found[3]


def test_offsets_of_an_echo_are_places_in_its_text(reproducible: Served) -> None:
    """Also where it begins as BOS is spelled, and where its ids end within a character."""
    snowman = reproducible.post("/tokenize", {"content": "ls \u2603"}).json()["tokens"]
    cut = next(
        snowman[:count]
        for count in range(1, len(snowman))
        if reproducible.post("/detokenize", {"tokens": snowman[:count]}).json()["prompt"][-1]
        == "\ufffd"
    )
    for prompt in ("<|endoftext|>$ ls", "$ ls", "<|endoftext|>", snowman, cut):
        body: Any = {"prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 6}
        [choice] = reproducible.post("/v1/completions", body).json()["choices"]
        lists, text = choice["logprobs"], choice["text"]
        written = lists["text_offset"][-6:]
        told = "".join(each for each in lists["tokens"][-6:] if not each.startswith("bytes:"))
        assert text[written[0] :].startswith(told[:3])
        assert lists["text_offset"] == sorted(lists["text_offset"])


class Spaced:
    """A vocabulary that begins texts with BOS and a space, as Llama 2's."""

    pieces: ClassVar = {1: b"<s>", 2: b" Hi", 3: b" you", 4: b"!"}

    def piece(self, token: int) -> bytes:
        return b"" if token == 1 else self.pieces[token]

    def prompt_piece(self, token: int) -> bytes:
        return self.pieces[token]

    def tokens(self, text: str, *, add_special: bool) -> list[int]:
        return [1]

    @property
    def engine(self) -> Any:
        return SimpleNamespace(model=SimpleNamespace(piece_text=lambda _: "<s>"))


@pytest.mark.parametrize(
    ("ids", "given", "text", "offsets"),
    [
        ([1, 2, 3, 4], "Hi you!", "Hi you!", [0, 0, 2, 6]),
        ([1, 2, 3, 4], " Hi you!", " Hi you!", [0, 0, 3, 7]),
        ([1, 2, 1, 3, 3], "Hi<s>you you", "Hi<s>you you", [0, 0, 2, 5, 8]),
        ([1, 1, 2, 3], "<s>Hi you", "<s>Hi you", [0, 0, 3, 5]),
        ([2, 3, 4], [2, 3, 4], " Hi you!", [0, 3, 7]),
        ([1, 2], [1, 2], "<s> Hi", [0, 3]),
        ([1], "", "", [0]),
    ],
)
def test_offsets_where_a_vocabulary_adds_a_space(
    ids: list[int], given: Any, text: str, offsets: list[int]
) -> None:
    service: Any = Spaced()
    tokens = [Token("", each, "prompt", -1.0 if place else None) for place, each in enumerate(ids)]
    lists = CompletionLogprobs(service)
    assert lists.prompt_lists(tokens, given, text)["text_offset"] == offsets
    assert lists.lists([Token("!", 4, "plain", -2.0)])["text_offset"] == [len(text)]


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_alone_writes_no_token(client: OpenAI, *, stream: bool) -> None:
    settings: Any = {"model": MODEL, "prompt": "$ ls -l\n", "max_tokens": 0, "echo": True}
    if stream:
        parts = [*client.completions.create(**settings, stream=True)]
        assert "".join(part.choices[0].text for part in parts) == "$ ls -l\n"
        assert parts[-1].choices[0].finish_reason == "length"
        return
    for logprobs in (None, 0, 5):
        answer = client.completions.create(**settings, logprobs=logprobs)
        [choice] = answer.choices
        assert (choice.text, choice.finish_reason) == ("$ ls -l\n", "length")
        assert answer.usage and answer.usage.completion_tokens == 0
        assert (choice.logprobs is None) == (logprobs is None)
        if choice.logprobs:
            assert {*map(len, (choice.logprobs.top_logprobs or [])[1:])} == {logprobs}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        (
            {"echo": True, "suffix": "x", "logprobs": 1},
            "logprobs is 1; it must be left out with echo and suffix: the prompt has other tokens",
        ),
    ],
)
def test_what_an_echo_cannot_have(reproducible: Served, more: dict[str, Any], told: str) -> None:
    answer = reproducible.post("/v1/completions", {"prompt": "$ ls", **more})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, told)


def test_tokens_as_clients_of_vllm_ask_for_them(reproducible: Served) -> None:
    info = httpx.get(f"{reproducible.url}/tokenizer_info").json()
    props = httpx.get(f"{reproducible.url}/props").json()
    for name in ("bos_token", "eos_token", "chat_template"):
        assert info[name] == props[name] != ""
    for special in (True, False):
        text = {"add_special": special, "content": "$ ls"}
        body = {"prompt": "$ ls"} if special else {"prompt": "$ ls", "add_special_tokens": False}
        found = reproducible.post("/tokenize", body).json()
        assert found["tokens"] == reproducible.post("/tokenize", text).json()["tokens"]
        assert (found["count"], found["max_model_len"]) == (
            len(found["tokens"]),
            props["default_generation_settings"]["n_ctx"],
        )
        shown = reproducible.post("/detokenize", {"tokens": found["tokens"]}).json()["prompt"]
        assert shown == "<|endoftext|>" * special + "$ ls"
