"""`localspec chat`: its options, its errors, and that it starts and quits."""

import asyncio
import errno
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fakes.pilot import running_chat
from fakes.saved_sessions import save_session
from fakes.scripted import Script
from fakes.templates import QWEN3
from fakes.terminal import on_terminal

from localspec.cli.chat import _merged_preset, chat
from localspec.conversation.turns import Conversation, Turn
from localspec.drafters.spec import split_names
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.paths import data_folder
from localspec_tui import launch, presets
from localspec_tui.archive import Archive
from localspec_tui.database import Database
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.presets import Preset

pty = pytest.mark.skipif(os.name == "nt", reason="there is no pty")
CTRL_D, CTRL_Q = b"\x04", b"\x11"


@pytest.fixture(autouse=True)
def terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal with colours, and an empty home folder."""
    monkeypatch.setenv("TERM", "xterm-256color")


def refused(*arguments: str) -> str:
    """The error line of a chat that does not start."""
    code, shown = on_terminal("chat", *arguments)
    assert code == 2
    assert shown.count("\n") == 1
    return shown.strip()


def test_without_a_terminal_the_error_is_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "chat"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "localspec: error: chat needs a terminal; localspec chat --plain reads and writes lines "
        "anywhere, and localspec generate answers one prompt\n"
    )


def test_help_imports_neither_textual_nor_the_engine() -> None:
    code = """
import sys
sys.argv = ["localspec", "chat", "--help"]
from localspec.cli.main import main
try:
    main()
finally:
    heavy = ("llama_cpp", "textual", "numpy", "huggingface_hub")
    print([name for name in heavy if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: localspec chat [OPTIONS] [MODEL]")
    assert done.stderr == "[]\n"


@pty
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--theme", "mud"], "localspec: error: --theme is 'mud'; choose textual-dark, "),
        (["--theme", "mud", "--plain"], "localspec: error: --plain has no colours; leave --theme"),
        (["--preset", "x"], "localspec: error: there is no preset 'x'; "),
        (["--resume", "x"], "localspec: error: no conversation begins with 'x'; "),
        (["--top-p", "7"], "localspec: error: --top-p is 7.0; it must be above 0"),
        (["--draft-kv-type", "mud"], "localspec: error: --"),
        (["--ctx", "1"], "localspec: error: --ctx is 1; it must be at least 2"),
        (["a.gguf", "-m", "b"], "localspec: error: two models are named, 'a.gguf' and 'b'; "),
        (["--copy-from", "gone.py"], "localspec: error: --copy-from gone.py: No such file"),
    ],
)
def test_a_bad_option_is_one_line(arguments: list[str], line: str) -> None:
    assert refused(*arguments).startswith(line)


@pty
def test_conversations_that_begin_alike_are_named() -> None:
    with closing(Archive()) as archive:
        keys = [save_session(archive, f"number {number}") for number in range(17)]
    first = next(key[0] for key in keys if sum(each[0] == key[0] for each in keys) > 1)
    alike = [key for key in keys if key[0] == first]
    said = refused("--resume", first)
    assert said.startswith(f"localspec: error: {len(alike)} conversations begin with '{first}': ")
    assert f"{alike[-1]} (number {keys.index(alike[-1])})" in said


@pty
def test_the_chat_starts_and_quits_on_a_terminal() -> None:
    code, shown = on_terminal("chat", "--ctx", "256", "-c", answer=CTRL_Q, after=b"message")
    assert code == 0
    assert "rite a message" in shown
    assert "Traceback" not in shown
    assert re.search(r"\x1b\[[\d;]*[34]8;[25];", shown)


@pty
@pytest.mark.parametrize(("term", "option"), [("dumb", []), ("xterm-256color", ["--plain"])])
def test_the_chat_is_plain_where_it_is_asked_for_or_the_terminal_is_dumb(
    monkeypatch: pytest.MonkeyPatch, term: str, option: list[str]
) -> None:
    monkeypatch.setenv("TERM", term)
    # Python's editing of lines asks terminals that can to mark what is pasted.
    prompt = b"\x1b[?2004h> " if option else b"> "
    code, shown = on_terminal(
        "chat", "--ctx", "256", *option, answer=CTRL_D, after=b"Ctrl-D leaves)\r\n" + prompt
    )
    assert code == 0
    assert "drafter: suffix or terminal-5m-q4_0, " not in shown and "(model: terminal, " in shown
    assert ("(TERM is dumb, so this is the chat of --plain)" in shown) == (term == "dumb")
    assert "\x1b" not in re.sub(r"\x1b\[\?2004[hl]", "" if option else "\\g<0>", shown)
    assert "Traceback" not in shown


def test_the_chat_is_plain_too_where_a_pipe_is_read_and_term_is_dumb() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "localspec", "chat", "--ctx", "256", "--private"],
        env={**os.environ, "TERM": "dumb"},
        capture_output=True,
        text=True,
        check=False,
        input="/nonsense\n",
    )
    assert done.returncode == 2 and "there is no command /nonsense" in done.stderr
    assert "(TERM is dumb, so this is the chat of --plain)" in done.stderr


@pty
def test_plain_and_web_contradict_each_other() -> None:
    assert refused("--web", "--plain").endswith("two kinds of chat; leave one out")
    assert refused("--port", "8001").endswith("--port is of --web; add --web, or leave it out")


@pty
@pytest.mark.parametrize("arguments", [["-c"], ["--resume", "KEY"]])
def test_a_session_opens_without_its_model(arguments: list[str]) -> None:
    archive = Archive(data_folder("sessions") / "sessions.sqlite3")
    conversation = Conversation([Turn("user", "Was it here?")])
    key = archive.create("a-model-that-is-not-here", None)
    archive.save(key, conversation.turns, conversation.last)
    archive.close()
    arguments = [argument.replace("KEY", key[:8]) for argument in arguments]
    code, shown = on_terminal("chat", *arguments, answer=CTRL_Q, after=b"message")
    assert code == 0
    assert "Traceback" not in shown


