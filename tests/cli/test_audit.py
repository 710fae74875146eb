"""`localspec audit` at the terminal: its lines, its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    options = ["--json", "--seed", "3", "-n", "32", "--logprobs", "2", "--depth", "3"]
    made = run("generate", "def f(x):", *options)
    assert made.returncode == 0, made.stderr
    parsed: dict[str, Any] = json.loads(made.stdout)
    return parsed


def test_a_true_text(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "text.json"
    file.write_text(json.dumps(record))
    done = run("audit", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("32 of 32 tokens are what the seed gives;")
    report = json.loads(run("audit", "-", "--json", stdin=json.dumps(record)).stdout)
    assert report["divergences"] == [] and report["same_text"] is True


def test_a_text_drafted_as_deep_as_pays() -> None:
    """Its steps are read from the widths of its passes: no depth is recorded."""
    made = run("generate", "def f(x):", "--json", "--seed", "3", "-n", "32")
    record = json.loads(made.stdout)
    assert record["recipe"]["depth"] is None
    assert len(record["recipe"]["widths"]) == record["stats"]["steps"]
    done = run("audit", "-", stdin=made.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("32 of 32 tokens are what the seed gives;")


def test_streamed_json_is_read_too() -> None:
    options = ["--stream", "--json", "-n", "8", "--rule", "block", "--depth", "3"]
    made = run("generate", "def f(x):", *options)
    done = run("audit", "-", stdin=made.stdout)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("8 of 8 tokens can be drawn")


def test_a_bug_is_exit_code_7(record: dict[str, Any]) -> None:
    touched = {**record, "token_ids": [5, *record["token_ids"][1:]]}
    done = run("audit", "-", stdin=json.dumps(touched))
    assert done.returncode == 7
    assert done.stdout.startswith("BUG: token 0 is ")
    assert done.stderr.startswith("localspec: error: the text is not what its seed gives")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no JSON"),
        ("{", "holds no JSON"),
        ("[1]", "no record of localspec"),
        ('{"text": "x"}', "no record of localspec"),
        ('{"recipe": {}}', "no record of localspec"),
    ],
)
def test_what_is_no_record_is_said(text: str, message: str) -> None:
    done = run("audit", "-", stdin=text)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert message in line


def test_logprobs_are_in_the_record(record: dict[str, Any]) -> None:
    assert [each["id"] for each in record["logprobs"]] == record["token_ids"]
    for each in record["logprobs"]:
        first, second = each["top"]
        assert 0 >= first["logprob"] >= second["logprob"]
        assert each["logprob"] <= first["logprob"]


def test_it_can_generate_the_text_itself() -> None:
    done = run("audit", "--prompt", "def f(x):", "--draft", "lookup", "--seed", "4")
    assert done.returncode == 0, done.stderr
    assert "draft: lookup" in done.stderr and "seed 4" in done.stderr
    assert "tokens are what the seed gives" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["-", "--prompt", "a"]])
def test_a_file_or_a_prompt(arguments: list[str]) -> None:
    done = run("audit", *arguments)
    assert done.returncode == 2
    assert "either FILE" in done.stderr


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
    err = run("generate", "a", "-n", "2", "--draft", chosen, "--rule", rule).stderr
    assert "draft: " in err
    assert (said in err) if said else ("as certain" not in err)


def test_a_text_under_a_grammar_is_audited_under_it() -> None:
    schema = '{"type": "array", "items": {"type": "integer"}, "minItems": 5}'
    made = run("generate", "x = ", "--json", "--seed", "2", "-n", "40", "--schema", schema)
    assert run("audit", "-", stdin=made.stdout).returncode == 0
    record = json.loads(made.stdout)
    record["recipe"]["schema"] = '{"type": "boolean"}'
    assert run("audit", "-", stdin=json.dumps(record)).returncode == 7
