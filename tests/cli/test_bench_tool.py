"""Ours beside llama-speculative-simple: what the tool is asked, what is measured, when it ends.

The tool is a small program that prints what it prints; LLAMA_SPECULATIVE_SIMPLE names a real one
for one more.
"""

import json
import os
import threading
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import psutil
import pytest
from fakes.command_line import Done, Run
from fakes.llama_server import write_llama_server
from fakes.llama_tool import TYPES, VERSION, write_llama_tool

from localspec.bench.configurations import Configuration, LoadedConfiguration
from localspec.bench.peer_drafts import PeerDraft
from localspec.bench.peer_program import PeerProgram, peer_program
from localspec.bench.prompt_sets import Task
from localspec.bench.tool import Tool, ToolFailed, ToolPrompt, ToolText, tool_drafts
from localspec.bench.tool_ratios import ToolRun, best_ratio, clearly_behind, is_known
from localspec.bench.tool_rounds import ToolLoad, run_beside_tool, tool_prompt
from localspec.bench.tool_summary import summarise_beside_tool
from localspec.bench.tool_text import DRAFT_COLUMNS, PROMPT_COLUMNS, draft_cells, prompt_cells
from localspec.bench.tool_text import tool_lines as lines_of
from localspec.bench.workload import Workload
from localspec.drafters.spec import MTP
from localspec.engine.engine import load
from localspec.engine.prompt import TextPrompt
from localspec.errors import InvalidValueError
from localspec.forecast.confidence import ConfidenceInterval
from localspec.llama import library
from localspec.llama.model import Model
from localspec.models import registry

SCHEMA = json.loads((resources.files("localspec.cli") / "bench.schema.json").read_text("utf-8"))
QUICK = ("--threads", "1", "-n", "8", "--seed", "3", "--temperature", "0.7")
PROMPTS = ["list the \\n files", "how full is the disk"]


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    """The tokens of each prompt in the bundled target."""
    with Model(registry.bundled().target) as model:
        return {text: len(model.tokenize(text)) for text in PROMPTS}


@pytest.fixture
def bench(cli: Run, tmp_path: Path) -> Any:
    """`localspec bench ARGS` within this process, on prompts of its own."""
    prompts = tmp_path / "mine.txt"
    prompts.write_text("\n---\n".join(PROMPTS))
    return lambda *args: Done(*cli("bench", *QUICK, "--prompts", str(prompts), *map(str, args)))


def log_of(folder: Path) -> list[dict[str, Any]]:
    """What the fake tool was started with."""
    return [json.loads(line) for line in (folder / "log").read_text("utf-8").splitlines()]


