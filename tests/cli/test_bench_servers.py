"""Our server and llama-server under the same load: what is asked, measured, and shown.

The peer is a small program that speaks its protocol; LLAMA_SERVER names a real one for one more.
"""

import json
import os
import threading
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import psutil
import pytest
from fakes.command_line import Done, Run
from fakes.llama_server import write_llama_server
from fakes.served import wait_for

from localspec.bench import load_client, server_process
from localspec.bench.configurations import Configuration
from localspec.bench.served import ServedRun, ServedText
from localspec.bench.served_summary import fastest_peers, summarise_served
from localspec.bench.served_text import SERVED_COLUMNS, fastest_peer_lines, served_cells
from localspec.bench.server_process import ServerFailed, running_server
from localspec.bench.servers import OwnServer, ServedModel, peer_servers
from localspec.drafters.spec import MTP
from localspec.errors import InvalidValueError
from localspec.forecast.confidence import ConfidenceInterval
from localspec.llama.placement import Placement
from localspec.loading.config import RuntimeConfig
from localspec.models import registry

SCHEMA = json.loads((resources.files("localspec.cli") / "bench.schema.json").read_text("utf-8"))
QUICK = ("--threads", "1", "-n", "8", "--rounds", "1", "--seed", "3", "--temperature", "0.7")
PROMPTS = "list the files\n---\nhow full is the disk\n"


@pytest.fixture
def bench(cli: Run, tmp_path: Path) -> Any:
    """`localspec bench ARGS` within this process, on prompts of its own."""
    prompts = tmp_path / "mine.txt"
    prompts.write_text(PROMPTS)
    return lambda *args: Done(*cli("bench", *QUICK, "--prompts", str(prompts), *map(str, args)))


