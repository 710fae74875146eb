"""`localspec plan` at the terminal, and what `generate` says of what it kept."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from fakes.command_line import Done, localspec

from localspec.cli.plan import plan
from localspec.utils.busy_cores import BusyCores

FEW = ("--threads", "1", "--answers", "2", "-n", "16", "--set", "code")


def run(folder: Path, *arguments: str) -> Done:
    """`localspec ARGUMENTS`, with files of its own in a folder."""
    return localspec(*arguments, LOCALSPEC_HOME=str(folder))


@pytest.mark.slow
def test_a_table_and_a_plan_that_generate_reads(tmp_path: Path) -> None:
    done = run(tmp_path, "plan", *FEW)
    assert done.code == 0, done.err
    table, evidence = done.out.split("\n\n")
    header, *rows = table.splitlines()
    assert header.split()[:3] == ["drafter", "rule", "depth"]
    assert {row.split()[0] for row in rows} == {
        *("plain", "auto", "suffix", "lookup", "ngram", "terminal-5m-q4_0")
    }
    speed_ups = [float(row.split()[3]) for row in rows]
    assert speed_ups == sorted(speed_ups, reverse=True)
    assert all("<- best" not in row for row in rows[1:])
    assert evidence.startswith("to type: ") and "\nplain decoding: " in evidence
    assert "localspec: no model named, so the bundled pair, which is too quick for d" in done.err
    assert "writing answer 1 of 2" in done.err

    [file] = (tmp_path / "cache" / "plans").iterdir()
    assert f"stored, and `auto` starts from it: {file}" in done.err
    generate = ("generate", "def f", "-n", "2", "--threads", "1")
    assert "plan" not in run(tmp_path, *generate).err

    record = json.loads(file.read_text())
    record["versions"]["localspec"] = "0.0.1"
    file.write_text(json.dumps(record))
    done = run(tmp_path, *generate)
    assert done.code == 0
    assert "the stored plan is ignored: it was made with another version" in done.err


@pytest.mark.parametrize(("busy", "said"), [(1.26, True), (0.1, False)])
def test_a_busy_machine_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy: float, said: bool
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    monkeypatch.setattr(BusyCores, "mean", lambda *_: busy)
    few = ("--threads", "1", "--answers", "2", "-n", "4", "--set", "code", "--draft", "lookup")
    done = CliRunner().invoke(plan, few, catch_exceptions=False)
    assert done.exit_code == 0
    assert ("other programs kept 1.3 of " in done.stderr) is said
    [decision] = [line for line in done.stdout.splitlines() if line.startswith("to type: ")]
    assert ("cannot be told on a busy machine; plan again" in decision) is said


@pytest.mark.slow
def test_json_has_every_line_and_the_plan(tmp_path: Path) -> None:
    done = run(tmp_path, "plan", *FEW, "--json", "--draft", "none", "--temperature", "0")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert record.keys() == {
        *("model", "lines", "answers", "tokens", "rates"),
        *("clairvoyant", "without_flash_attention", "seconds", "plan", "users", "busy_cores"),
    }
    assert record["busy_cores"] is None or record["busy_cores"] >= 0
    assert record["clairvoyant"] is None and record["users"] == []
    assert record["answers"] == 2 and record["model"]["drafter"] is None
    # Nothing drafts, so there is no `auto`; copying can be predicted all the same.
    assert {line["drafter"] for line in record["lines"]} == {"plain", "suffix", "lookup", "ngram"}
    for line in record["lines"]:
        assert line["speed_up"]["low"] <= line["speed_up"]["value"] <= line["speed_up"]["high"]
    plan = record["plan"]
    assert plan["temperature"] == 0 and len(plan["fingerprints"]) == 1
    best = record["lines"][0]
    assert plan["best"]["drafter"] == best["drafter"]
    assert plan["best"]["speed_up"] == best["speed_up"]["value"]
    assert {"1", "2", "17"} <= record["seconds"]["passes"].keys()


@pytest.mark.slow
def test_every_depth_on_demand(tmp_path: Path) -> None:
    arguments = ("--all", "--draft", "lookup", "--temperature", "0", "--users", "2")
    done = run(tmp_path, "plan", *FEW, *arguments)
    assert done.code == 0, done.err
    assert [f"auto, depth {depth}" in done.out for depth in (0, 1, 8, 9)] == [
        False,
        True,
        True,
        False,
    ]
    depths = [line.split()[2] for line in done.out.splitlines() if line.startswith("lookup")]
    assert sorted(map(int, depths)) == list(range(1, 17))
    [bound, lost] = [
        line for line in done.out.splitlines() if line.startswith(("who knew", "what auto"))
    ]
    assert bound.startswith("who knew which of auto's drafts are right: ") and lost.startswith(
        "what auto "
    )


def test_a_prompt_that_is_too_long_is_named_before_any_text_is_written(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(f"def f\n---\n{'word ' * 200}")
    prompts = ("--prompts", str(tmp_path / "mine.txt"))
    done = run(tmp_path, "plan", "--threads", "1", "--ctx", "64", *prompts)
    assert done.code == 2 and "writing answer" not in done.err
    assert "prompt 2 of mine: the prompt has " in done.err and "raise --ctx" in done.err


@pytest.mark.slow
def test_users_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, "plan", *FEW, "--users", "2,1", "--temperature", "0.8")
    assert done.code == 0, done.err
    _, _, users = done.out.split("\n\n")
    header, *rows = users.splitlines()
    assert header.split()[:2] == ["users", "drafter"]
    first, second = [row.split() for row in rows[:3]], [row.split() for row in rows[3:6]]
    assert [row[:2] for row in first] == [["1", "plain"], ["1", "auto"], ["1", "auto,"]]
    assert {row[0] for row in second} == {"2"}
    assert first[0][3:5] == second[0][3:5] == ["1.00", "1.00"]
    assert "no interval for 1, 2 users: it takes 3 groups of texts" in users
    assert "all ask at once" in users
    assert "simulating 1 user\n" in done.err and "simulating 2 users\n" in done.err


@pytest.mark.slow
def test_json_of_users_who_are_more_than_the_prompts(tmp_path: Path) -> None:
    (tmp_path / "two.txt").write_text("def f(a):\n---\nclass A:\n")
    arguments = ("--prompts", str(tmp_path / "two.txt"), "--users", "3", "-n", "8", "--json")
    arguments += ("--ignore-eos",)
    done = run(tmp_path, "plan", "--threads", "1", *arguments)
    assert done.code == 0, done.err
    record = json.loads(done.out)
    assert (record["answers"], record["tokens"]) == (3, 24)
    plain, adaptive, *at_depths = record["users"]
    assert plain.keys() == {
        *("users", "drafter", "depth", "groups", "tokens_per_second", "each"),
        *("speed_up", "slowest", "acceptance"),
    }
    assert plain["speed_up"] == {"value": 1.0, "low": None, "high": None}
    assert (plain["drafter"], adaptive["drafter"]) == ("plain", "auto")
    assert plain["depth"] is adaptive["depth"] is None
    assert [each["depth"] for each in at_depths] == [*range(1, 9)]
    assert all(each["users"] == 3 and each["tokens_per_second"] > 0 for each in record["users"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--users", "0"], 2, "users is '0'; it must be numbers from 1 to 16"),
        (["--users", "2,x"], 2, "users is '2,x'; it must be numbers from 1 to 16"),
        (["--users", "4", "--answers", "3"], 2, "--answers is 3; it must be at least 4"),
        (["--answers", "1"], 2, "--answers is 1; it must be at least 2"),
        (["--tokens", "0"], 2, "--tokens is 0; it must be at least 2"),
        (["--set", "poems"], 2, "there is no such set"),
        (["--temperature", "-1"], 2, "temperature"),
        (["--prompts", "one.txt"], 2, "prompts there are: 1"),
        (["-m", "nowhere.gguf"], 3, "nowhere.gguf"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, arguments: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one.txt").write_text("def f")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    done = run(tmp_path, "plan", *arguments)
    assert done.code == code
    [line] = done.err.splitlines()
    assert line.startswith("localspec: error: ") and message in line
    assert done.out == ""
