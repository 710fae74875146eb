"""A fork of a warm process is the command itself: what fuzzers see there is what users see."""

import os
from collections.abc import Iterator

import pytest
from fakes.pycode import PYCODE
from fuzz.command import FreshCommand, WarmCommand
from fuzz.headers import mutants

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)


@pytest.fixture(scope="module")
def commands(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[WarmCommand, FreshCommand]]:
    home = tmp_path_factory.mktemp("home")
    with WarmCommand(home) as warm:
        yield warm, FreshCommand(home)


@pytest.mark.parametrize(
    "arguments",
    [
        ["generate", "-m", str(PYCODE[0]), "-n", "5", "--raw", "--seed", "1", "--draft", "none"],
        ["show", "\x1b[2J"],
        ["generate", "--depth", "x", "a"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_both_end_alike(arguments: list[str], commands: tuple[WarmCommand, FreshCommand]) -> None:
    warm, fresh = commands
    assert warm(*arguments, typed="def f(") == fresh(*arguments, typed="def f(")


@pytest.mark.slow
def test_damaged_models_end_the_command_in_one_line(
    commands: tuple[WarmCommand, FreshCommand],
) -> None:
    with mutants([]) as headers:
        ends = [headers.generate(number, commands[0]) for number in range(8)]
    assert {"exit 0", "exit 5"} == {*ends}, ends
