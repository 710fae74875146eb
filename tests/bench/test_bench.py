"""The measuring scripts run and measure the real thing."""

import subprocess
import sys


def printed(module: str, *options: str) -> list[list[str]]:
    run = subprocess.run(
        [sys.executable, "-m", f"localspec.bench.{module}", *options],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split() for line in run.stdout.splitlines()]


def test_alternate_compares_texts_and_speeds() -> None:
    header, *rows = printed("alternate", "--threads", "1", "--tokens", "24", "--rounds", "2")
    assert header[:2] == ["draft", "tok/s"]
    assert [row[0] for row in rows] == ["none", "lookup", "ngram", "auto"]
    assert {row[-1] for row in rows} == {"yes"}
    assert float(rows[0][2]) == 1 and float(rows[3][4]) > 1.3


def test_rules_side_by_side_with_their_prediction() -> None:
    lines = printed("rules", "--tokens", "8", "--depth", "2", "--seeds", "1")
    found = {tuple(line[1:3]) for line in lines if len(line) > 4}
    rules = ("coupled", "token", "block")
    assert {(drafter, rule) for drafter in ("model", "lookup") for rule in rules} <= found
    assert ("model", "match") in found


def test_host_time_covers_every_budget() -> None:
    _title, _header, *rows = printed("host_time", "--vocabulary", "4096", "--depth", "4")
    assert len(rows) == 12
    assert all(float(row[-2]) > 0 for row in rows)
