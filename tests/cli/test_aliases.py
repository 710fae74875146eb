"""Commands as people type them: names of other programs, and names with a slip."""

import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from fakes.command_line import Run, own_folders
from fakes.generate_runs import posix
from fakes.terminal import on_terminal

from localspec import __version__
from localspec.cli.aliases import ALIASES, without_alias
from localspec.cli.main import localspec as commands
from localspec.models import registry
from localspec_tui import web

BUNDLED = str(registry.bundled().target)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("generat", "No such command 'generat'; did you mean generate? (see localspec --help)"),
        ("Chatt", "did you mean chat?"),
        ("lst", "did you mean list or ls?"),
        ("ps", "'ps'; a model is loaded while a command runs; Ctrl-C ends localspec serve (see"),
        ("create", "-m takes a model's file as it is, and models.toml lists pairs of your own"),
        ("info", "did you mean show?"),
        ("psychic", "No such command 'psychic' (see localspec --help)"),
    ],
)
def test_a_slip_gets_a_suggestion(cli: Run, typed: str, said: str) -> None:
    done = cli(typed)
    assert (done.code, done.out) == (2, "")
    [line] = done.lines
    assert said in line


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("generate --temp 0.5", "'--temp'; did you mean --temperature? (see localspec generate"),
        ("generate --ctx-size 9", "'--ctx-size'; did you mean --ctx? (see"),
        ("ls --al", "'--al'; did you mean --all? (see localspec ls --help)"),
        ("bench --zebra", "'--zebra' (see localspec bench --help)"),
        ("bench -z 4", "'-z' (see localspec bench --help)"),
        ("generate -t 4", "'-t'; did you mean --threads? (see localspec generate --help)"),
        ("generate -m a.gguf -md b.gguf hi", "'-md'; did you mean --draft?"),
        ("generate hi -ngl 99", "'-ngl'; did you mean --gpu-layers?"),
        ("serve -np 4", "'-np'; did you mean --parallel?"),
        ("generate --model-draft b.gguf hi", "'--model-draft'; did you mean --draft?"),
        ("generate --n-gpu-layers=9 hi", "'--n-gpu-layers'; did you mean --gpu-layers?"),
        ("generate --json-schema {} hi", "'--json-schema'; did you mean --schema?"),
        ("generate --predict 9 hi", "'--predict'; did you mean -n?"),
        ("generate --spec-type mtp hi", "'--spec-type'; did you mean --draft?"),
        ("serve --spec-draft-model a.gguf", "'--spec-draft-model'; did you mean --draft?"),
        ("chat --n-gpu-layers-draft 9", "'--n-gpu-layers-draft'; did you mean --draft-gpu-layers?"),
        ("bench --spec-draft-type-v f16", "'--spec-draft-type-v'; did you mean --draft-kv-type?"),
        ("generate --repeat-last-n 9 hi", "'--repeat-last-n'; did you mean --penalty-window?"),
        ("chat --mirostat-lr 0.1", "'--mirostat-lr'; did you mean --mirostat-eta?"),
        ("serve --slot-save-path a", "'--slot-save-path'; did you mean --keep?"),
        (
            "serve --keep-alive 5m",
            "'--keep-alive'; localspec serve --unload-after MINUTES frees a model that is not used",
        ),
        ("serve --metrics", "'--metrics'; /metrics is always there; leave it out"),
        ("generate --metrics hi", "'--metrics'; did you mean --stats?"),
        ("serve --sleep-idle-seconds 9", "'--sleep-idle-seconds'; did you mean --unload-after?"),
        ("serve --max-model-len 9", "'--max-model-len'; did you mean --ctx?"),
        ("serve --served-model-name a", "'--served-model-name'; did you mean --alias?"),
        ("serve --speculative-config {}", "'--speculative-config'; did you mean --draft?"),
        ("serve --temp 0.5", "'--temp'; did you mean --temperature?"),
        ("generate --lora-scaled a.gguf:2 hi", "'--lora-scaled'; did you mean --lora?"),
        ("serve --lora-modules a=a.gguf", "'--lora-modules'; did you mean --lora?"),
        ("serve --lora-init-without-apply", "adapters are on in all texts; leave it out"),
        ("generate --jinja hi", "'--jinja'; chat templates (Jinja) are always read; leave it out"),
        ("chat --multiline", "'--multiline'; a message may always have several lines"),
        ("serve --metrics", "'--metrics'; /metrics is always there; leave it out"),
        ("serve --no-webui", "'--no-webui'; the page is always there; leave it out"),
        ("ls --jinja", "'--jinja' (see localspec ls --help)"),
        ("generate --draft-max 4 hi", "'--draft-max'; did you mean --depth?"),
        ("generate -hf a/b hi", "'-hf'; did you mean --model?"),
        ("run terminal --verbose hi", "'--verbose'; did you mean --stats?"),
        ("generate --prompt hi", "'--prompt'; the prompt is an argument in quotes, or stdin"),
        ("chat --prompt hi", "'--prompt'; messages are typed in the chat; localspec generate answ"),
        ("chat -p hi", "'-p'; messages are typed in the chat; localspec generate answers one"),
        ("bench -p hi", "'-p'; did you mean --prompts?"),
        ("plan -f a.txt", "'-f'; did you mean --prompts?"),
        ("audit -p hi", "'-p'; did you mean --prompt?"),
        ("serve -p 80", "'-p'; did you mean --port?"),
        ("generate -cnv", "'-cnv'; localspec chat is for conversations"),
        ("generate --zebra", "'--zebra' (see localspec generate --help)"),
        ("--model a.gguf hi", "'--model'; options follow a command"),
        ("generate -p hi", "'-p'; the prompt is an argument in quotes, or stdin"),
        ("generate -ello", "'-e'; -- stands before a prompt that begins with a hyphen"),
        ("-m a.gguf hi", "'-m'; options follow a command: localspec generate -m MODEL PROMPT"),
        ("--verison", "'--verison'; did you mean --version? (see localspec --help)"),
        (
            "generate two words",
            "argument (words); put the prompt in quotes (see localspec generate",
        ),
        ("bench qwen3-8b", "argument (qwen3-8b); -m names the model (see localspec bench --help)"),
        ("chat qwen3-8b why", "argument (why); localspec run MODEL PROMPT answers a prompt (see"),
        ("doctor now", "extra argument (now) (see localspec doctor --help)"),
        ("pull --draft", "'--draft' requires an argument (see localspec pull --help)"),
    ],
)
def test_a_slip_in_the_options_gets_a_suggestion(cli: Run, typed: str, said: str) -> None:
    done = cli(*typed.split())
    assert (done.code, done.out) == (2, "")
    [line] = done.lines
    assert said in line


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["list", "--json"], ["ls", "--json"]),
        (["help"], ["--help"]),
        (["help", "help"], ["--help"]),
        (["help", "generate"], ["generate", "--help"]),
        (["help", "list"], ["ls", "--help"]),
        (["help", "run"], ["run", "--help"]),
        (["run", "tiny", "Why", "so?", "-n5"], ["generate", "-m", "tiny", "Why so?", "-n5"]),
        (["run", "tiny", "--seed", "3"], ["generate", "-m", "tiny", "--seed", "3"]),
        (["run"], ["generate"]),
        (["run", "-n", "5", "tiny", "Why"], ["generate", "-m", "tiny", "Why", "-n", "5"]),
        (["run", "tiny", "-n5", "Why"], ["generate", "-m", "tiny", "Why", "-n5"]),
        (["run", "--json", "tiny", "Why"], ["generate", "-m", "tiny", "Why", "--json"]),
        (["run", "--seed=3", "tiny"], ["generate", "-m", "tiny", "--seed=3"]),
        (["run", "--cpu-moe", "-1", "tiny"], ["generate", "-m", "tiny", "--cpu-moe", "-1"]),
        (["run", "-m", "tiny", "Why", "so?"], ["generate", "Why so?", "-m", "tiny"]),
        (["run", "tiny", "-n", "5", "--", "-x"], ["generate", "-m", "tiny", "-n", "5", "--", "-x"]),
        (["run", "tiny", "Why", "-n"], ["generate", "-m", "tiny", "Why", "-n"]),
        (["generate", "run"], ["generate", "run"]),
        ([], []),
    ],
)
def test_what_an_alias_means_in_a_pipe(cli: Run, typed: list[str], meant: list[str]) -> None:
    assert without_alias(typed) == meant


