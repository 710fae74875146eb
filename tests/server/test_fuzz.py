"""Odd requests: each gets an answer or an error of the client's, and disturbs nobody else's text.

LOCALSPEC_EXAMPLES says how many are tried.
"""

import copy
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import httpx
import pytest
from fakes.served import Served
from fakes.stateful import examples

MESSAGES = [{"role": "user", "content": "list files"}]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "ls", "description": "list", "parameters": SCHEMA}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "default", "messages": MESSAGES, "max_tokens": 3, "temperature": 0.5, "n": 1,
        "top_p": 0.9, "seed": 1, "stop": ["zz"], "stream": False, "logprobs": True,
        "top_logprobs": 2, "logit_bias": {"5": 1}, "stream_options": {"include_usage": True},
        "response_format": {"type": "text"}, "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto", "localspec": {"depth": 2, "rule": "coupled", "origins": True},
    },
    "/v1/completions": {
        "model": "default", "prompt": "ls", "max_tokens": 3, "echo": True, "logit_bias": {},
        "stop": "zz", "stream": True, "presence_penalty": 0.1, "speculative.n_max": 3,
        "structured_outputs": {"regex": "[ab]{2}"}, "guided_choice": ["a", "b"],
    },
    "/completion": {
        "prompt": ["ls", [1, 2]], "n_predict": 3, "n_probs": 2, "post_sampling_probs": True,
        "guided_regex": "a|b", "stream": True, "return_progress": True, "samplers": ["top_k"],
    },
    "/v1/responses": {
        "model": "default", "input": [{"type": "message", "role": "user", "content": "ls"}],
        "max_output_tokens": 16, "stream": False, "text": {"format": {"type": "text"}},
        "tools": [{"type": "function", **FUNCTION}], "reasoning": {"effort": "low"},
        "instructions": "Be brief.", "store": False,
    },
    "/v1/messages": {
        "model": "default", "max_tokens": 3, "messages": MESSAGES, "system": [
            {"type": "text", "text": "Be brief."}],
        "stop_sequences": ["zz"], "stream": True, "thinking": {"type": "disabled"},
        "tools": [{"name": "ls", "input_schema": SCHEMA}], "tool_choice": {"type": "auto"},
    },
    "/api/chat": {
        "model": "default", "messages": [
            *MESSAGES,
            {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
                {"function": {"name": "ls", "arguments": {"path": "a"}}}]},
            {"role": "tool", "tool_name": "ls", "content": "b", "images": []},
        ],
        "options": {"num_predict": 3, "num_ctx": 64, "draft_num_predict": 2, "stop": ["zz"]},
        "tools": [{"type": "function", "function": FUNCTION}], "think": True, "format": "json",
        "logprobs": True, "top_logprobs": 2, "keep_alive": "5m",
    },
    "/api/generate": {
        "model": "default", "prompt": "ls", "system": "Be brief.", "suffix": "", "raw": False,
        "options": {"num_predict": 3, "seed": 1}, "stream": False, "format": SCHEMA, "think": "low",
    },
    "/api/show": {"model": "default", "verbose": True},
    "/tokenize": {"content": "list files", "add_special": True, "with_pieces": True},
    "/detokenize": {"tokens": [1, 2, 3]},
    "/apply-template": {"messages": MESSAGES},
}  # fmt: skip
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 7, 10**30, -(10**30), 1e308, 0.5, "", "x", "\ud800", "é" * 300,
    "\x00", [], [[]], [None], [[[[]]]], {}, {"type": "x"}, {"": None}, {"type": []},
    [{"role": "user", "content": {}}], [{"role": "assistant", "tool_calls": [None]}],
    [{"role": "assistant", "tool_calls": [{"function": {"arguments": [1]}}]}],
    [{"role": "tool", "content": [{"type": "text", "text": 3}]}], ["a", 1], [1] * 500,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to each member of a body."""
    found = [path] if path else []
    if isinstance(value, dict):
        for name, member in value.items():
            found += places(member, (*path, name))
    elif isinstance(value, list):
        for at, member in enumerate(value):
            found += places(member, (*path, at))
    return found


def changed(body: dict[str, Any], random: Random) -> dict[str, Any]:
    """The body with one to three members that are something else, or missing, or new."""
    body = copy.deepcopy(body)
    for _ in range(random.randint(1, 3)):
        path = random.choice(places(body))
        holder: Any = body
        for step in path[:-1]:
            holder = holder[step]
        if random.random() < 0.15:
            del holder[path[-1]]
            if not places(body):
                break
        elif random.random() < 0.1 and isinstance(holder, dict):
            holder[random.choice(["x", "min_p", "grammar", "best_of", "suffix"])] = path[-1]
        else:
            holder[path[-1]] = copy.deepcopy(random.choice(ODD))
    return body


def raw(content: bytes, random: Random) -> bytes:
    """The bytes of a body, some of which are others."""
    damaged = bytearray(content)
    for _ in range(random.randint(0, 3)):
        damaged[random.randrange(len(damaged))] = random.randrange(256)
    return bytes(damaged[: random.choice([len(damaged), random.randrange(len(damaged) + 1)])])


@pytest.mark.slow
def test_no_request_is_answered_with_a_failure(served: Served) -> None:
    count, random = examples(150), Random(23)
    steady = {"prompt": "ls", "max_tokens": 30, "ignore_eos": True, "temperature": 0}
    steady["localspec"] = {"depth": 0}
    expected = served.post("/v1/completions", steady).json()["choices"][0]["text"]
    seen: dict[int, int] = {}
    with httpx.Client(base_url=served.url, timeout=120) as client, ThreadPoolExecutor(1) as pool:
        beside = pool.submit(served.post, "/v1/completions", steady)
        for number in range(count):
            path = random.choice(list(BODIES))
            content = json.dumps(changed(BODIES[path], random)).encode()
            if number % 5 == 0:
                content = raw(content, random)
            answer = client.post(path, content=content)
            seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
            assert answer.status_code < 500, (path, content, answer.text)
            if answer.status_code >= 400:
                error = answer.json()["error"]
                message = error if path.startswith("/api/") else error["message"]
                assert 0 < len(message) < 1000
            elif "ndjson" in answer.headers["content-type"]:
                last = json.loads(answer.text.splitlines()[-1])
                assert last.get("done"), (path, content, answer.text)
            elif "event-stream" in answer.headers["content-type"]:
                assert answer.text.endswith("\n\n")
                assert "event: error" not in answer.text, (path, content, answer.text)
            else:
                assert answer.json()
            if beside.done():
                text = beside.result().json()["choices"][0]["text"]
                assert len(text) == len(expected) or text[:8] == expected[:8]
                beside = pool.submit(served.post, "/v1/completions", steady)
    assert seen.get(200, 0) > count // 10
    assert seen.get(400, 0) > count // 3
    served.wait_until_free()
    assert not [line for line in served.lines if "Traceback" in line]


def test_odd_connections(served: Served) -> None:
    """Half requests, wrong lengths and chunks, slow readers: the server goes on."""
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    for sent in (
        b"",
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        head + b"Content-Length: -5\r\n\r\n{}",
        head + b"Content-Length: 100\r\n\r\n{}",
        head + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n{}",
        head + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}",
    ):
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answered = connection.recv(100)
            assert not answered.startswith(b"HTTP/1.1 5")
    # A reader that takes nothing keeps its slot, and nobody else's.
    body = json.dumps({"prompt": "x", "max_tokens": 900, "stream": True, "ignore_eos": True})
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        length = f"Content-Length: {len(body)}\r\n\r\n".encode()
        slow.sendall(head + length + body.encode())
        assert served.post("/v1/completions", {"prompt": "x", "max_tokens": 3}).status_code == 200
    served.wait_until_free()
