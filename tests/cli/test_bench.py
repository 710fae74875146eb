"""`localspec bench` at the terminal, on the bundled pair: its table, its JSON, its exit codes."""

import json
import os
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from fakes.command_line import Done, Run, localspec

from localspec.bench import default_sets, runner
from localspec.bench.report_text import COLUMNS
from localspec.cli import bench_choice, usual_pair
from localspec.cli.bench_output import quick_target_line
from localspec.cli.bench_table import printed_table
from localspec.engine.generation import Result
from localspec.forecast.confidence import ConfidenceInterval
from localspec.models import registry
from localspec.scaling.demo_pair import DemoPair
from localspec.scaling.written_pair import written_pair

SCHEMA = json.loads((resources.files("localspec.cli") / "bench.schema.json").read_text("utf-8"))
BUNDLED = str(registry.bundled().target)
QUICK = ("--threads", "1", "-n", "8", "--rounds", "1", "--seed", "3")


class Benched(Done):
    """How a run of `localspec bench` ended."""

    @property
    def record(self) -> dict[str, Any]:
        """The one object on standard output, which follows the schema."""
        record = super().record
        jsonschema.Draft202012Validator(SCHEMA).validate(record)
        return record


@pytest.fixture
def bench(cli: Run) -> Any:
    """`localspec bench ARGS` within this process."""
    return lambda *args: Benched(*cli("bench", *args))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "mine.txt"
    file.write_text("def add(a, b):\n---\nimport os\nimport sys\n")
    return file


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_table_has_every_configuration(bench: Any, prompts: Path) -> None:
    done = bench(*QUICK, "--prompts", str(prompts))
    assert done.code == 0
    for name in ("plain", "suffix", "lookup", "ngram", "terminal-5m-q4_0", "auto"):
        assert name in done.out
    assert "mine (2)" in done.out and "seed 3" in done.out and "llama_cpp_python" in done.out
    assert "\x1b" not in done.out + done.err
    assert done.err.count("tok/s") == 2 * 6
    (line,) = [line for line in done.out.split("\n") if line.startswith("prompts are read at ")]
    assert "tok/s · first token after: plain 0." in line and line.count(" s, ") == 5


def test_a_context_beyond_the_model_is_its_own_and_said(bench: Any, prompts: Path) -> None:
    options = ("--prompts", str(prompts), "--drafts", "suffix", "--ctx", "1000000", "--json")
    done = bench(*QUICK, *options)
    assert done.record["conditions"]["context"] == 2048
    assert done.err.count("context 2048: 1000000 is more than") == 1


@pytest.mark.slow
def test_json_is_one_object(bench: Any, prompts: Path) -> None:
    options = ("--set", "json", "--drafts", "suffix,auto", "--depth", "2,auto", "--json")
    record = bench(*QUICK, "--prompts", str(prompts), *options).record
    names = list(record["drafters"])
    assert names == ["plain", "suffix, depth 2", "suffix", "auto, depth 2", "auto"]
    assert {row["set"] for row in record["rows"]} == {"json", "mine", "all"}
    assert len(record["rows"]) == 3 * len(names)
    assert record["same_text"] is True
    assert record["conditions"]["prompts"] == {"json": 5, "mine": 2}
    assert len(record["costs"]["seconds"]) == 32
    assert record["peak_resident"] > record["target"]["memory"]["weights"]
    for row in record["rows"]:
        assert row["tokens"] == 8 * row["runs"]
        assert sum(row["accepted_lengths"]) == sum(row["widths"].values()) == row["steps"]


