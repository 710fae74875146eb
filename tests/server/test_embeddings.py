"""Vectors and rankings beside a model that writes text, by the clients that ask for them."""

import base64
import json
import re
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import ollama
import pytest
from fakes.command_line import localspec as command
from fakes.served import Served, free_port, serving, wait_for
from fakes.tiny_embedders import CLS, RANK, write_bert, write_causal
from openai import OpenAI

from localspec.engine.engine import Engine
from localspec.gguf.check import check_embedder
from localspec.hub.reference import Repository
from localspec.llama.embedder import Embedder
from localspec.models.locate import reference_of

CHAT, VECTORS, RANKS = "terminal-9m-q8_0", "vectors", "ranks"
TEXTS = ["an bs cr", "dn", "en an fs et dn bt ar"]
LONG = "an bs cr dt " * 20
QUESTION: Any = [{"role": "user", "content": "How do I list files by size?"}]
# Of a length of 1: what a text has of the others in its pass.
NOISE = 1e-5


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("embedders")
    return {
        VECTORS: write_bert(folder / f"{VECTORS}.gguf", CLS),
        RANKS: write_bert(folder / f"{RANKS}.gguf", RANK),
    }


@pytest.fixture(scope="module")
def beside(own_cache: None, files: dict[str, Path]) -> Iterator[Served]:
    named = [word for path in files.values() for word in ("--embed", str(path))]
    options = ("--threads", "1", "--ctx", "1024", "--parallel", "2", "--embed-ctx", "100")
    with serving(*options, *named) as running:
        yield running


@pytest.fixture(scope="module")
def expected(files: dict[str, Path]) -> np.ndarray:
    """The vector of each text alone, of a length of 1."""
    path = files[VECTORS]
    with Embedder(path, check_embedder(path), 64) as alone:
        found = [alone.vectors([alone.model.tokenize(text)])[0] for text in TEXTS]
    return np.array([each / np.linalg.norm(each) for each in found])