def test_the_tool_writes_each_prompt_with_each_of_its_drafts(
    bench: Any, counts: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PREDICT", "5")
    monkeypatch.setattr(library, "sources", lambda: ("0.5.0-dev", "0c1e570"))
    # Never as slow as ours, and these are slower than the others each time.
    seconds = {"ngram-mod": 2000.0, "ngram-simple": 1000.0, "draft-simple": 4000.0}
    tool, page = write_llama_tool(tmp_path, counts, seconds=seconds), tmp_path / "page.html"
    done = bench("--peer", tool, "--rounds", "3", "--json", "--html", page)
    assert done.code == 0, done.err
    record = done.record
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    assert record["busy_cores"] is not None or os.name == "nt"
    found = record["tool"]
    assert found["version"] == VERSION and found["same_sources"] is True
    assert (found["ours"], found["best_one_drafts"]) == ("auto", "ngram-simple")
    names = ["draft-simple:3", "draft-simple:5", "draft-simple:7", "ngram-simple", "ngram-mod"]
    rows = {row["drafts"]: row for row in found["drafts"]}
    assert list(rows) == names
    assert [(row["number"], row["best"]) for row in found["prompts"]] == [
        (1, "ngram-simple"),
        (2, "ngram-simple"),
    ]
    assert rows["ngram-simple"]["best_on"] == 2 and rows["ngram-simple"]["behind_on"] == 0
    assert rows["ngram-simple"]["runs"] == 2 * found["rounds"]
    for behind in (*names[:3], "ngram-mod"):
        assert rows[behind]["runs"] == 4 and rows[behind]["behind_on"] == 2
    assert rows["ngram-mod"]["speed"]["value"] == pytest.approx(8 / 2000.25)
    assert rows["ngram-mod"]["acceptance_rate"] == 0.5
    asked = log_of(tmp_path)
    assert [entry["given"]["--spec-type"] for entry in asked[:5]] == [
        *3 * ["draft-simple"],
        "ngram-simple",
        "ngram-mod",
    ]
    assert [entry["prompt"] for entry in asked[::5]][:2] == [f"{text}\n" for text in PROMPTS]
    for entry in asked:
        given = entry["given"]
        assert not entry["variables"]
        assert {"--ignore-eos", "--no-escape"} <= set(entry["argv"])
        assert (given["--temp"], given["--predict"], given["--threads"]) == ("0.7", "7", "1")
        assert ("--spec-draft-model" in given) == (given["--spec-type"] == "draft-simple")
        assert int(given["--seed"]) >= 3
    seeds = {entry["given"]["--seed"] for entry in asked[:10]}
    assert seeds == {"3", "4"}
    root = ET.fromstring(page.read_text("utf-8").partition("\n")[2])
    assert len(root.findall(".//tbody/tr")) == 2 + 5


def test_drafts_that_fail(bench: Any, counts: dict[str, int], tmp_path: Path) -> None:
    tool = write_llama_tool(tmp_path, counts, fails="draft-simple")
    done = bench("--peer", tool, "--rounds", "1")
    assert done.code == 0, done.err
    said = "draft-simple:5 is left out: llama-speculative-simple draft-simple:5 failed: error: fai"
    assert said in done.err
    assert "ngram-mod" in done.out and "draft-simple" not in done.out
    assert "1 round: the interval" in done.out
    tried = [entry["given"]["--spec-type"] for entry in log_of(tmp_path)]
    assert tried.count("draft-simple") == 3
    asked = bench("--peer", tool, "--peer-drafts", "ngram-simple,draft-simple:5")
    assert asked.code == 1
    assert asked.err.splitlines()[-1].endswith("failed: error: failed to load the draft model")


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("start", "wrote no text with any of its drafts"),
        ("tokens", "wrote no text with any of its drafts"),
        ("end", "wrote no text with any of its drafts"),
    ],
)
def test_a_tool_that_always_fails(
    bench: Any, counts: dict[str, int], tmp_path: Path, fails: str, said: str
) -> None:
    tool = write_llama_tool(tmp_path, counts, fails=fails)
    done = bench("--peer", tool, "--rounds", "1")
    assert done.code == 1
    assert said in done.err.splitlines()[-1]
    reasons = {
        "start": "failed: error: failed to load the draft model",
        "tokens": "tokens of a prompt that has",
        "end": "ngram-mod printed no times",
    }
    assert reasons[fails] in done.err
    assert not any(psutil.pid_exists(entry["pid"]) for entry in log_of(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--peer", "{tool}", "--users", "1"), "writes one text at a time; leave out --users"),
        (("--peer", "{tool}", "--verify"), "leave out --verify"),
        (("--peer", "{tool}", "--peer-drafts", "ngram-map"), "has draft-simple, draft-eagle3, ngr"),
        (("--peer", "{tool}", "--peer-drafts", "none"), "this llama-speculative-simple has draft"),
        (("--peer", "{tool}", "--peer-drafts", "ngram-mod:3"), "another --spec-type of llama.cpp"),
        (
            ("--peer", "{text}"),
            "must be a llama-server or llama-speculative-simple that can be run",
        ),
        (("--peer", "{other}"), "that can be run (it says: error: no such option)"),
        (("--peer", "{broken}"), "that can be run (it says: Exec format error)"),
        (("--peer", "{other}-not"), "that can be run (there is no such file)"),
        (("--peer", "{folder}"), "must be a llama-server or llama-speculative-simple"),
    ],
)
def test_what_cannot_be_measured(
    bench: Any, counts: dict[str, int], tmp_path: Path, options: Sequence[str], said: str
) -> None:
    files = {
        "tool": write_llama_tool(tmp_path, counts),
        "text": tmp_path / "mine.txt",
        "other": tmp_path / "other",
        "broken": tmp_path / "broken",
        "folder": tmp_path,
    }
    files["other"].write_text("#!/bin/sh\necho error: no such option; exit 2\n")
    files["broken"].write_bytes(b"\x7fELF no program")
    for name in ("other", "broken"):
        files[name].chmod(0o755)
    done = bench(*(word.format(**files) for word in options))
    assert done.code == 2
    assert said in done.err.splitlines()[-1]
    assert not (tmp_path / "log").exists()


def test_an_earlier_benchmark_is_refused(
    bench: Any, counts: dict[str, int], tmp_path: Path
) -> None:
    old = tmp_path / "old.json"
    done = bench("--drafts", "suffix", "--rounds", "1", "--json")
    old.write_text(done.out, encoding="utf-8")
    done = bench("--peer", write_llama_tool(tmp_path, counts), "--compare", old)
    assert done.code == 2 and "leave out --compare, or --peer" in done.err


