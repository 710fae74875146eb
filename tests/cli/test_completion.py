"""Completion: the index is up to date, nothing heavy is imported, and real shells complete."""

import os
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic

import click
import pytest

from localspec.cli import write_command_index
from localspec.cli.main import localspec as commands
from localspec.cli.shell_completion import SHELLS
from localspec.models import registry

HEAVY = {"llama_cpp", "numpy", "textual", "jinja2", "rich", "gguf", "httpx", "llguidance"}
REPOSITORY = "somebody/Some-Model-GGUF"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with GGUF files, a Hub cache, and `localspec` on a PATH of its own."""
    folder = tmp_path_factory.mktemp("place")
    snapshot = folder / "hub" / f"models--{REPOSITORY.replace('/', '--')}" / "snapshots" / "1"
    snapshot.mkdir(parents=True)
    for quant in ("Q4_K_M", "Q8_0"):
        (snapshot / f"some-model-{quant}.gguf").touch()
    (folder / "files").mkdir()
    for name in ("one.gguf", "two.txt", "with blank.gguf", ".hidden.gguf"):
        (folder / "files" / name).touch()
    program = folder / "bin" / "localspec"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m localspec "$@"\n')
    program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def environment(place: Path) -> Mapping[str, str]:
    path = f"{place / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return {
        "PATH": path,
        "TERM": "dumb",
        "HOME": str(place),
        "LOCALSPEC_HOME": str(place),
        "HF_HUB_CACHE": str(place / "hub"),
    }


@pytest.fixture(autouse=True)
def same_pairs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs that the tests know are those that the command knows."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(place))


def complete(place: Path, environment: Mapping[str, str], line: str) -> list[str]:
    """What bash is told the last word of a line may become."""
    done = subprocess.run(
        [sys.executable, "-m", "localspec"],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
        env={
            **environment,
            "_LOCALSPEC_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(line.count(" ")),
        },
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


# The command index.


def test_the_command_index_is_up_to_date() -> None:
    file = Path(write_command_index.__file__).with_name("commands.json")
    assert file.read_text(encoding="utf-8") == write_command_index.index_text(commands), (
        "write it anew: python -m localspec.cli.write_command_index"
    )


@pytest.mark.parametrize(
    ("parameter", "entry"),
    [
        (click.Argument(["name"]), {"kind": "models"}),
        (click.Argument(["names"], nargs=-1, metavar="NAME..."), {"kind": "models", "nargs": -1}),
        (click.Argument(["drafter"], required=False), {"kind": "models"}),
        (click.Argument(["prompt"]), {}),
        (click.Argument(["file"], type=click.File("rb")), {"kind": "files"}),
        (click.Option(["-m", "--model"], metavar="MODEL"), {"kind": "models"}),
        (click.Option(["--set"], metavar="NAME"), {}),
        (click.Option(["--set"], metavar="a|b"), {"words": ["a", "b"]}),
        (click.Option(["--set"], metavar="a|b,..."), {"words": ["a", "b"], "kind": "list"}),
        (click.Argument(["value"], required=False), {"kind": "setting"}),
        (click.Option(["--draft"], metavar="auto|NAME"), {"words": ["auto"], "kind": "models"}),
        (
            click.Option(["--lora"], metavar="FILE[:SCALE]|none"),
            {"words": ["none"], "kind": "files"},
        ),
        (click.Option(["--kind"], type=click.Choice(["A", "b"])), {"words": ["A", "b"]}),
        (click.Option(["--on/--off"]), {"flag": True}),
    ],
    ids=lambda value: value.name if isinstance(value, click.Parameter) else "",
)
def test_what_help_says_may_follow(parameter: click.Parameter, entry: dict[str, object]) -> None:
    (found,) = write_command_index.entries_of(click.Command("any", params=[parameter]))
    assert {key: found[key] for key in found if key not in ("names", "help")} == entry


# What is answered.


@pytest.mark.parametrize(
    "line",
    [
        "localspec ",
        "localspec generate --",
        "localspec generate -m ",
        "localspec generate --draft suffix,",
        "localspec bench --draft ",
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_heavy_is_imported(
    place: Path, environment: Mapping[str, str], line: str, shell: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "localspec"],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
        env={
            **environment,
            "_LOCALSPEC_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": line.split(" ")[-1] if shell == "fish" else str(line.count(" ")),
        },
    )
    imported = {row.rpartition("|")[2].strip() for row in done.stderr.splitlines()}
    assert "localspec.cli.command_index" in imported
    assert not imported & HEAVY
    # Of huggingface_hub its settings at most.
    hub = {name for name in imported if name.startswith("huggingface_hub")}
    assert hub <= {"huggingface_hub", "huggingface_hub.constants"}
    assert done.stdout.strip()


def test_commands_and_options(place: Path, environment: Mapping[str, str]) -> None:
    names = commands.list_commands(click.Context(commands))
    assert complete(place, environment, "localspec ") == [f"plain,{name}" for name in names]
    assert complete(place, environment, "localspec gen") == ["plain,generate"]
    assert complete(place, environment, "localspec generate --dra") == [
        "plain,--draft",
        "plain,--draft-rope-scale",
        "plain,--draft-device",
        "plain,--draft-gpu-layers",
        "plain,--draft-kv-type",
    ]
    assert complete(place, environment, "localspec generate --ra") == ["plain,--raw"]


def test_names_of_pairs(place: Path, environment: Mapping[str, str]) -> None:
    names = [name for name in registry.pairs() if name.startswith("p")]
    assert names
    found = complete(place, environment, "localspec generate -m p")
    assert [f"plain,{name}" for name in names] == found


def test_models_on_disk(place: Path, environment: Mapping[str, str]) -> None:
    both = [f"plain,{REPOSITORY}:{quant}" for quant in ("Q4_K_M", "Q8_0")]
    assert complete(place, environment, "localspec generate -m some") == both
    assert complete(place, environment, f"localspec generate -m {REPOSITORY}:Q8") == both[1:]
    assert complete(place, environment, "localspec generate --draft=some") == both


def test_several_drafters(place: Path, environment: Mapping[str, str]) -> None:
    assert complete(place, environment, "localspec generate --draft su") == ["plain,suffix"]
    found = complete(place, environment, "localspec generate --draft suffix,look")
    assert found == ["plain,suffix,lookup"]


def test_other_names_of_commands(place: Path, environment: Mapping[str, str]) -> None:
    both = [f"plain,{REPOSITORY}:{quant}" for quant in ("Q4_K_M", "Q8_0")]
    assert complete(place, environment, "localspec run some") == both
    assert complete(place, environment, "localspec run x --copy") == ["plain,--copy-from"]
    assert complete(place, environment, "localspec run x --plai") == ["plain,--plain"]
    assert complete(place, environment, "localspec run x words --draft su") == ["plain,suffix"]
    assert complete(place, environment, "localspec list --js") == ["plain,--json"]


def test_values(place: Path, environment: Mapping[str, str]) -> None:
    assert complete(place, environment, "localspec config set load_mode mm") == [
        *("plain,mmap", "plain,mmap+mlock")
    ]
    model = complete(place, environment, "localspec config set model some")
    assert model == [f"plain,{REPOSITORY}:{quant}" for quant in ("Q4_K_M", "Q8_0")]
    assert complete(place, environment, "localspec config set threads ") == [""]
    assert complete(place, environment, "localspec config set nothing ") == [""]
    assert complete(place, environment, "localspec bench --set code,ch") == ["plain,code,chat"]
    assert complete(place, environment, "localspec demo --set ch") == ["plain,chat"]


def test_files(place: Path, environment: Mapping[str, str]) -> None:
    found = complete(place, environment, "localspec generate -m files/")
    assert found == ["plain,files/one.gguf"]
    found = complete(place, environment, "localspec generate -m files/.h")
    assert found == ["plain,files/.hidden.gguf"]
    # Nothing but folders, or nothing: the shell goes on as it does with files.
    assert complete(place, environment, "localspec generate -m fil") == ["file,fil"]
    assert complete(place, environment, "localspec generate --grammar x") == ["file,x"]


def test_a_models_toml_that_cannot_be_used_is_no_matter(
    place: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "models.toml").write_text("[pairs")
    broken = {**environment, "LOCALSPEC_HOME": str(tmp_path)}
    assert complete(place, broken, "localspec generate --draft su") == ["plain,suffix"]
    assert complete(place, broken, "localspec generate -m files/o") == ["plain,files/one.gguf"]


# The command.


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localspec", "completion", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ.get("PATH", ""), **environment},
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell: str) -> None:
    done = run(shell)
    assert done.returncode == 0
    assert f"_LOCALSPEC_COMPLETE={shell}_complete" in done.stdout
    assert run(SHELL=f"/usr/bin/{shell}").stdout == done.stdout
    installed = shutil.which(shell)
    if installed:
        subprocess.run([installed, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["tcsh"], {}), ([], {"SHELL": "/bin/tcsh"}), ([], {})]
)
def test_an_unknown_shell_is_refused(arguments: list[str], environment: dict[str, str]) -> None:
    done = run(*arguments, **environment)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "choose bash, zsh, fish" in done.stderr
    assert ("tcsh" in done.stderr) is bool(arguments or environment)


# Shells.


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "replies"),
    [
        (["localspec", "gen"], ["generate"]),
        (["localspec", "generate", "-m", REPOSITORY, ":", "Q8"], ["Q8_0"]),
        (["localspec", "generate", "-m", REPOSITORY, ":"], ["Q4_K_M", "Q8_0"]),
        (["localspec", "generate", "-m", f"{REPOSITORY}:Q8"], [f"{REPOSITORY}:Q8_0"]),
        (["localspec", "generate", "--draft", "=", "su"], ["suffix"]),
        (["localspec", "generate", "-m", ""], None),
    ],
)
def test_bash_with_its_variables_set(
    place: Path, environment: Mapping[str, str], words: list[str], replies: list[str] | None
) -> None:
    code = (
        'eval "$(localspec completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
        '_localspec_completion localspec; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", code, "bash", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
        env=environment,
    )
    assert done.stderr == ""
    if replies is None:
        assert {*registry.pairs(), f"{REPOSITORY}:Q8_0"} <= {*done.stdout.splitlines()}
    else:
        assert done.stdout.splitlines() == replies


class Terminal:
    """A shell somebody types into."""

    def __init__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        import pty  # Windows has none, nor these shells

        self._end, inner = pty.openpty()
        self._shell = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=folder,
            env={**environment, "PS1": "ready> "},
            start_new_session=True,
        )
        os.close(inner)

    def typed(self, keys: str, expected: str) -> str:
        """What is shown after keys, as soon as that contains what is expected."""
        os.write(self._end, keys.encode())
        shown, until = "", monotonic() + 60
        while expected not in shown and monotonic() < until:
            if select.select([self._end], [], [], 1)[0]:
                shown += os.read(self._end, 4096).decode(errors="replace")
                shown = re.sub(r"\x07|\x1b\[[0-9;?]*[A-Za-z]", "", shown)
        assert expected in shown
        return shown

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._end)


@pytest.fixture
def bash(place: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], place, environment)
    terminal.typed('eval "$(localspec completion bash)"; echo re""ady\n', "\nready")
    yield terminal
    terminal.close()


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_somebody_types_into_bash(bash: Terminal) -> None:
    bash.typed("localspec gen\t", "generate ")
    bash.typed("-m some\t", f"{REPOSITORY}:Q")
    bash.typed("8\t", "8_0 ")
    bash.typed("--draft=suf\t", "--draft=suffix ")
    bash.typed("\x15localspec generate --grammar fil\t", "--grammar files/")


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no fish")
@pytest.mark.parametrize(
    ("line", "replies"),
    [
        ("localspec gen", ["generate"]),
        (f"localspec generate -m {REPOSITORY}:Q8", [f"{REPOSITORY}:Q8_0"]),
        ("localspec generate --draft suffix,look", ["suffix,lookup"]),
        ("localspec generate --draft=suf", ["--draft=suffix"]),
        ("localspec generate -m fil", ["files/"]),
    ],
)
def test_fish(place: Path, environment: Mapping[str, str], line: str, replies: list[str]) -> None:
    code = f"localspec completion fish | source; complete -C '{line}'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
        env=environment,
    )
    assert [row.partition("\t")[0] for row in done.stdout.splitlines()] == replies


@pytest.mark.skipif(not shutil.which("zsh"), reason="there is no zsh")
def test_somebody_types_into_zsh(place: Path, environment: Mapping[str, str]) -> None:
    terminal = Terminal(["zsh", "-f", "-i"], place, environment)
    terminal.typed(
        'autoload -U compinit; compinit -u -D; eval "$(localspec completion zsh)"; echo re""ady\n',
        "\nready",
    )
    try:
        terminal.typed("localspec gen\t", "generate ")
        terminal.typed("--draft=suf\t", "suffix ")
        terminal.typed(f"-m {REPOSITORY}:Q8\t", "_0 ")
    finally:
        terminal.close()