@pytest.fixture
def openai(beside: Served) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{beside.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def client(beside: Served) -> Iterator[ollama.Client]:
    with ollama.Client(beside.url) as client:
        yield client


def differs(found: Any, expected: np.ndarray) -> float:
    return float(np.abs(np.array(found) - expected).max())


MISTYPED = [
    ("/v1/embeddings", {"input": "an", "dimension": 4, "user": "me"}, "dimension"),
    ("/api/embed", {"input": "an", "keep_alive": 5, "truncat": True}, "truncat"),
    ("/v1/rerank", {"query": "an", "documents": ["bs"], "top": 1}, "top"),
]


@pytest.mark.parametrize(("path", "body", "name"), MISTYPED)
def test_members_without_effect_are_logged_once(
    path: str, body: Any, name: str, beside: Served
) -> None:
    for _ in range(2):
        assert beside.post(path, body).status_code == 200
    said = f"what is not used of a request: {name}: there is no such member; did you mean {name}"
    wait_for(lambda: any(said in line for line in beside.lines))
    assert len([line for line in beside.lines if f"{name}: there is" in line]) == 1
    assert not [line for line in beside.lines if "keep_alive" in line or "user:" in line]


@pytest.mark.parametrize("form", ["float", "base64", None])
def test_openai(form: Any, openai: OpenAI, expected: np.ndarray) -> None:
    chosen = {"encoding_format": form} if form else {}
    answer = openai.embeddings.create(model=VECTORS, input=TEXTS, **chosen)
    if form == "base64":
        data: Any = [base64.b64decode(each.embedding) for each in answer.data]  # type: ignore[arg-type]
        found: Any = [np.frombuffer(each, "<f4") for each in data]
    else:
        found = [each.embedding for each in answer.data]
    assert differs(found, expected) < NOISE
    assert [each.index for each in answer.data] == [0, 1, 2]
    assert (answer.model, answer.usage.prompt_tokens) == (VECTORS, 5 + 3 + 9)


def test_tokens_are_texts(openai: OpenAI, expected: np.ndarray) -> None:
    """As clients send them that count tokens themselves."""
    tokens = [[2, 5, 11, 14, 3], [2, 17, 3]]
    answer = openai.embeddings.create(model=VECTORS, input=tokens)
    assert differs([each.embedding for each in answer.data], expected[:2]) < NOISE
    (one,) = openai.embeddings.create(model=VECTORS, input=tokens[0]).data
    assert differs(one.embedding, expected[0]) < NOISE


def test_fewer_dimensions(openai: OpenAI, expected: np.ndarray) -> None:
    answer = openai.embeddings.create(model=VECTORS, input=TEXTS, dimensions=5)
    first = expected[:, :5] / np.linalg.norm(expected[:, :5], axis=1, keepdims=True)
    assert differs([each.embedding for each in answer.data], first) < NOISE


def test_ollama(client: ollama.Client, expected: np.ndarray) -> None:
    answer = client.embed(model=f"{VECTORS}:latest", input=TEXTS)
    assert differs(answer.embeddings, expected) < NOISE
    assert (answer.model, answer.prompt_eval_count) == (f"{VECTORS}:latest", 17)
    assert answer.total_duration and answer.load_duration is not None
    assert differs(client.embed(VECTORS, TEXTS[0]).embeddings, expected[:1]) < NOISE
    assert differs(client.embeddings(VECTORS, TEXTS[1]).embedding, expected[1]) < NOISE
    short = client.embed(VECTORS, TEXTS[:1], dimensions=3).embeddings[0]
    assert len(short) == 3 and abs(np.linalg.norm(short) - 1) < NOISE
    # What is sent to load the model.
    assert client.embed(VECTORS, "").embeddings == []
    assert client.embeddings(VECTORS, "").embedding == []


def test_ends_are_left_out(client: ollama.Client, beside: Served) -> None:
    answer = client.embed(VECTORS, [LONG, LONG + "an"])
    assert answer.prompt_eval_count == 2 * 64
    assert differs(answer.embeddings[0], np.array(answer.embeddings[1])) < NOISE
    assert client.embeddings(VECTORS, LONG).embedding
    assert beside.post("/v1/embeddings", {"input": LONG, "truncate": True}).status_code == 200
    with pytest.raises(ollama.ResponseError, match="82 tokens > 64 maximum"):
        client.embed(VECTORS, LONG, truncate=False)


@pytest.mark.parametrize("path", ["/embedding", "/embeddings", "/v1/embeddings"])
def test_llama_server(path: str, beside: Served, expected: np.ndarray) -> None:
    answer = beside.post(path, {"content": TEXTS, "model": VECTORS}).json()
    assert [each["index"] for each in answer] == [0, 1, 2]
    assert differs([each["embedding"][0] for each in answer], expected) < NOISE
    norms = {-1: None, 0: lambda v: np.abs(v).max() / 32760, 1: lambda v: np.abs(v).sum()}
    raw = np.array(
        beside.post(path, {"content": "dn", "embd_normalize": -1}).json()[0]["embedding"][0]
    )
    assert abs(np.linalg.norm(raw) - 1) > 0.1
    for norm, size in norms.items():
        (one,) = beside.post(path, {"content": "dn", "embd_normalize": norm}).json()
        scaled = raw / size(raw) if size else raw
        assert np.allclose(one["embedding"][0], scaled, rtol=1e-4, atol=1e-6)


DOCUMENTS = ["bs cr", "dn", "en fs", "an"]


def test_rankings(beside: Served, files: dict[str, Path]) -> None:
    path = files[RANKS]
    with Embedder(path, check_embedder(path), 64) as alone:
        scores = [float(alone.vectors([alone.pair("an", each)])[0, 0]) for each in DOCUMENTS]
    order = sorted(range(4), key=lambda at: -scores[at])
    body = {"query": "an", "documents": DOCUMENTS}
    for where in ("/v1/rerank", "/rerank", "/reranking", "/v1/reranking", "/v2/rerank"):
        answer = beside.post(where, body).json()
        assert [each["index"] for each in answer["results"]] == order
        found = [each["relevance_score"] for each in answer["results"]]
        assert differs(found, np.array([scores[at] for at in order])) < NOISE
    assert answer["model"] == RANKS and answer["usage"]["total_tokens"] == 5 + 4 + 5 + 4
    shown = {"top_n": 2, "return_documents": True, "model": RANKS}
    # What changes nothing.
    shown |= {"rank_fields": ["text"], "truncate": "NONE", "return_embeddings": False}
    objects = [{"text": each} for each in DOCUMENTS]
    best = beside.post("/v1/rerank", {"query": "an", "documents": objects, **shown}).json()
    texts = [each["document"]["text"] for each in best["results"]]
    assert texts == [DOCUMENTS[at] for at in order[:2]]
    tei = beside.post(
        "/rerank", {"query": "an", "texts": DOCUMENTS, "return_text": True, "raw_scores": True}
    ).json()
    assert [(each["index"], each["text"]) for each in tei] == [(at, DOCUMENTS[at]) for at in order]
    assert differs([each["score"] for each in tei], np.sort(scores)[::-1]) < NOISE


def test_lists(beside: Served, client: ollama.Client) -> None:
    listed = {each["id"]: each for each in beside.get("/v1/models").json()["data"]}
    gives = {name: each["architecture"]["output_modalities"] for name, each in listed.items()}
    assert gives == {CHAT: ["text"], VECTORS: ["embeddings"], RANKS: ["rerank"]}
    assert beside.get(f"/v1/models/{VECTORS}").json() == listed[VECTORS]
    tags = {each.model: each for each in client.list().models}
    assert {f"{CHAT}:latest", f"{VECTORS}:latest", f"{RANKS}:latest"} <= {*tags}
    shown = client.show(VECTORS)
    assert shown.capabilities == ["embedding"] and shown.modelinfo
    assert shown.modelinfo["bert.embedding_length"] == 32
    assert shown.modelinfo["bert.context_length"] == 64
    running = [each.model for each in client.ps().models]
    assert running == [f"{CHAT}:latest", f"{VECTORS}:latest", f"{RANKS}:latest"]
    beside_it = [line.partition("beside it: ")[2] for line in beside.lines if "beside it" in line]
    assert beside_it == [
        f"{VECTORS} · /v1/embeddings · 64 tokens per text",
        f"{RANKS} · /v1/rerank · 64 tokens per text",
    ]
    assert f"--embed-ctx is 100; {RANKS}.gguf reads texts of 64 tokens at most" in "".join(
        beside.lines
    )


def test_ollama_unloads_it(beside: Served, client: ollama.Client, expected: np.ndarray) -> None:
    """As `ollama stop` does it; the next request loads it again."""

    def is_loaded() -> bool:
        return f"{VECTORS}:latest" in [each.model for each in client.ps().models]

    client.embed(VECTORS, "")
    assert is_loaded()
    answer = client.generate(VECTORS, keep_alive=0)
    assert answer.done_reason == "unload" and not is_loaded()
    assert differs(client.embed(VECTORS, TEXTS).embeddings, expected) < NOISE and is_loaded()


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/embeddings", {}, 400, "input is missing"),
        ("/v1/embeddings", {"input": []}, 400, "input is []; it must be a text, or a list with"),
        ("/v1/embeddings", {"input": 3}, 400, "input is 3; it must be a text, token ids, or"),
        ("/v1/embeddings", {"input": ["a", 3]}, 400, "it must be a text, token ids, or a list"),
        ("/v1/embeddings", {"input": [True]}, 400, "it must be a text, token ids, or a list"),
        ("/v1/embeddings", {"input": {"a": 1}}, 400, "it must be a text, token ids, or a list"),
        ("/v1/embeddings", {"input": ["a", []]}, 400, "input[1] is empty; give some words"),
        (
            "/v1/embeddings",
            {"input": [5, 99]},
            400,
            "a token of input is 99; it must be at least 0",
        ),
        ("/v1/embeddings", {"input": ["a"] * 2049}, 400, "input has 2049 texts; send 2048 at most"),
        ("/v1/embeddings", {"input": ["a", LONG]}, 400, "82 tokens > 64 maximum (input[1]); shor"),
        ("/v1/embeddings", {"input": "a" * 9**6}, 400, "531441 characters, and vectors reads 64 t"),
        ("/v1/embeddings", {"input": [3] * 9**5}, 400, "59049 tokens > 64 maximum (input)"),
        (
            "/v1/embeddings",
            {"input": "a", "dimensions": 33},
            400,
            "dimensions is 33; it must be at",
        ),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, 400, "dimensions is 0; it must be at"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, 400, "one of float, base64"),
        ("/v1/embeddings", {"input": "a", "input_type": "query"}, 400, "no such option"),
        (
            "/v1/embeddings",
            {"input": "a", "normalized": False},
            400,
            "normalized is false; it must",
        ),
        ("/v1/embeddings", {"input": "a", "embedding_type": "binary"}, 400, "no such option"),
        ("/v1/embeddings", {"input": "a", "task": "retrieval.query"}, 400, "no such option"),
        ("/api/embed", {"input": "a", "add_special_tokens": False}, 400, "no such option"),
        ("/v1/embeddings", {"input": "a", "truncate": 1}, 400, "it must be true or false"),
        ("/embedding", {"content": "a", "embd_normalize": 10**38}, 400, "it must be at most 16"),
        ("/v1/embeddings", {"input": "a", "embd_normalize": -2}, 400, "embd_normalize is -2"),
        ("/v1/embeddings", {"input": "a", "model": CHAT}, 400, f"no embeddings; ask for {VECTORS}"),
        ("/v1/embeddings", {"input": "a", "model": RANKS}, 400, f"embeddings; ask for {VECTORS}"),
        ("/v1/embeddings", {"input": "a", "model": "ada"}, 404, f"{CHAT} or {VECTORS} or {RANKS}"),
        ("/api/embed", {"input": 3}, 400, "input is 3"),
        ("/api/embeddings", {"prompt": ["a"]}, 400, "; it must be a string"),
        ("/v1/rerank", {"documents": ["a"]}, 400, "query is missing"),
        ("/v1/rerank", {"query": "a"}, 400, "documents is null; it must be a list of texts"),
        ("/v1/rerank", {"query": "a", "documents": ["a", 3]}, 400, "or of objects with a"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, 400, "top_n is 0"),
        ("/rerank", {"query": "a", "texts": ["a"], "raw_scores": False}, 400, "no such option"),
        ("/rerank", {"query": "a", "texts": ["a"], "truncate": True}, 400, "truncate is true; it"),
        ("/v2/rerank", {"query": "a", "documents": ["a"], "max_tokens_per_doc": 9}, 400, "option"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "rank_fields": ["b"]}, 400, "option"),
        ("/v1/rerank", {"query": LONG, "documents": ["a"]}, 400, "maximum (documents[0])"),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "model": VECTORS}, 400, "no rankings; a"),
        ("/v1/chat/completions", {"messages": QUESTION, "model": VECTORS}, 400, "writes no text;"),
        ("/v1/messages", {"messages": QUESTION, "max_tokens": 3, "model": RANKS}, 400, "no text"),
        ("/api/chat", {"messages": QUESTION, "model": VECTORS}, 400, f"no text; ask for {CHAT}"),
    ],
)
def test_what_is_refused(
    beside: Served, path: str, body: dict[str, Any], status: int, said: str
) -> None:
    answer = beside.post(path, body)
    assert (answer.status_code, said in answer.text.replace('\\"', '"')) == (status, True), (
        answer.text
    )


