"""Help and version: quick, complete, and without loading anything heavy."""

import subprocess
import sys

import click
import pytest

import localspec
from localspec.cli.main import localspec as commands
from localspec.cli.main import main

HEAVY = ["llama_cpp", "numpy", "textual", "huggingface_hub", "jinja2", "rich"]
NAMES = commands.list_commands(click.Context(commands))


@pytest.mark.parametrize(
    "start",
    [
        "from localspec.cli.main import main; main()",
        "import runpy; runpy.run_module('localspec', run_name='__main__')",
    ],
    ids=["localspec", "python -m localspec"],
)
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_nothing_heavy_is_imported(start: str, arguments: list[str]) -> None:
    code = f"""
import sys
sys.argv = ["localspec", *{arguments!r}]
try:
    {start}
finally:
    print("imported:", [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == (2 if arguments == ["no-such-command"] else 0)
    assert done.stderr.endswith("imported: []\n")


def shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> str:
    """What `localspec ARGUMENTS` prints."""
    monkeypatch.setattr(sys, "argv", ["localspec", *arguments])
    # A test that has called the command without its group has left it a help option without -h.
    if command := commands.get_command(click.Context(commands), arguments[0]):
        monkeypatch.setattr(command, "_help_option", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    out, err = capsys.readouterr()
    assert err == ""
    return out


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    out = shown(monkeypatch, capsys, option)
    assert out.startswith("Usage: localspec [OPTIONS] COMMAND")
    listed = out.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "] == NAMES
    assert "generate" in NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_every_command_has_help(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    option: str,
) -> None:
    out = shown(monkeypatch, capsys, name, option)
    assert out.startswith(f"Usage: localspec {name} ")


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_explained(name: str) -> None:
    context = click.Context(commands)
    command = commands.get_command(context, name)
    assert command is not None
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert localspec.__version__ in shown(monkeypatch, capsys, "--version")


def test_without_arguments_the_help() -> None:
    """In a process of its own: the program leaves Ctrl-C to the system when it ends."""
    command = [sys.executable, "-m", "localspec"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Usage: localspec" in done.stdout + done.stderr
