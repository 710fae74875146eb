"""The measuring scripts run and measure the real thing."""

import subprocess
import sys
from pathlib import Path

import pytest

from localspec.bench import experiments


def printed(module: str, *options: str) -> list[list[str]]:
    run = subprocess.run(
        [sys.executable, "-m", f"localspec.bench.experiments.{module}", *options],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line.split() for line in run.stdout.splitlines()]


FILES = Path(next(iter(experiments.__path__))).glob("*.py")
NAMES = sorted(file.stem for file in FILES if "def main(" in file.read_text(encoding="utf-8"))


def test_no_experiment_is_forgotten() -> None:
    assert len(NAMES) == 9


@pytest.mark.parametrize("name", NAMES)
def test_help_says_how_an_experiment_is_run(name: str) -> None:
    [usage, *_], *_ = printed(name, "--help")
    assert usage == "usage:"
    words = [word for line in printed(name, "--help")[:3] for word in line]
    assert words[1:4] == ["python", "-m", f"localspec.bench.experiments.{name}"]


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


def test_several_texts_share_decodes_and_are_what_they_are_alone() -> None:
    lines = printed("several_texts", "--tokens", "12", "--rounds", "2", "--texts", "3")
    rounds = [line for line in lines if len(line) == 4 and line[0] != "by"]
    assert len(rounds) == 4
    for before, after, ratio, _share in rounds:
        assert float(after) / float(before) == pytest.approx(float(ratio), rel=0.01)
    ends = [line for line in lines if line[0] == "median"]
    assert len(ends) == 2
    for words in ends:
        assert words[words.index("by") - 1] == "0", words


def test_plain_decoding_is_held_against_the_library_s_own_loop() -> None:
    for temperature in ("0", "0.8"):
        options = ["--tokens", "8", "--rounds", "3", "--threads", "1", "--temperature", temperature]
        header, *rounds, last = printed("plain_loop", *options)
        assert len(rounds) == 3 and header == ["localspec", "library", "ratio"]
        ratios = sorted(float(ours) / float(theirs) for ours, theirs, _ratio in rounds)
        assert float(last[-1]) == pytest.approx(ratios[1], abs=0.02)