def test_run_with_a_question_alone(cli: Run, tmp_path: Path) -> None:
    """It is no model, unless a file is called so."""
    done = cli("run", "What does ls do?")
    assert done.code == 2 and "there is no model 'What does ls do?'; localspec generate" in done.err
    # One that is longer than a file's name may be is no error of the file system.
    assert "; localspec generate PROMPT asks" in cli("run", "What is this? " * 40).err
    odd = tmp_path / "a model.gguf"
    shutil.copy(BUNDLED, odd)
    assert cli("run", str(odd), "-n", "1", "--seed", "3", stdin=b"import os").code == 0


def test_run_generates_from_a_prompt_and_from_a_pipe(cli: Run) -> None:
    options = ("-n", "5", "--seed", "3", "--threads", "1")
    asked = cli("generate", "-m", BUNDLED, "import os", *options)
    assert cli("run", BUNDLED, "import", "os", *options).out == asked.out
    assert cli("run", BUNDLED, *options, stdin=b"import os").out == asked.out
    assert cli("run", *options, BUNDLED, stdin=b"import os").out == asked.out
    assert cli("run", BUNDLED, *options, "import", "os").out == asked.out


@posix
def test_run_without_a_prompt_is_the_chat(tmp_path: Path) -> None:
    """Its options are those of chat, where it has a terminal."""
    code, shown = on_terminal("run", "--theme", "none", env=own_folders(tmp_path))
    assert code == 2
    assert "--theme is 'none'" in shown


def test_run_in_a_browser_is_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the command that is served has no terminal."""
    served: list[str | int] = []
    monkeypatch.setattr(web, "serve", lambda *given: served.extend(given))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    words = ["run", "tiny", "--web", "--port", "8001", "--seed", "3", "--port=8002"]
    monkeypatch.setattr(sys, "argv", ["localspec", *words])
    commands(words, standalone_mode=False)
    command, port = served
    assert shlex.split(str(command))[2:] == ["localspec", "chat", "tiny", "--seed", "3"]
    assert port == 8002


def test_run_explains_itself(cli: Run) -> None:
    for typed in (["run", "--help"], ["help", "run"]):
        done = cli(*typed)
        assert done.code == 0
        assert done.out.startswith("Usage: localspec run [OPTIONS] MODEL [PROMPT]")


def test_aliases_are_hidden(cli: Run) -> None:
    listed = cli("help").out.partition("Commands:")[2]
    names = {line.split()[0] for line in listed.splitlines() if line}
    assert "ls" in names and not names & {*ALIASES}


def test_the_version_has_a_letter(cli: Run) -> None:
    assert cli("-V").out == f"localspec, version {__version__}\n"