def test_numbers_and_characters_that_are_none(beside: Served) -> None:
    for text, said in (
        ('{"input": [NaN]}', "NaN is no JSON number"),
        ('{"input": "a\\ud800"}', "no valid Unicode"),
    ):
        answer = httpx.post(f"{beside.url}/v1/embeddings", content=text)
        assert answer.status_code == 400 and said in answer.text


@pytest.mark.parametrize(
    ("path", "what"),
    [("/v1/embeddings", "embeddings"), ("/api/embed", "embeddings"), ("/rerank", "rankings")],
)
def test_without_a_model_for_it(served: Served, path: str, what: str) -> None:
    answer = served.post(path, {"model": "text-embedding-3-small", "input": "a"})
    assert answer.status_code == 501
    named = re.search(rf"no model for {what} here; .* --embed MODEL, such as ([^\"]*)", answer.text)
    assert named and isinstance(reference_of(named[1]), Repository)


def test_texts_are_those_written_alone(beside: Served, alone: Engine) -> None:
    """While vectors of other texts are computed all the time."""
    expected = alone.generate(QUESTION, temperature=0, max_tokens=120).text
    body = {"messages": QUESTION, "temperature": 0, "max_tokens": 120, "model": CHAT}
    asked = {"model": VECTORS, "input": ["an bs cr dt"] * 64}
    with ThreadPoolExecutor(3) as pool:
        text = pool.submit(beside.post, "/v1/chat/completions", body)
        answers = []
        while not text.done():
            answers.append(beside.post("/v1/embeddings", asked))
    assert text.result().json()["choices"][0]["message"]["content"] == expected
    first = answers[0].json()["data"][0]["embedding"]
    assert answers and all(each.status_code == 200 for each in answers)
    for each in answers:
        assert differs([one["embedding"] for one in each.json()["data"]], np.array(first)) < NOISE