def test_a_prompt_is_what_the_tokenizer_of_the_tool_reads() -> None:
    task = Task("chat", 1, ({"role": "user", "content": "how full is the disk"},))
    with load(registry.bundled().target, "none", threads=1) as engine:
        ids = engine.model.tokenize("how full")
        assert tool_prompt(Task("mine", 1, "how full"), engine, ids) == ToolPrompt(
            "how full", len(ids)
        )
        assert tool_prompt(task, engine, ids) is None
        tokens = TextPrompt(task.prompt_for(engine)).tokens(engine.model, engine.context)
        found = tool_prompt(task, engine, tokens)
        assert found and found.tokens == len(tokens) > len(ids)
        assert "how full is the disk" in found.text


# What the tool is, its drafts, and the rounds, without models.


@pytest.mark.parametrize(
    ("version", "ours", "same"),
    [
        ("0.5.0 (build 1, commit 0c1e570)", ("0.5.0", "0c1e570aa"), True),
        ("0.5.0 (build 1, commit 0c1e570)", ("0.5.0", "1111111"), False),
        ("0.5.0 (build 0, commit unknown)", ("0.5.0", "1111111"), None),
        ("0.5.0 (build 0, commit unknown)", ("0.5.1", ""), False),
        ("", ("0.5.0", "1111111"), None),
    ],
)
def test_the_sources_of_the_tool(
    version: str, ours: tuple[str, str], same: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "sources", lambda: ours)
    assert PeerProgram(Path("tool"), False, (), version).same_sources is same


def test_a_program_says_what_it_is(tmp_path: Path) -> None:
    tool = peer_program(write_llama_tool(tmp_path, {}), "tool")
    assert (tool.is_server, tool.types) == (False, tuple(TYPES.split(",")))
    server = peer_program(write_llama_server(tmp_path), "server")
    assert (server.is_server, server.version) == (True, "")


def test_drafts_follow_the_pair() -> None:
    target, drafter = registry.bundled().target, registry.bundled().drafter
    types = ("none", "draft-simple", "draft-mtp", "ngram-simple", "ngram-cache")
    program = PeerProgram(Path("tool"), False, types, "")
    copies = ["ngram-simple", "ngram-cache"]

    def names(names: Sequence[str], drafter: Any) -> list[str]:
        return [each.name for each in tool_drafts(program, names, target, drafter)]

    assert names([], None) == copies
    assert names([], drafter) == [f"draft-simple:{depth}" for depth in (3, 5, 7)] + copies
    assert names([], MTP) == [f"draft-mtp:{depth}" for depth in (3, 5, 7)] + copies
    assert names(["draft-simple", "draft-simple:8"], drafter) == ["draft-simple", "draft-simple:8"]
    older = PeerProgram(Path("tool"), False, ("none", "ngram-simple"), "")
    assert [each.name for each in tool_drafts(older, [], target, drafter)] == ["ngram-simple"]
    with pytest.raises(InvalidValueError, match="there is no drafter"):
        names(["draft-simple"], None)


def a_run(contender: str, seconds: float, task: int = 0, round_: int = 0) -> ToolRun:
    is_ours = contender in ("plain", "auto")
    writing, passed = seconds - 0.5, 10 - is_ours
    drafted = 4 * (not is_ours)
    return ToolRun(contender, is_ours, task, round_, 10, seconds, writing, passed, drafted, 1)


def test_drafts_that_are_clearly_behind_were_slower_each_time() -> None:
    runs = [a_run("fast", 1.0), a_run("slow", 2.0), a_run("even", 1.4), a_run("auto", 9.0)]
    assert clearly_behind(runs) == set()
    runs += [a_run("fast", 1.5), a_run("slow", 1.6), a_run("even", 1.3), a_run("once", 9.0)]
    assert clearly_behind(runs) == {"slow"}


def test_figures_beside_the_tool() -> None:
    runs = [
        run
        for task, factor in enumerate((1.0, 2.0))
        for round_ in range(2)
        for run in (
            a_run("plain", 4.0, task, round_),
            a_run("auto", 2.0, task, round_),
            a_run("a:3", 1.0 * factor + round_ / 10, task, round_),
            a_run("b", 1.5, task, round_),
        )
    ]
    program = PeerProgram(Path("tool"), False, (), "1")
    tasks = [Task("code", 1, "x"), Task("code", 2, "y")]
    found = summarise_beside_tool(runs, tasks, program, "auto")
    assert found
    first, second = found.prompts
    assert (first.best, first.plain, first.ours) == ("a:3", 2.5, 5.0)
    assert first.ratio.value == pytest.approx((0.5 * 0.55) ** 0.5)
    assert (second.best, second.ratio) == ("b", ConfidenceInterval(0.75, 0.75, 0.75))
    assert second.writing == ConfidenceInterval(0.6, 0.6, 0.6)
    assert found.lost == [first, second]
    a, b = found.drafts
    assert (a.runs, a.best_on, a.behind_on, b.best_on, b.behind_on) == (4, 1, 1, 1, 1)
    assert a.acceptance_rate == 0.25
    assert found.best_one_drafts == "a:3"
    assert found.best_one.value == pytest.approx((0.525 * 1.025) ** 0.5)
    ratio = best_ratio(runs, "auto")
    assert found.best_each == ratio and ratio
    assert ratio.value == pytest.approx((0.525 * 0.75) ** 0.5)
    assert len(prompt_cells(first)) == len(PROMPT_COLUMNS)
    assert len(draft_cells(a)) == len(DRAFT_COLUMNS)
    said = lines_of(found)
    assert "least 0.52 [0.29, 0.96], code 1 beside a:3" in said[0]
    assert said[1].startswith("auto writes 0.")
    assert said[2] == "slower beyond the interval: code 1 beside a:3, code 2 beside b"
    assert summarise_beside_tool(runs[:2], tasks, program, "auto") is None