def test_the_page_is_written(bench: Any, prompts: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    done = bench(*QUICK, "--prompts", str(prompts), "--drafts", "lookup", "--html", str(page))
    assert done.code == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_caches_and_samplers_are_said_and_recorded(bench: Any, prompts: Path) -> None:
    options = ("--prompts", str(prompts), "--drafts", "model", "--json")
    usual = bench(*QUICK, *options).record
    kinds = ("--kv-type", "q8_0/f16", "--draft-kv-type", "q8_0", "--ubatch", "64")
    done = bench(*QUICK, *options, *kinds, "--top-k", "5")
    conditions = done.record["conditions"]
    assert usual["conditions"] | {
        "kv_type": "q8_0/f16",
        "drafter_kv_type": "q8_0",
        "ubatch": 64,
        "sampling": {"top_k": 5},
    } == {**conditions, "seed": usual["conditions"]["seed"]}
    before, now = usual["target"]["memory"]["cache"], done.record["target"]["memory"]["cache"]
    assert now == before * (34 / 32 + 2) / 4
    table = bench(*QUICK, "--prompts", str(prompts), "--drafts", "suffix", *kinds, "--top-k", "5")
    assert "top_k 5" in table.out and "KV cache q8_0/f16" in table.out and "ubatch 64" in table.out


@pytest.mark.slow
def test_verify_says_that_texts_are_equal(bench: Any, prompts: Path) -> None:
    options = ("--drafts", "lookup,model,auto", "--depth", "3", "--verify", "--json")
    done = bench(*QUICK, "--prompts", str(prompts), *options)
    assert done.code == 0
    assert done.record["conditions"]["reproducible"] is True
    assert "6 texts equal those of plain decoding" in done.err


def test_verify_needs_something_to_compare(bench: Any, prompts: Path) -> None:
    done = bench(*QUICK, "--prompts", str(prompts), "--drafts", "none", "--verify", "--json")
    assert done.code == 2 and done.record["same_text"] is None
    assert "--verify: no text was compared with that of plain decoding, as nothing" in done.err
    assert done.record["conditions"]["placement"] == "on the processor"


def test_one_text_of_one_token(bench: Any, tmp_path: Path) -> None:
    one = tmp_path / "one.txt"
    one.write_text("import os\n")
    options = ("-n", "1", "--drafts", "lookup", "--depth", "3,3", "--verify")
    done = bench(*QUICK, *options, "--prompts", str(one))
    assert done.code == 0 and "1 text equals that of plain decoding, token" in done.err
    assert "1 token each" in done.out


def test_a_rule_that_does_not_keep_the_text_is_not_held_to_it(bench: Any, prompts: Path) -> None:
    options = ("--drafts", "auto", "--rule", "token", "--temperature", "0.8", "--json")
    done = bench(*QUICK, "--prompts", str(prompts), *options)
    assert done.record["same_text"] is None and done.record["bounds"] == []
    assert all(row["compared"] == 0 and row["ratio"] for row in done.record["rows"])
    assert "writing the texts once more" not in done.err


def test_verify_notices_a_lie(bench: Any, prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = runner.write_text

    def lying(configuration: Any, *args: Any) -> Result:
        result = honest(configuration, *args)
        if configuration.name == "lookup" and len(result.token_ids) == 8:
            result.token_ids[5] += 1
        return result

    monkeypatch.setattr(runner, "write_text", lying)
    options = (*QUICK, "--prompts", str(prompts), "--drafts", "ngram,lookup")
    done = bench(*options, "--verify", "--json")
    assert done.code == 7
    assert done.record["same_text"] is False
    assert (
        "lookup does not give the text of plain decoding: prompt 1 of mine, round 1, place 5"
        in (done.err)
    )
    table = bench(*options)
    assert table.code == 0 and "0 of 2" in table.out


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--prompts", "no-such-file.txt"], 2, "--prompts no-such-file.txt: No such file"),
        (["--set", "verse"], 2, "--set verse: there is no such set"),
        (["--depth", "deep"], 2, "--depth is 'deep'; it must be auto, a number"),
        (["--depth", "3,99"], 2, "--depth is 99"),
        (["--tokens", "0"], 2, "--tokens is 0; it must be at least 1"),
        (["--rounds", "0"], 2, "--rounds is 0; it must be at least 1"),
        (["--temperature", "-1"], 2, "--temperature is -1"),
        (["--verify", "--rule", "token"], 2, "use --rule coupled"),
        (["--set", "code", "--ctx", "8"], 2, "prompt 1 of code: the prompt has "),
        (["--html", "no-such-folder/out.html"], 2, "a folder that exists"),
        (["--ctx", "40", "-n", "30", "--set", "code"], 2, "--ctx"),
        (["--model", "no-such.gguf"], 3, "no-such.gguf"),
        (["--drafts", "psychic"], 3, "there is no model 'psychic'"),
        (["--draft", "no-such.gguf"], 3, "no-such.gguf"),
        (["--draft", "a.gguf,suffix"], 2, "'a.gguf,suffix'; it names one model, and --drafts"),
    ],
)
def test_one_line_and_an_exit_code(bench: Any, options: list[str], code: int, said: str) -> None:
    done = bench(*options)
    assert done.code == code
    assert done.out == ""
    [line] = done.err.splitlines()
    assert said in line


def test_where_the_model_has_no_larger_context_another_one_is_advised(bench: Any) -> None:
    done = bench("--set", "code", "-n", "2047", "--drafts", "none", "--threads", "1")
    assert done.code == 2 and "prompt 1 of code has " in done.err
    assert "2048; lower --tokens, or take a model that was made for more, or raise" in done.err


