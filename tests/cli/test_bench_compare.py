"""`localspec bench --compare`: what has changed since an earlier benchmark."""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fakes.command_line import Done, Run

SCHEMA = json.loads((resources.files("localspec.cli") / "bench.schema.json").read_text("utf-8"))
QUICK = ("--threads", "1", "-n", "8", "--rounds", "2", "--drafts", "suffix")


@pytest.fixture
def bench(cli: Run, tmp_path: Path) -> Any:
    """`localspec bench ARGS` on two short prompts."""
    file = tmp_path / "mine.txt"
    file.write_text("def add(a, b):\n---\nimport os\nimport sys\n")
    return lambda *args: cli("bench", *QUICK, "--prompts", str(file), *args)


@pytest.fixture
def earlier(bench: Any, tmp_path: Path) -> Path:
    file = tmp_path / "old.json"
    file.write_text(bench("--seed", "3", "--temperature", "0.8", "--json").out)
    return file


def checked(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    record: dict[str, Any] = json.loads(done.out)
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    return record


def test_the_same_again_is_measured_and_compared(bench: Any, earlier: Path) -> None:
    record = checked(bench("--temperature", "0.8", "--compare", str(earlier), "--json"))
    assert record["conditions"]["seed"] == 3
    rows = [(row["group"], row["contender"]) for row in record["changes"]["rows"]]
    assert rows == [("mine", "plain"), ("mine", "suffix")]
    old = json.loads(earlier.read_text())
    for row, before, now in zip(
        record["changes"]["rows"], old["rows"], record["rows"], strict=True
    ):
        assert row["before"] == before["tokens_per_second"]["value"]
        assert row["now"] == now["tokens_per_second"]["value"]
        assert row["speed"]["low"] <= row["speed"]["value"] <= row["speed"]["high"]
        assert [len(group) for group in now["speeds"]] == [2, 2]
    assert record["changes"]["only_now"] == record["changes"]["only_before"] == []


def test_two_files_are_compared_without_measuring(
    bench: Any, earlier: Path, tmp_path: Path
) -> None:
    record = json.loads(earlier.read_text())
    for row in record["rows"]:
        row["speeds"] = [[2 * speed for speed in group] for group in row["speeds"]]
        row["tokens_per_second"] = {k: 2 * v for k, v in row["tokens_per_second"].items()}
    record["rows"][1]["contender"] = "auto"
    later = tmp_path / "new.json"
    later.write_text(json.dumps(record))
    done = bench("--compare", f"{earlier},{later}")
    assert done.code == 0 and "tok/s" not in done.err
    assert "now / before" in done.out
    assert "only before: mine · suffix\n" in done.out and "only now: mine · auto\n" in done.out
    assert len([line for line in done.out.splitlines() if "plain" in line and "2.00" in line]) == 1
    changes = checked(bench("--compare", f"{earlier},{later}", "--json"))["changes"]
    assert [row["speed"]["value"] for row in changes["rows"]] == [2.0]


def test_other_settings_are_refused_before_anything_is_measured(bench: Any, earlier: Path) -> None:
    done = bench("--temperature", "0.8", "--seed", "4", "--compare", str(earlier))
    assert done.code == 2 and "old.json was measured with seed 3, not 4" in done.err
    record = json.loads(earlier.read_text())
    other = earlier.with_name("other.json")
    other.write_text(
        json.dumps(record | {"conditions": record["conditions"] | {"prompts_hash": "a"}})
    )
    done = bench("--temperature", "0.8", "--compare", str(other))
    assert (
        done.code == 2 and "other.json was measured with prompts whose hash is a, not " in done.err
    )
    done = bench("--compare", str(earlier), "-n", "9")
    assert done.code == 2 and done.out == ""
    assert "tok/s" not in done.err
    assert "old.json was measured with tokens 8, not 9; only the same models" in done.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory; name a file of localspec bench --json"),
        ("", "it holds no JSON"),
        ("[" * 100_000, "it holds no JSON"),
        ("[]", "it is no benchmark; write one with: localspec bench --json"),
        ('{"rows": 1, "conditions": 2, "target": 3}', "it is no benchmark"),
    ],
)
def test_what_is_no_benchmark(bench: Any, tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "odd.json"
    if text is not None:
        file.write_text(text)
    done = bench("--compare", f"{file},{file}")
    assert done.code == 2 and done.out == ""
    assert f"--compare {file}: {said}" in done.err


def test_a_damaged_benchmark_is_told_by_its_name_before_anything_is_measured(
    bench: Any, earlier: Path, tmp_path: Path
) -> None:
    damaged, record = tmp_path / "damaged.json", json.loads(earlier.read_text())
    said = f"--compare {damaged}: it is no benchmark"
    for value in (None, {"value": 0, "low": 0, "high": 0}, {"value": "x"}, 10**400, "x"):
        record["rows"][1] |= {"tokens_per_second": value, "speeds": []}
        damaged.write_text(json.dumps(record))
        done = bench("--compare", f"{earlier},{damaged}")
        assert done.code == 2 and said in done.err
    conditions = record["conditions"] | {"seed": -1}
    damaged.write_text(json.dumps(record | {"rows": [], "conditions": conditions}))
    assert said in bench("--compare", str(damaged)).err
    done = bench("--compare", str(damaged), "--json")
    assert done.code == 2 and done.out == "" and said in done.err and "tok/s" not in done.err


def test_a_benchmark_without_rows_is_refused(bench: Any, earlier: Path) -> None:
    """As beside llama.cpp's tool, whose figures are elsewhere."""
    earlier.write_text(json.dumps(json.loads(earlier.read_text()) | {"rows": []}))
    done = bench("--compare", f"{earlier},{earlier}")
    assert done.code == 2 and done.out == ""
    assert f"--compare {earlier}: there is no row in it to compare" in done.err


def test_two_files_have_no_page(bench: Any, earlier: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = bench("--compare", f"{earlier},{earlier}", "--html", str(page))
    assert done.code == 2 and not page.exists()
    assert f"--html {page}: the page shows what was measured" in done.err


def test_three_files_are_too_many(bench: Any) -> None:
    done = bench("--compare", "a,b,c")
    assert done.code == 2
    assert "--compare a,b,c: name one file, or two with a comma between" in done.err