def test_a_ratio_is_known_within_five_percent() -> None:
    assert is_known(ConfidenceInterval(2.0, 1.91, 2.09)) and not is_known(
        ConfidenceInterval(2.0, 1.89, 2.0)
    )
    assert not is_known(ConfidenceInterval(2.0)) and not is_known(None)


class _Engine:
    """An engine whose texts take the next of these seconds."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = iter(seconds)
        drafters = SimpleNamespace(sequences={}, drafters=[])
        target = SimpleNamespace(truncate=lambda _length: None)
        loaded = SimpleNamespace(drafter_set=drafters)
        own = SimpleNamespace(lock=nullcontext(), stop=lambda: None, target=target, loaded=loaded)
        self.slots = SimpleNamespace(own=own)

    def generate(self, _prompt: Any, *, max_tokens: int, **_options: Any) -> Any:
        counted = max_tokens == 10
        seconds = SimpleNamespace(prompt=0.0, generate=next(self.seconds) if counted else 1.0)
        stats = SimpleNamespace(generated_tokens=10, seconds=seconds, drafted=0, accepted=0)
        return SimpleNamespace(stats=stats)


class _Tool:
    """A tool whose texts take these seconds, by draft type; a type without any fails."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.written = seconds, list[str]()

    def write(self, draft: PeerDraft, *_others: object) -> ToolText:
        self.written.append(draft.name)
        if draft.name not in self.seconds:
            raise ToolFailed(f"{draft.name} failed")
        return ToolText(10, self.seconds[draft.name], 0.5, 0, 0)


def rounds_of(auto: Sequence[float], tool: _Tool, rounds: int) -> tuple[list[ToolRun], list[str]]:
    """The runs beside the tool on one prompt, and the drafts that failed."""
    drafts = [PeerDraft(name, None, None) for name in ("good", "poor", "bad")]
    engine = cast("Any", _Engine(auto))
    ours = [LoadedConfiguration(Configuration("auto", "auto", None), engine)]
    workload = Workload([[1]], rounds, {"max_tokens": 10}, 0)
    load = ToolLoad(cast("Tool", tool), drafts, [ToolPrompt("x", 1)], workload)
    failed: list[str] = []
    runs = run_beside_tool(
        ours, load, threading.Event(), lambda draft, _error: failed.append(draft.name)
    )
    return list(runs), failed


def test_rounds_end_when_the_ratio_is_known() -> None:
    tool = _Tool({"good": 1.0, "poor": 1.5})
    runs, failed = rounds_of([1.0, 1.005, 9.0], tool, 9)
    assert failed == ["bad"]
    assert tool.written == ["good", "poor", "bad", "poor", "good"]
    assert max(run.round for run in runs) == 1


def test_rounds_go_on_while_the_ratio_is_not_known() -> None:
    tool = _Tool({"good": 1.0, "poor": 1.5})
    runs, _failed = rounds_of([1.0, 1.5, 1.0, 1.5, 1.0], tool, 4)
    assert max(run.round for run in runs) == 3
    assert tool.written.count("good") == 4 and tool.written.count("poor") == 2


@pytest.mark.skipif(
    not Path(os.environ.get("LLAMA_SPECULATIVE_SIMPLE", "")).is_file(),
    reason="LLAMA_SPECULATIVE_SIMPLE names no tool",
)
def test_the_real_tool(bench: Any) -> None:
    tool = os.environ["LLAMA_SPECULATIVE_SIMPLE"]
    done = bench("--peer", tool, "--rounds", "1", "--set", "terminal", "--json")
    assert done.code == 0, done.err
    found = done.record["tool"]
    assert not done.record["left_out"]
    assert len(found["prompts"]) == 7 and found["same_sources"] is not False
    names = {row["drafts"] for row in found["drafts"]}
    assert {"draft-simple:3", "draft-simple:7", "ngram-simple"} <= names
    assert all(row["runs"] == 7 for row in found["drafts"])