def test_the_log_and_the_metrics_count_them(beside: Served) -> None:
    def counted() -> dict[str, float]:
        lines = [line.split() for line in beside.get("/metrics").text.splitlines()]
        return {line[0]: float(line[1]) for line in lines if "embed" in line[0]}

    before = counted()
    beside.post("/v1/embeddings", {"input": TEXTS})
    after = counted()
    names = ("localspec:embedded_texts_total", "localspec:embedded_tokens_total")
    assert [after[name] - before[name] for name in names] == [3, 17]
    wait_for(lambda: any(f"{VECTORS}, 3 texts, 17 tokens, " in line for line in beside.lines))


def test_one_that_is_unloaded_comes_back(
    own_cache: None, files: dict[str, Path], expected: np.ndarray
) -> None:
    options = ("--threads", "1", "--ctx", "256", "--unload-after", "0.005", "--json-logs")
    with serving(*options, "--embed", str(files[VECTORS])) as running:
        wait_for(lambda: running.get("/api/ps").json() == {"models": []})
        answer = running.post("/v1/embeddings", {"input": TEXTS}).json()
        assert differs([each["embedding"] for each in answer["data"]], expected) < NOISE
        assert any(f"{VECTORS} is unloaded" in line for line in running.lines)
        assert running.end() == 0
    (entry,) = [json.loads(line) for line in running.lines if "embedded_texts" in line]
    assert (entry["embedded_texts"], entry["prompt_tokens"]) == (3, 17)