def test_a_prompt_file_that_is_not_utf8(bench: Any, tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes(b"caf\xe9")
    done = bench("--prompts", str(file))
    assert done.code == 2
    assert f"--prompts {file}: it is not UTF-8, byte 3 is 0xe9; save it" in done.err


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
def test_an_interrupt_keeps_what_was_measured() -> None:
    command = [sys.executable, "-m", "localspec", "bench", "--set", "code", "--json"]
    options = ["--threads", "1", "-n", "200", "--rounds", "100", "--drafts", "lookup"]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        try:
            assert any(" 3 of " in line for line in running.stderr)
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        finally:
            running.kill()
    record = Done(running.returncode, out, err).record
    assert running.returncode == 130
    assert record["interrupted"] is True
    assert sum(row["runs"] for row in record["rows"]) >= 3
    assert "Traceback" not in err


def test_without_a_model_the_bundled_pair_and_how_to_get_a_larger_one(
    bench: Any, prompts: Path
) -> None:
    done = bench(*QUICK, "--prompts", str(prompts), "--drafts", "lookup")
    assert "no model named, so the bundled pair, which is too quick for drafts to pay" in done.err
    assert "localspec demo writes a larger one" in done.err
    named = bench(*QUICK, "--prompts", str(prompts), "--drafts", "lookup", "-m", BUNDLED)
    assert "no model named" not in named.err


@pytest.mark.slow
def test_without_a_model_the_pair_that_the_demo_wrote(
    bench: Any, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    pair = DemoPair("70M", "Q4_0")
    assert written_pair() is None
    pair.write()
    assert default_sets(pair.target) == ["terminal"]
    (pair.folder / f"{pair.target.stem.rpartition('-')[0]}-0123.gguf").touch()
    found = written_pair()
    assert found and (found.target, found.drafter) == (pair.target, pair.drafter)
    done = bench(*QUICK, "--prompts", str(prompts), "--json")
    assert f"so the pair that localspec demo wrote: {pair.target.stem}" in done.err
    assert Path(done.record["target"]["file"]) == pair.target
    assert done.record["conditions"]["temperature"] == 0
    assert list(done.record["drafters"]) == ["plain", "suffix", pair.drafter.stem, "auto"]
    # `plan` forecasts what `bench` measures.
    few = ("--threads", "1", "--answers", "2", "-n", "8")
    planned = localspec("plan", *few, "--json", LOCALSPEC_HOME=str(tmp_path))
    assert f"so the pair that localspec demo wrote: {pair.target.stem}" in planned.err
    assert Path(planned.record["model"]["target"]) == pair.target
    assert pair.drafter.stem in {line["drafter"] for line in planned.record["lines"]}
    assert planned.record["plan"]["temperature"] == 0


def test_the_pair_of_the_demo_gets_a_brief_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usual_pair, "written_pair", lambda: DemoPair("70M", "Q4_0"))
    monkeypatch.setattr(bench_choice, "default_sets", lambda _target: ["terminal"])
    nothing = {"model": None, "draft": None, "drafts": None, "sets": None, "file": None}
    brief = bench_choice.choose(**nothing, depths=[None], rounds=None)
    assert (brief.rounds, brief.temperature) == (1, 0)
    assert {task.set for task in brief.tasks} == {"terminal"}
    asked = {**nothing, "sets": "json", "drafts": "lookup"}
    named = bench_choice.choose(**asked, depths=[None], rounds=2)
    assert (named.rounds, named.sweep.drafts) == (2, ["lookup"])
    assert {task.set for task in named.tasks} == {"json"}


def test_sets_by_the_target(target_path: Path) -> None:
    nothing = {"draft": None, "drafts": None, "sets": None, "file": None, "rounds": None}
    for model in (None, "terminal", BUNDLED):
        own = bench_choice.choose(model=model, depths=[None], **nothing)
        assert {task.set for task in own.tasks} == {"terminal"}
    other = bench_choice.choose(model=str(target_path), depths=[None], **nothing)
    assert {task.set for task in other.tasks} == {"code", "edit", "prose", "json", "chat"}


def test_a_target_that_is_too_quick_is_named() -> None:
    def row(name: str, speed: float, ratio: float) -> Any:
        return SimpleNamespace(
            set="all",
            configuration=name,
            tokens_per_second=ConfidenceInterval(speed),
            ratio=ConfidenceInterval(ratio),
        )

    quick, slow = row("plain", 2000, 1), row("plain", 40, 1)
    said = "target 0.5 ms/token: too quick for drafts to pay"
    assert quick_target_line([quick, row("suffix", 1800, 0.9)]) == said
    assert quick_target_line([quick, row("suffix", 2800, 1.4)]) == ""
    assert quick_target_line([slow, row("suffix", 36, 0.9)]) == ""
    assert quick_target_line([quick]) == quick_target_line([]) == ""


def test_a_row_is_one_line_where_stdout_is_no_terminal() -> None:
    row = ["code", "a-drafter-of-a-usual-name-q4_0", "1,234", "12.34 [11.05, 13.39]", "57%"]
    row += ["11.20", "22%", "76%", "2%", "yes"]
    table = printed_table(COLUMNS, [[row]], [])
    assert any(line.split() == " ".join(row).split() for line in table.splitlines()), table
