"""`localspec audit` at the terminal: its lines, its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.command_line import localspec

from localspec.cli import audit
from localspec.engine import engine
from localspec.engine.engine import Engine


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    options = ["--json", "--seed", "3", "-n", "32", "--logprobs", "2", "--depth", "3"]
    made = localspec("generate", "-m", "pycode", "def f(x):", *options)
    assert made.code == 0, made.err
    parsed: dict[str, Any] = json.loads(made.out)
    return parsed


def test_a_true_text(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "text.json"
    file.write_text(json.dumps(record))
    done = localspec("audit", str(file))
    assert done.code == 0, done.err
    assert done.out.startswith("32 of 32 tokens are what the seed gives;")
    report = json.loads(localspec("audit", "-", "--json", stdin=json.dumps(record)).out)
    assert report["divergences"] == [] and report["same_text"] is True


def test_a_text_drafted_as_deep_as_pays() -> None:
    """Its steps are read from the widths of its passes: no depth is recorded."""
    made = localspec("generate", "-m", "pycode", "def f(x):", "--json", "--seed", "3", "-n", "32")
    record = json.loads(made.out)
    assert record["recipe"]["depth"] is None
    assert len(record["recipe"]["widths"]) == record["stats"]["steps"]
    done = localspec("audit", "-", stdin=made.out)
    assert done.code == 0, done.err
    assert done.out.startswith("32 of 32 tokens are what the seed gives;")


def test_streamed_json_is_read_too() -> None:
    options = ["--stream", "--json", "-n", "8", "--rule", "block", "--depth", "3"]
    made = localspec("generate", "-m", "pycode", "def f(x):", *options)
    done = localspec("audit", "-", stdin=made.out)
    assert done.code == 0, done.err
    assert done.out.startswith("8 of 8 tokens can be drawn")


def test_a_bug_is_exit_code_7(record: dict[str, Any]) -> None:
    touched = {**record, "token_ids": [5, *record["token_ids"][1:]]}
    done = localspec("audit", "-", stdin=json.dumps(touched))
    assert done.code == 7
    assert done.out.startswith("BUG: token 0 is ")
    assert done.err.startswith("localspec: error: the text is not the one its seed gives")


def test_a_record_that_powershell_wrote(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "text.json"
    file.write_text(json.dumps(record) + "\n", encoding="utf-16")
    assert localspec("audit", str(file)).code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "error: standard input holds no JSON; localspec generate --json writes it"),
        ("{", "holds no JSON"),
        ("[1]", "error: standard input is not a record of localspec; localspec generate --json"),
        ('{"text": "x"}', "not a record of localspec"),
        ('{"recipe": {}}', "not a record of localspec"),
    ],
)
def test_what_is_no_record_is_said(text: str, message: str) -> None:
    done = localspec("audit", "-", stdin=text)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert message in line


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for file, why in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        done = localspec("audit", str(file))
        assert done.code == 2
        assert done.err.startswith(f"localspec: error: {file} cannot be read: {why}")
        assert done.err.endswith("or - for standard input\n")


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of POSIX closes it")
def test_a_closed_standard_input_is_said() -> None:
    command = ["sh", "-c", '"$0" -m localspec audit - <&-', sys.executable]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: standard input cannot be read: it is closed; name" in done.stderr


def test_logprobs_are_in_the_record(record: dict[str, Any]) -> None:
    assert [each["id"] for each in record["logprobs"]] == record["token_ids"]
    for each in record["logprobs"]:
        first, second = each["top"]
        assert 0 >= first["logprob"] >= second["logprob"]
        assert each["logprob"] <= first["logprob"]


def test_it_can_generate_the_text_itself() -> None:
    done = localspec("audit", "--prompt", "def f(x):", "--draft", "lookup", "--seed", "4")
    assert done.code == 0, done.err
    assert "draft: lookup" in done.err and "seed 4" in done.err
    assert "tokens are what the seed gives" in done.out


@pytest.mark.parametrize("arguments", [[], ["-", "--prompt", "a"]])
def test_a_file_or_a_prompt(arguments: list[str]) -> None:
    done = localspec("audit", *arguments)
    assert done.code == 2
    assert "either FILE" in done.err


@pytest.mark.parametrize(
    ("rule", "draft", "said"),
    [
        ("token", "ngram", "rule token takes copies (ngram) as certain"),
        ("block", "auto", "rule block takes copies (suffix) as certain"),
        ("block", "lookup,{model},ngram", "rule block takes copies (lookup, ngram) as certain"),
        ("token", "{model}", None),
        ("coupled", "auto", None),
    ],
)
def test_that_copies_count_as_certain_is_said(
    drafter_path: Path, rule: str, draft: str, said: str | None
) -> None:
    """Of those drafters alone that copy, and of no rule under which it makes no difference."""
    chosen = draft.format(model=drafter_path)
    err = localspec(
        "generate", "-m", "pycode", "a", "-n", "2", "--draft", chosen, "--rule", rule
    ).err
    assert "draft: " in err
    assert (said in err) if said else ("as certain" not in err)


def test_a_text_under_a_grammar_is_audited_under_it() -> None:
    schema = '{"type": "array", "items": {"type": "integer"}, "minItems": 5}'
    made = localspec(
        "generate", "-m", "pycode", "x = ", "--json", "--seed", "2", "-n", "40", "--schema", schema
    )
    assert localspec("audit", "-", stdin=made.out).code == 0
    record = json.loads(made.out)
    record["recipe"]["schema"] = '{"type": "boolean"}'
    assert localspec("audit", "-", stdin=json.dumps(record)).code == 7


@pytest.mark.parametrize(
    ("options", "layers", "shares"),
    [
        ([], 3, [2, 1]),
        (["--gpu-layers", "5"], 5, [2, 1]),
        (["--gpu-layers", "0"], 0, [2, 1]),
        # Shares are those of the devices that the record names.
        (["--device", "none"], 3, []),
    ],
)
def test_the_target_is_where_the_record_says(
    record: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    layers: int,
    shares: list[int],
) -> None:
    """A plan of its own might move another number of layers; what the user says counts more."""
    recipe = record["recipe"]
    placement = {**recipe["placement"], "gpu_layers": 3, "cpu_moe": 2, "tensor_split": [2, 1]}
    asked: list[dict[str, Any]] = []

    def load(*arguments: Any, **options: Any) -> Engine:
        asked.append(options)
        return engine.load(*arguments, **options)

    monkeypatch.setattr(audit, "load", load)
    moved = {**record, "recipe": {**recipe, "placement": placement}}
    # click keeps the help options of the first call: those of the command line.
    names = ["-h", "--help"]
    done = CliRunner().invoke(
        audit.audit_command, ["-", *options], input=json.dumps(moved), help_option_names=names
    )
    assert done.exit_code == 0, done.output
    assert asked[-1]["gpu_layers"] == layers
    assert (asked[-1]["cpu_moe"], asked[-1]["device"]) == (2, ["none"])
    assert [*asked[-1]["tensor_split"]] == shares


def test_another_model_is_refused_before_it_is_loaded(
    record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "load", lambda *_, **__: pytest.fail("loaded"))
    other = {**record["recipe"], "fingerprint": "0" * 64}
    done = localspec("audit", "-", stdin=json.dumps({**record, "recipe": other}))
    assert done.code == 2
    gone = {**record, "model": {"target": "/nowhere/gone.gguf"}}
    refused = localspec("audit", "-", stdin=json.dumps(gone))
    assert (refused.code, "/nowhere/gone.gguf" in refused.err) == (3, True)
    assert "is another model than the one that wrote this text" in done.err
