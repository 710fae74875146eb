"""`localspec bench --users` at the terminal, on the bundled pair."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes.command_line import Done, Run

from localspec.bench import users as measured

SCHEMA = json.loads((resources.files("localspec.cli") / "bench.schema.json").read_text("utf-8"))
QUICK = ("--threads", "1", "-n", "8", "--rounds", "1", "--seed", "3")


@pytest.fixture
def bench(cli: Run, tmp_path: Path) -> Any:
    """`localspec bench ARGS` within this process, on prompts of its own."""
    prompts = tmp_path / "mine.txt"
    prompts.write_text("list the files\n---\nhow full is the disk\n")
    return lambda *args: Done(*cli("bench", *QUICK, "--prompts", str(prompts), *args))


def test_a_row_for_each_number_of_users_and_configuration(bench: Any, tmp_path: Path) -> None:
    page = tmp_path / "users.html"
    done = bench("--users", "2,1,2", "--json", "--html", str(page))
    assert done.code == 0
    record = done.record
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    assert [(row["users"], row["contender"]) for row in record["users"]] == [
        (1, "plain"),
        (1, "auto"),
        (2, "plain"),
        (2, "auto"),
    ]
    for row in record["users"]:
        assert row["tokens"] == 8 * row["users"]
        assert row["compared"] == row["users"]
        assert row["same"] + row["near_ties"] == row["compared"]
    assert record["rows"] == []
    assert "Speed of several users together" in page.read_text(encoding="utf-8")
    assert done.err.count("tok/s") == 4


def test_one_token_has_no_speed(bench: Any) -> None:
    done = bench("--users", "2", "--drafts", "lookup", "-n", "1", "--json")
    jsonschema.Draft202012Validator(SCHEMA).validate(done.record)
    assert [row["each"] for row in done.record["users"]] == [None, None]
    assert "writing the texts once more" not in done.err


def test_the_table(bench: Any) -> None:
    done = bench("--users", "2", "--drafts", "lookup")
    assert done.code == 0
    for word in ("users", "x in turn", "plain", "lookup", "mine (2)"):
        assert word in done.out
    assert all(len(line) <= 110 for line in done.out.splitlines()[:6])


def test_verify_asks_for_equal_texts(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--users", "2", "--verify", "--drafts", "lookup", "--depth", "2", "--json")
    done = bench(*options)
    assert done.code == 0
    assert "4 texts of users equal those written alone, token for token" in done.err
    honest = measured._together

    def lying(*args: Any) -> Any:
        written = honest(*args)
        written[0].result.token_ids[2] += 1
        return written

    monkeypatch.setattr(measured, "_together", lying)
    done = bench(*options)
    assert done.code == 7
    assert "plain with 2 users gives 1 of 2 texts other tokens than alone" in done.err
    assert done.record["same_text"] is False


@pytest.mark.parametrize("users", ["0", "1,17", "many", "2,-1"])
def test_a_number_of_users_there_cannot_be(bench: Any, users: str) -> None:
    done = bench("--users", users)
    assert done.code == 2
    [line] = done.err.splitlines()
    assert f"users is {users!r}; it must be numbers from 1 to 16" in line