def log_of(folder: Path) -> list[dict[str, Any]]:
    """What the fake llama-server was started with and asked for."""
    return [json.loads(line) for line in (folder / "log").read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_both_servers_are_asked_for_the_same(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    monkeypatch.setenv("LOCALSPEC_API_KEY", "secret")
    peer, page = write_llama_server(tmp_path), tmp_path / "page.html"
    done = bench("--users", "1,2", "--peer", peer, "--json", "--html", page)
    assert done.code == 0, done.err
    record = done.record
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    names = ["plain", "auto", *(f"llama-server{kind}" for kind in TYPES)]
    assert [(row["users"], row["contender"]) for row in record["served"]] == [
        (users, name) for users in (1, 2) for name in names
    ]
    assert list(record["drafters"]) == names and record["drafters"][names[-1]] == ["ngram-simple"]
    for row in record["served"]:
        assert row["tokens"] == 8 * row["users"]
        assert row["total"]["value"] > 0 and row["first_token"]["value"] > 0
        assert (row["ours"] is None) == (row["contender"] == "auto")
    started = [entry for entry in log_of(tmp_path) if "argv" in entry]
    assert [entry["argv"][entry["argv"].index("--spec-type") + 1] for entry in started] == 2 * [
        "none",
        "draft-simple",
        "ngram-simple",
    ]
    assert not any(entry["key"] for entry in started)
    for entry, users in zip(started, [1, 1, 1, 2, 2, 2], strict=True):
        words = [word for word in entry["argv"] if word != "--no-repack"]
        given = dict(zip(words[::2], words[1::2], strict=True))
        context = record["conditions"]["context"]
        assert given["--parallel"] == str(users) and given["--ctx-size"] == str(users * context)
        assert given["--threads"] == "1" and given["--host"] == "127.0.0.1"
        assert ("--spec-draft-model" in given) == (given["--spec-type"] == "draft-simple")
    bodies = [entry["body"] for entry in log_of(tmp_path) if "body" in entry]
    counted = [body for body in bodies if isinstance(body["prompt"], list)]
    assert len(bodies) == 2 * len(counted) == 18
    assert {body["seed"] for body in counted} == {3, 4}
    assert all(body["temperature"] == 0.7 and body["ignore_eos"] for body in bodies)
    root = ET.fromstring(page.read_text("utf-8").partition("\n")[2])
    assert len(root.findall(".//tbody/tr")) == 10


TYPES = ["", " draft-simple", " ngram-simple"]


@pytest.mark.slow
def test_a_draft_type_that_the_peer_does_not_know(bench: Any, tmp_path: Path) -> None:
    peer = write_llama_server(tmp_path, fails="ngram-simple")
    done = bench("--users", "1", "--peer", peer, "--drafts", "none")
    assert done.code == 0
    assert "llama-server ngram-simple is left out: llama-server ngram-simple did not" in done.err
    assert "unknown value for --spec-type" in done.err
    assert "1 user: plain is" in done.out
    asked = bench("--users", "1", "--peer", peer, "--peer-drafts", "ngram-simple")
    assert asked.code == 1
    assert asked.err.splitlines()[-1].endswith("error: unknown value for --spec-type")


@pytest.mark.parametrize("fails", ["start", "text"])
def test_a_peer_that_fails(bench: Any, tmp_path: Path, fails: str) -> None:
    done = bench("--peer", write_llama_server(tmp_path, fails=fails))
    assert done.code == 1
    said = {"start": "did not start: error: unknown", "text": "llama-server failed: /v1/comp"}
    assert said[fails] in done.err.splitlines()[-1]
    numbers = [entry["pid"] for entry in log_of(tmp_path) if "pid" in entry]
    wait_for(lambda: not any(map(psutil.pid_exists, numbers)))


def test_a_server_that_is_never_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_client, "LOAD_SECONDS", 0.5)
    waiting = running_server("sleep", lambda _port: ["sleep", "60"], lambda: False)
    with pytest.raises(ServerFailed, match="sleep was not ready after"), waiting:
        raise AssertionError("it is not ready")


def test_nobody_waits_for_a_server_after_ctrl_c() -> None:
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    waiting = running_server("sleep", lambda _port: ["sleep", "60"], cancel.is_set)
    with pytest.raises(ServerFailed), waiting:
        raise AssertionError("it is not ready")


def test_a_port_that_another_program_takes_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = write_llama_server(tmp_path)
    tried: list[int] = []

    def command(port: int) -> list[str]:
        tried.append(port)
        return [str(peer), "--host", "127.0.0.1", "--parallel", "1", "--port", str(port)]

    with running_server("first", command, lambda: False) as first:
        ports = iter([first.port, server_process._free_port()])
        monkeypatch.setattr(server_process, "_free_port", lambda: next(ports))
        # The health of the first is not taken for that of the second.
        with running_server("second", command, lambda: False) as second:
            assert second.port != first.port
    assert tried[1] == tried[0] == first.port and len(tried) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--users", "1", "--peer", "/nowhere"), "it must be a llama-server or llama-sp"),
        (("--users", "1", "--peer", "{peer}", "--verify"), "leave out --verify"),
        (("--users", "1", "--peer", "{peer}", "--device", "none"), "name --gpu-layers alone"),
        (("--users", "1", "--peer-drafts", "none"), "name the program with --peer"),
        (("--users", "1", "--peer", "{peer}", "--peer-drafts", "a b"), "another --spec-type"),
        (("--users", "1", "--peer", "{peer}", "--peer-drafts", "none:3"), "another --spec-type"),
    ],
)
def test_what_cannot_be_measured(
    bench: Any, tmp_path: Path, options: Sequence[str], said: str
) -> None:
    peer = str(write_llama_server(tmp_path))
    done = bench(*(word.replace("{peer}", peer) for word in options))
    assert done.code == 2
    assert said in done.err.splitlines()[-1]
    assert not (tmp_path / "log").exists()


# Names and figures, without servers.


def model() -> ServedModel:
    return ServedModel(registry.bundled().target, 512, 2, RuntimeConfig(placement=Placement(3)))


def test_servers_have_the_caches_that_were_asked_for(tmp_path: Path) -> None:
    chosen = RuntimeConfig(
        kv_type="q8_0/f16", drafter_kv_type="bf16", flash_attention=True, ubatch=64
    )
    served = replace(model(), runtime=chosen)
    drafter, binary = registry.bundled().drafter, tmp_path / "llama-server"
    [peer] = peer_servers(binary, ["draft-simple"], drafter, served)
    ours = OwnServer(Configuration("auto", "auto", None), ["auto"], served, "coupled")
    theirs, own = (" ".join(server.command(8080, 1)) for server in (peer, ours))
    both = ("--flash-attn on",)
    for pair in (*both, "--cache-type-k q8_0", "--ubatch-size 64", "--spec-draft-type-k bf16"):
        assert pair in theirs
    assert "--spec-draft-type-v bf16" in theirs and "--cache-type-v" not in theirs
    for pair in (*both, "--kv-type q8_0/f16", "--draft-kv-type bf16", "--ubatch 64"):
        assert pair in own