MANY = {"input": ["an bs " * 160] * 100}


def test_the_end_of_the_server_ends_them(own_cache: None, tmp_path: Path) -> None:
    path = write_causal(tmp_path / "slow.gguf")
    with serving("--threads", "1", "--ctx", "256", "--embed", str(path)) as running:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(running.post, "/v1/embeddings", MANY)
            time.sleep(0.7)
            assert running.end(signal.SIGINT) == 0
            answer = asked.result()
        assert answer.status_code == 503 and "shutting down" in answer.text


def test_a_wrong_model_ends_the_start(tmp_path: Path) -> None:
    none = write_bert(tmp_path / "none.gguf", context=64)
    for words, code, said in (
        (("--embed", "terminal-5m-q4_0"), 5, "names no pooling type"),
        (("--embed", "nowhere.gguf"), 3, "nowhere.gguf"),
        (("--embed", str(none), "--embed-ctx", "1"), 2, "--embed-ctx is 1; it must be 2 or more"),
        (("--embed-ctx", "65"), 2, "--embed-ctx is 65, without a model; add --embed MODEL"),
    ):
        done = command("serve", "--port", str(free_port()), *words)
        assert (done.code, said in done.err) == (code, True), done.err


def test_settings_of_clients_have_it(tmp_path: Path) -> None:
    for client, said in (
        ("openai", 'client.embeddings.create(model="nomic-embed", input=["Hello!"])'),
        ("ollama", 'embed(model="nomic-embed", input=["Hello!"])'),
        ("curl", '{"model": "nomic-embed", "input": ["Hello!"]}'),
    ):
        done = command("serve", "--embed", "nomic-embed", "--setup", client)
        assert said in done.out
        assert "there is no model 'nomic-embed'" in done.err
    assert "nomic-embed" not in command("serve", "--embed", "nomic-embed", "--setup", "codex").out
