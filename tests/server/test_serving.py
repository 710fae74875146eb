"""The server as a process: who may use it, who waits, who goes away, and how it ends."""

import gzip
import json
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest
from fakes.command_line import localspec
from fakes.served import PATIENCE, Served, serving, wait_for
from fakes.tiny import write_tiny

CONTEXT = 2**15
# No such text of the model `wordy` ends by itself while a test looks at it.
LONG: dict[str, Any] = {
    "prompt": "ls",
    "max_tokens": CONTEXT - 100,
    "ignore_eos": True,
    "temperature": 1,
    "stream": True,
}


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What serves a model whose texts may be long."""
    file = tmp_path_factory.mktemp("wordy") / "wordy.gguf"
    model = write_tiny(file, "llama", context=CONTEXT)
    return (str(model), "--ctx", str(CONTEXT), "--threads", "1")


@pytest.fixture
def talking(wordy: tuple[str, ...]) -> Iterator[Served]:
    with serving(*wordy, "--parallel", "3") as served:
        yield served


@pytest.mark.slow
def test_a_reader_who_goes_away_frees_its_slot(talking: Served) -> None:
    for _ in range(4):
        with httpx.stream("POST", f"{talking.url}/v1/completions", json=LONG, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert talking.busy == 1
        talking.wait_until_free()
    # Also one that waits for a whole answer.
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{talking.url}/v1/completions", json={**LONG, "stream": False}, timeout=0.3)
    talking.wait_until_free()
    # And one that leaves while it waits for a slot.
    body = {**LONG, "n": 3}
    with httpx.stream("POST", f"{talking.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{talking.url}/v1/completions", json={"prompt": "x"}, timeout=0.5)
    talking.wait_until_free()
    assert talking.post("/v1/completions", {"prompt": "x", "max_tokens": 2}).status_code == 200


@pytest.mark.slow
def test_idle_connections_stay_open(served: Served) -> None:
    """Clients reuse one after a tool has run, and a request on one that was closed is lost."""
    with closing(HTTPConnection(*_address(served), timeout=PATIENCE)) as connection:
        for pause in (0, 5.5):  # uvicorn's own limit is 5
            sleep(pause)
            connection.request("GET", "/health")
            assert connection.getresponse().read() == b'{"status":"ok"}'


def test_who_may_use_it(served: Served) -> None:
    port = served.url.rpartition(":")[2]
    assert served.get("/v1/models", headers={"Host": f"localhost:{port}"}).status_code == 200
    rebound = served.get("/v1/models", headers={"Host": f"evil.example:{port}"})
    assert rebound.status_code == 403
    assert "--allow-host evil.example" in rebound.json()["error"]["message"]
    elsewhere = served.get("/v1/models", headers={"Origin": "https://evil.example"})
    assert elsewhere.status_code == 403
    assert "access-control-allow-origin" not in elsewhere.headers
    assert served.get("/v1/models", headers={"Origin": served.url}).status_code == 200


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "no valid JSON"),
        (b'"text"', "must be a JSON object"),
        (b"[" * 100_000, "no valid JSON"),
        (b'{"prompt": "\xff"}', "no valid JSON"),
        (b'{"prompt": NaN}', "NaN is no JSON number"),
        (b'{"prompt": "x", "metadata": [1e999]}', "1e999 is too large a number"),
        (b'{"prompt": "x", "logit_bias": {"' + b"1" * 5000 + b'": 1}}', "a map of token ids"),
        (b'{"prompt": "x", "max_tokens": 1' + b"0" * 5000 + b"}", "it has too many digits"),
        (b'{"prompt": "\\ud800"}', "no valid Unicode"),
        (b'{"prompt": [1, 99999999]}', "prompt token is 99999999"),
        (b'{"prompt": []}', "must be a text, token ids"),
        (b'{"prompt": "x", "suffix": "y"}', "cannot fill in the middle"),
    ],
)
def test_bodies_that_are_none(served: Served, content: bytes, said: str) -> None:
    answer = httpx.post(f"{served.url}/v1/completions", content=content, timeout=60)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


def test_a_body_that_is_compressed_is_refused_by_name(served: Served) -> None:
    content = gzip.compress(b'{"prompt": "x", "max_tokens": 1}')
    answer = httpx.post(
        f"{served.url}/v1/completions", content=content, headers={"Content-Encoding": "gzip"}
    )
    assert answer.status_code == 415
    said = answer.json()["error"]["message"]
    assert said == "Content-Encoding is gzip; send the body as it is"


def test_a_request_line_may_name_the_host(served: Served) -> None:
    """As proxies write it; it counts for the Host header, which it replaces."""

    def status(line_host: str, header_host: str) -> bytes:
        with socket.create_connection(_address(served)) as connection:
            lines = f"GET http://{line_host}/health HTTP/1.1\r\nHost: {header_host}\r\n\r\n"
            connection.sendall(lines.encode())
            return connection.recv(1000).split()[1]

    assert status("localhost", "else.example") == b"200"
    assert status("else.example", "localhost") == b"403"


def test_the_model_is_known_by_the_name_that_ls_shows(served: Served) -> None:
    body = {"model": "terminal", "prompt": "x", "max_tokens": 2}
    assert served.post("/v1/completions", body).status_code == 200


def test_what_reproducible_texts_cost_is_said_at_the_start(
    reproducible: Served, served: Served
) -> None:
    said = r" · reproducible: (all )?passes of \d+ rows.*, \d+\.\d\d x the time of one"
    assert re.search(said, reproducible.lines[0])
    assert "reproducible" not in served.lines[0]


def test_bodies_without_end(served: Served) -> None:
    announced = {"Content-Length": str(10**12)}
    with socket.create_connection(_address(served)) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        lines = "".join(f"{name}: {value}\r\n" for name, value in announced.items())
        connection.sendall(f"{head}{lines}\r\n".encode())
        assert b"413" in connection.recv(1000)

    def endless() -> Any:
        for _ in range(100):
            yield b" " * 2**20

    answer = httpx.post(f"{served.url}/v1/completions", content=endless(), timeout=60)
    assert answer.status_code == 413


def test_other_paths(served: Served) -> None:
    missing = served.get("/v1/images")
    assert missing.status_code == 404
    said = missing.json()["error"]["message"]
    assert said == "GET /v1/images is not served here; ask a server with a model for pictures"
    other = served.post("/v1/responses/compact", {"input": "a"})
    assert other.status_code == 405
    said = other.json()["error"]["message"]
    assert said.startswith("POST /v1/responses/compact is not served here; ask a server with compa")
    said = served.get("/ping").json()["error"]["message"]
    assert said.startswith(
        "GET /ping is not served here; this server speaks the protocols of OpenAI"
    )
    near = served.post("/v1/chat/completion", {}).json()["error"]["message"]
    assert "not served here; did you mean /v1/chat/completions or " in near
    wrong = served.get("/v1/messages").json()["error"]["message"]
    assert wrong == "GET /v1/messages is not served here; use POST"
    assert served.get("/health").json() == {"status": "ok"}
    tokens = served.post("/tokenize", {"content": "list files"}).json()["tokens"]
    text = {"content": "list files", "prompt": "list files"}
    assert served.post("/detokenize", {"tokens": tokens}).json() == text
    turn = {"content": "list<|im_end|>é\n", "add_special": True, "with_pieces": True}
    pieces = served.post("/tokenize", turn).json()["tokens"]
    shown = [each["piece"] for each in pieces]
    assert "<|im_end|>" in shown and "" not in shown
    whole = served.post("/detokenize", {"tokens": [each["id"] for each in pieces]}).json()
    assert whole["content"].endswith(turn["content"])
    body = {"messages": [{"role": "user", "content": "tar"}]}
    prompt = served.post("/apply-template", body).json()["prompt"]
    assert prompt == "<|im_start|>user\ntar<|im_end|>\n<|im_start|>assistant\n"
    counted = served.post("/v1/chat/completions/input_tokens", body).json()
    whole = served.post("/v1/chat/completions", {**body, "max_tokens": 1}).json()
    assert counted["input_tokens"] == whole["usage"]["prompt_tokens"]
    answer = served.post("/responses", {"input": "tar", "max_output_tokens": 1}).json()
    assert answer["usage"]["input_tokens"] == counted["input_tokens"]
    (model,) = served.get("/v1/models").json()["data"]
    assert served.get(f"/v1/models/{model['id']}").json()["id"] == model["id"]
    assert str(Path.home()) not in served.get("/props").text


def test_props_say_what_holds_where_a_request_says_nothing(served: Served, strict: Served) -> None:
    props = served.get("/props").json()
    usual = props["default_generation_settings"]
    body = {"prompt": "ls", "n_predict": 1}
    settings = served.post("/completion", body).json()["generation_settings"]
    assert settings["temperature"] == usual["params"]["temperature"] == pytest.approx(0.2)
    assert {name: settings[name] for name in ("top_k", "top_p", "min_p")} == {
        name: usual["params"][name] for name in ("top_k", "top_p", "min_p")
    }
    assert (usual["n_ctx"], usual["params"]["max_tokens"], usual["params"]["seed"]) == (
        1024,
        -1,
        -1,
    )
    assert props["localspec"]["thinking"] is None
    assert strict.get("/props").json()["localspec"]["thinking"] is True


def test_what_a_client_sends_is_no_code_for_the_terminal(served: Served) -> None:
    odd = "\x1b[2J\nslot 9"
    tools = [{"type": odd}, {"type": "function", "name": "f"}]
    body = {"input": [{"role": "user", "content": "x"}, {"type": odd}], "tools": tools}
    assert served.post("/v1/responses", {**body, "max_output_tokens": 1}).status_code == 200
    told = {"messages": [{"role": "user", "content": "x"}], "tools": [{"name": odd}]}
    assert served.post("/v1/messages", {**told, "max_tokens": 1}).status_code == 200
    assert served.get("/v1/responses/" + "%1b[2J").status_code == 404
    wait_for(lambda: sum("slot 9" in line for line in served.lines) == 3)
    assert not any("\x1b" in line or line.startswith("slot 9") for line in served.lines)


def test_metrics_add_up(served: Served) -> None:
    def sums() -> dict[str, float]:
        lines = served.get("/metrics").text.splitlines()
        values = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        return {name: float(value) for name, _, value in values}

    before = sums()
    body = {"prompt": "$ ls", "max_tokens": 40, "localspec": {"depth": 3}, "ignore_eos": True}
    answer = served.post("/v1/completions", body).json()
    after = sums()

    def more(name: str) -> float:
        return after[name] - before[name]

    assert more("llamacpp:tokens_predicted_total") == answer["usage"]["completion_tokens"] == 40
    for family in ("llamacpp", "vllm"):
        name = f"{family}:spec_decode_num_draft_tokens_total"
        assert more(name) == answer["timings"]["draft_n"] > 0
    assert more("localspec:requests_total") == 1
    assert after["llamacpp:requests_processing"] == 0


@pytest.mark.slow
def test_a_queue_has_an_end_and_a_key_is_asked_for(wordy: tuple[str, ...], tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret\n")
    options = [*wordy, "--parallel", "1", "--queue", "1", "--api-key-file", str(key)]
    with serving(*options, "--json-logs", "--cors", "https://page.example") as served:
        url, given = f"{served.url}/v1/completions", {"Authorization": "Bearer secret"}
        assert httpx.post(url, json=LONG).status_code == 401
        assert httpx.post(url, json=LONG, headers={"x-api-key": "secreT"}).status_code == 401
        assert httpx.get(f"{served.url}/health").status_code == 200
        with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port or 0)) as raw:
            raw.sendall(b"no request\r\n\r\n")
            assert b" 400 " in raw.recv(100)
        page = {"Origin": "https://page.example"}
        preflight = httpx.options(url, headers=page)
        assert preflight.headers["access-control-allow-origin"] == page["Origin"]
        with ThreadPoolExecutor(1) as pool, httpx.Client(headers=given, timeout=60) as client:
            with client.stream("POST", url, json=LONG) as first:
                lines = first.iter_lines()
                next(lines)
                waits = pool.submit(client.post, url, json={"prompt": "x", "max_tokens": 2})
                metrics = f"{served.url}/metrics"
                wait_for(lambda: "requests_deferred 1" in client.get(metrics).text)
                refused = client.post(url, json={"prompt": "x"})
                assert refused.status_code == 429
                assert int(refused.headers["Retry-After"]) > 0
                assert refused.json()["error"]["type"] == "rate_limit_error"
            assert waits.result().status_code == 200
            several = client.post(url, json={"prompt": "x", "max_tokens": 2, "n": 4})
            assert len(several.json()["choices"]) == 4
        assert served.end() == 0
    logged = [json.loads(line) for line in served.lines if line.startswith("{")]
    assert any(entry["message"] == "Invalid HTTP request received." for entry in logged)
    texts = [entry for entry in logged if "slot 0" in entry["message"]]
    assert {entry["generated_tokens"] for entry in texts if entry["stop_reason"]} >= {2}
    assert all(entry["slot"] == 0 and entry["prompt_tokens"] > 0 for entry in texts)
    assert not any("secret" in line for line in served.lines)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_streams_end_properly_when_it_ends(sent: int) -> None:
    with serving("--threads", "1", "--parallel", "2") as served:
        endless = {**LONG, "max_tokens": 1900}
        url = f"{served.url}/v1/completions"
        with httpx.stream("POST", url, json=endless, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            served.process.send_signal(sent)
            rest = [line for line in lines if line]
            assert rest[-1] == "data: [DONE]"
            last = json.loads(rest[-2].removeprefix("data: "))
            assert last["choices"][0]["finish_reason"] == "length"
        assert served.process.wait(60) == 0
    assert not any("Traceback" in line for line in served.lines)


@pytest.mark.slow
def test_who_waits_when_it_ends_is_told_so(wordy: tuple[str, ...]) -> None:
    with serving(*wordy, "--parallel", "1") as served, ThreadPoolExecutor(1) as pool:
        url = f"{served.url}/v1/completions"
        with httpx.stream("POST", url, json=LONG, timeout=60) as answer:
            next(lines := answer.iter_lines())
            waits = pool.submit(httpx.post, url, json={"prompt": "x"}, timeout=60)
            wait_for(lambda: "requests_deferred 1" in served.get("/metrics").text)
            served.process.send_signal(signal.SIGINT)
            for _ in lines:
                pass
        assert waits.result().status_code == 503
        assert "shutting down" in waits.result().json()["error"]["message"]
        assert served.process.wait(60) == 0


def test_a_port_in_use(served: Served) -> None:
    port = served.url.rpartition(":")[2]
    done = localspec("serve", "--port", port)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert f"port is {port}" in done.err or f"--port {port}" in done.err
    assert "has it: take" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "which others can reach; give it a key"),
        (["--port", "0"], "it must be 1 to 65535"),
        (["--parallel", "0"], "it must be 1 to 1024"),
        (["nothere.gguf", "--port", "29999"], "nothere.gguf"),
        (["a", "-m", "b"], "name one"),
    ],
)
def test_what_cannot_be_served(arguments: list[str], said: str) -> None:
    done = localspec("serve", *arguments)
    assert done.code in (2, 3)
    assert done.err.count("\n") == 1
    assert said in done.err


def _address(served: Served) -> tuple[str, int]:
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    return host, int(port)
