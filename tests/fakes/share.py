"""Which tests a run of everything takes.

All of them take an hour on two cores. So `pytest` alone takes one in four variants of each test,
and one in four of those marked `slow`; which ones depends on the number of commits, so that four
in a row run every one (without a history it is always the same one). What is named on the command
line runs whole: `pytest tests` is all.
"""

import os
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

# "2/4": of a test's variants those whose place, counted from 0, leaves 2 when divided by 4.
VARIABLE = "LOCALSPEC_SHARE"
_ALL = "0/1"
_PARTS = 4


def choose_share(config: pytest.Config) -> None:
    """Decide it once, for all processes of a run."""
    if VARIABLE not in os.environ:
        named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
        chosen = ("keyword", "markexpr", "lf", "failedfirst")
        whole = named or any(getattr(config.option, name, None) for name in chosen)
        os.environ[VARIABLE] = _ALL if whole else f"{_commits(config.rootpath) % _PARTS}/{_PARTS}"


def take_share(tests: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests that this run takes, in their order; of the variants of a test at least one."""
    place, parts = map(int, os.environ.get(VARIABLE, _ALL).split("/"))
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for test in tests:
        name, *variant = test.nodeid.split("[", 1)
        slow = not variant and test.get_closest_marker("slow")
        alike["slow" if slow else name].append(test)
    taken = set()
    for variants in alike.values():
        step = min(parts, len(variants))
        taken.update(variants[place % step :: step])
    return [test for test in tests if test in taken]


def describe() -> str:
    share = os.environ.get(VARIABLE, _ALL)
    if share == _ALL:
        return "share: all tests"
    return (
        f"share: {share} of all variants (again with {VARIABLE}={share}; all with `pytest tests`)"
    )


def _commits(folder: Path) -> int:
    """The number of commits up to the one that is checked out, without those of merged branches."""
    command = ["git", "-C", str(folder), "rev-list", "--count", "--first-parent", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found.stdout)