def test_draft_types_follow_the_drafter(tmp_path: Path) -> None:
    drafter, binary = registry.bundled().drafter, tmp_path / "llama-server"
    usual = peer_servers(binary, [], drafter, model())
    assert [each.name for each in usual] == [f"llama-server{kind}" for kind in TYPES]
    assert [each.is_optional for each in usual] == [False, True, True]
    [deep] = peer_servers(binary, ["draft-simple:8"], drafter, model())
    words = deep.command(8080, 4)
    assert (deep.name, deep.is_optional) == ("llama-server draft-simple:8", False)
    for pair in ("--spec-draft-n-max 8", "--ctx-size 2048", "--n-gpu-layers 3"):
        assert pair in " ".join(words)
    assert not {"--cache-type-k", "--flash-attn", "--ubatch-size"} & {*words}
    [heads] = peer_servers(binary, ["draft-mtp"], MTP, model())
    assert "--spec-draft-model" not in heads.command(8080, 1)
    assert [each.draft.type for each in peer_servers(binary, [], None, model())] == [
        "none",
        "ngram-simple",
    ]
    with pytest.raises(InvalidValueError, match="there is no drafter"):
        peer_servers(binary, ["draft-simple"], None, model())


def a_run(name: str, users: int, seconds: float, round_: int = 0) -> ServedRun:
    texts = [ServedText(task, 10, 0.5, seconds, 8, 2) for task in range(users)]
    return ServedRun(name, users, round_, texts)


def test_figures_of_servers() -> None:
    runs = [
        a_run("plain", 2, 4.0),
        a_run("auto", 2, 2.0),
        a_run("llama-server", 2, 3.0),
        a_run("llama-server ngram-simple", 2, 2.5),
        a_run("llama-server", 2, 5.0, 1),
        a_run("auto", 2, 2.0, 1),
        a_run("llama-server", 1, 1.0),
        a_run("auto", 1, 2.0),
    ]
    rows = summarise_served(runs)
    plain, auto, peer, ngram, *_alone = rows
    assert (plain.total, plain.ours) == (ConfidenceInterval(5.0), ConfidenceInterval(2.0))
    assert (auto.total.value, auto.plain_ratio, auto.ours) == (10.0, ConfidenceInterval(2.0), None)
    assert (peer.runs, peer.tokens) == (2, 40)
    assert peer.ours and peer.ours.value == pytest.approx((1.5 * 2.5) ** 0.5)
    assert ngram.ours == ConfidenceInterval(1.25)
    assert auto.each.value == 6.0 and auto.first_token.value == 0.5
    assert auto.acceptance_rate == 0.25
    assert [(row.users, row.configuration) for row in fastest_peers(rows)] == [
        (2, "llama-server ngram-simple"),
        (1, "llama-server"),
    ]
    assert fastest_peer_lines(rows)[1].startswith("1 user: auto is 0.50 times as fast as llama-s")
    assert len(served_cells(auto)) == len(SERVED_COLUMNS)


@pytest.mark.skipif("LLAMA_SERVER" not in os.environ, reason="LLAMA_SERVER names no llama-server")
def test_a_real_llama_server(bench: Any) -> None:
    types = "none,draft-simple,draft-simple:6,ngram-simple,ngram-mod"
    peer = os.environ["LLAMA_SERVER"]
    done = bench("--users", "1,3", "--peer", peer, "--peer-drafts", types, "--json")
    assert done.code == 0, done.err
    rows = {(row["users"], row["contender"]): row for row in done.record["served"]}
    assert len(rows) == 14
    assert all(row["tokens"] == 8 * users for (users, _), row in rows.items())
    assert rows[3, "llama-server draft-simple:6"]["acceptance_rate"] is not None