@pytest.mark.parametrize("arguments", [["-c"], ["--resume", "abc"]])
def test_conversations_of_a_disk_that_is_read_only_are_not_called_missing(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Database) -> Path:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    Archive().close()
    monkeypatch.setattr(Database, "_create_file", refused)
    done = CliRunner().invoke(chat, ["--plain", *arguments], input="")
    assert isinstance(done.exception, LocalspecError)
    file = data_folder("sessions") / "sessions.sqlite3"
    assert str(done.exception) == (
        f"conversations in {file} cannot be opened: Read-only file system"
    )


def test_relative_paths_are_kept_as_absolute_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    for name in ("target.gguf", "small.gguf", "a,b.gguf"):
        (tmp_path / name).touch()
    started: list[LaunchOptions] = []
    monkeypatch.setattr(launch, "launch", lambda options, _: started.append(options) or 0)

    def run(*arguments: str, **context: Any) -> None:
        # Click keeps a command's help option, which would lack -h in a test of `--help`.
        names = ["-h", "--help"]
        CliRunner().invoke(chat, ["target.gguf", *arguments], help_option_names=names, **context)

    for draft in ("suffix,pard=3:small.gguf", "a,b.gguf"):
        run("--draft", draft)
    assert [each.model for each in started[:2]] == [str(tmp_path / "target.gguf")] * 2
    run()
    run("--draft", "auto")
    run(default_map={"draft": "ngram"})
    assert [each.draft for each in started[2:]] == [None, "auto", "ngram"]
    assert started[0].draft == f"suffix,pard=3:{tmp_path / 'small.gguf'}"
    assert split_names(started[1].draft) == [str(tmp_path / "a,b.gguf")]


@pytest.mark.parametrize("setting", [{}, {"model": "of-a-setting.gguf"}])
def test_the_model_may_be_named_as_in_other_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: dict[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    for name in ("target.gguf", "of-a-setting.gguf"):
        (tmp_path / name).touch()
    started: list[LaunchOptions] = []
    monkeypatch.setattr(launch, "launch", lambda options, _: started.append(options) or 0)
    for words in (["target.gguf"], ["-m", "target.gguf"], ["--model", "target.gguf"]):
        CliRunner().invoke(chat, words, default_map=setting)
    assert [each.model for each in started] == [str(tmp_path / "target.gguf")] * 3


def test_what_is_said_of_reasoning_is_the_sessions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    started: list[LaunchOptions] = []
    monkeypatch.setattr(launch, "launch", lambda options, _: started.append(options) or 0)
    for words in ([], ["--no-think"], ["--think", "--thinking-budget", "9"]):
        CliRunner().invoke(chat, words)
    off, on = ({"enable_thinking": switch, "thinking": switch} for switch in (False, True))
    expected = [{}, {"template_options": off}, {"template_options": on, "thinking_budget": 9}]
    assert [each.session_options for each in started] == expected

    async def body() -> None:
        script = Script(template=QWEN3)
        async with running_chat(script, tmp_path, session_options=expected[1]) as opened:
            await opened.ask("hi")
            session = opened.app.engine_thread.session
            assert session and "</think>" in session._window(session.turns[:1]).prompt.text

    asyncio.run(body())


@pty
def test_a_file_to_copy_from_is_read_once_and_may_be_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The chat, which loads models again and again, is given its text."""
    monkeypatch.setenv("TEXTUAL_DRIVER", "none")
    started: list[LaunchOptions] = []
    monkeypatch.setattr(launch, "launch", lambda options, _: started.append(options) or 0)
    outlet, inlet = os.pipe()
    os.write(inlet, b"def main():\r\n")
    os.close(inlet)
    CliRunner().invoke(chat, ["--copy-from", f"/dev/fd/{outlet}"])
    os.close(outlet)
    assert [each.copied_texts for each in started] == [("def main():\n",)]


@pty
@pytest.mark.parametrize("last", [(), ("--web",)])
def test_a_pipe_to_copy_from_is_refused_for_a_browser(last: tuple[str, ...]) -> None:
    outlet, inlet = os.pipe()
    os.write(inlet, b"text")
    os.close(inlet)
    file = f"/dev/fd/{outlet}"
    arguments = ["--copy-from", file, *last] if last else ["--web", "--copy-from", file]
    done = CliRunner().invoke(chat, arguments)
    assert isinstance(done.exception, InvalidValueError)
    assert str(done.exception).startswith(f"--copy-from {file}: it is no regular file, and with")
    assert os.read(outlet, 4) == b"text"
    os.close(outlet)


def test_the_command_line_overrides_a_preset(home: Path) -> None:
    presets.add("mine", Preset("Be brief.", {"temperature": 0.1, "top_k": 5, "rule": "token"}))
    given = {"temperature": 0.7, "top_p": None, "rule": "coupled"}
    assert _merged_preset("mine", None, given) == Preset(
        "Be brief.", {"temperature": 0.7, "top_k": 5, "rule": "token"}
    )
    assert _merged_preset("mine", "Be long.", given).system == "Be long."
    # A setting counts less than a preset.
    of_settings = frozenset({"temperature"})
    assert _merged_preset("mine", None, given, of_settings).options["temperature"] == 0.1
    assert _merged_preset(None, None, given, of_settings).options["temperature"] == 0.7
    assert _merged_preset(None, None, given) == Preset(None, {"temperature": 0.7})
