"""The text box: earlier messages, letters typed elsewhere, commands, and an editor."""

import asyncio
import os
import shlex
import stat
import sys
import tempfile
from pathlib import Path

import pytest
from fakes.chat_terminal import CTRL_D, ChatTerminal
from fakes.pilot import running_chat
from fakes.scripted import Script

from localspec.drafters.spec import split_names
from localspec_tui import editor
from localspec_tui.completion import completion
from localspec_tui.message_history import MessageHistory
from localspec_tui.screens.help import HelpScreen
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen
from localspec_tui.screens.system_prompt import SystemPromptScreen
from localspec_tui.slash_commands import (
    COMMANDS,
    as_message,
    as_typed,
    complete_command,
    is_command,
)
from localspec_tui.widgets.turn_view import TurnView

terminal = pytest.mark.skipif(os.name == "nt", reason="there is no pty")
CTRL_X_CTRL_E = b"\x18\x05"


# Earlier messages.


def test_a_history_ends_on_both_sides() -> None:
    history = MessageHistory(lambda: ["one", "two"])
    for text in ("three", "three"):
        history.add(text)
    assert [history.last(), history.move(-1), history.move(-1), history.move(-1)] == [
        "three",
        "two",
        "one",
        None,
    ]
    assert [history.move(1), history.move(1), history.move(1)] == ["two", "three", None]
    assert MessageHistory(list).last() is None


def test_up_and_down_go_through_earlier_messages(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("of an earlier session")
        async with running_chat(Script(), tmp_path) as chat:
            composer = chat.screen.composer
            await chat.ask("two\nlines")
            await chat.press("up")
            assert composer.text == "two\nlines"
            await chat.press("up")
            assert (composer.text, composer.cursor_location[0]) == ("two\nlines", 0)
            await chat.press("up")
            assert composer.text == "of an earlier session"
            await chat.press("up")
            assert composer.text == "of an earlier session"
            await chat.press("down")
            assert composer.text == "two\nlines"
            await chat.press("down")
            assert composer.text == ""

    asyncio.run(body())


def test_up_in_a_text_of_ones_own_moves_the_cursor(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("earlier")
            await chat.press(*"ab", "ctrl+j", *"cd", "up", "up", "x", "down", "down", "y")
            assert chat.screen.composer.text == "xab\ncdy"

    asyncio.run(body())


# Letters.


def test_letters_are_commands_only_where_a_message_has_the_focus(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            composer = chat.screen.composer
            await chat.ask("hi")
            await chat.pilot.click(TurnView)
            await chat.press(*"yes, every")
            assert composer.text == "yes, every"
            await chat.press("shift+tab")
            await chat.until(lambda: chat.screen.view.focused_turn_view)
            await chat.press(*" help me")
            assert composer.text == "yes, every help me"
            chat.screen.set_focus(None)
            await chat.press(*"yce")
            assert composer.text == "yes, every help meyce"
            assert chat.app.clipboard == ""
            await chat.press("shift+tab")
            await chat.until(lambda: chat.screen.view.focused_turn_view)
            await chat.press("y")
            assert chat.app.clipboard == "Hello, I am a script."

    asyncio.run(body())


def test_the_text_under_the_mouse_is_copied_although_the_box_has_the_focus(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            chat.screen.view.turn_views[-1].text_select_all()
            await chat.pilot.pause()
            await chat.press("ctrl+c")
            assert "I am a script" in chat.app.clipboard
            assert chat.app.is_running

    asyncio.run(body())


# Scrolling.


def test_page_keys_scroll_the_conversation_while_the_box_shows_all_its_lines(
    tmp_path: Path,
) -> None:
    async def body() -> None:
        rows = "\n\n".join(f"line {number}" for number in range(60))
        async with running_chat(Script([rows]), tmp_path) as chat:
            view, composer = chat.screen.view, chat.screen.composer
            await chat.ask("first of all")
            composer.set_text("half a thought")
            await chat.press("pageup")
            await chat.until(lambda: "line 59" not in chat.text)
            await chat.press("pagedown")
            await chat.until(lambda: "line 59" in chat.text)
            await chat.press("ctrl+home")
            await chat.until(lambda: "first of all" in chat.text)
            await chat.press("ctrl+end")
            await chat.until(lambda: "line 59" in chat.text)
            assert composer.has_focus
            composer.set_text("\n".join(map(str, range(100))))
            await chat.until(lambda: composer.max_scroll_y)
            row = composer.cursor_location[0]
            await chat.press("pageup")
            assert composer.cursor_location[0] < row
            assert view.scroll_y == view.max_scroll_y

    asyncio.run(body())


# Commands.


def test_what_is_a_command() -> None:
    assert is_command("/help") and is_command("/model some name\n") and is_command(" /help ")
    others = ("//help", " //help", "help", " help", "/a\nb", "  /a\nb", "", "\n")
    assert not any(map(is_command, others))
    assert as_message("//etc/hosts") == "/etc/hosts"
    assert as_message(" //etc/hosts") == " /etc/hosts"
    code = "    // a comment\n    x();"
    assert as_message(code) == code
    messages = ("/quit smoking", "//x", "/a\nb", "x", " /quit", "  //x", " /a\nb", "  //a\nb", " ")
    for message in messages:
        assert as_message(as_typed(message)) == message
        assert not is_command(as_typed(message))
    assert (completion("/he"), completion(" /he"), completion(" he")) == ("lp", "lp", "")
    assert [complete_command(each) for each in ("/", "/cl", "/clear", "/x")] == [
        "help",
        "ear",
        "",
        "",
    ]


@pytest.mark.slow
def test_commands_run(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(100, 30)) as chat:
            await chat.ask("/save x.md")
            assert "nothing to save yet" in chat.notes[-1]
            chat.screen.composer.load_text("")
            await chat.ask("hi")
            for command, screen in {
                "/help": HelpScreen,
                "/model": SettingsScreen,
                "/draft": SettingsScreen,
                "/save": InputDialog,
            }.items():
                await chat.send(command)
                await chat.until(lambda screen=screen: chat.is_on_top(screen))
                await chat.press("escape")
                await chat.until(lambda: chat.app.screen is chat.screen)
            await chat.ask(f"/save {tmp_path / 'kept.md'}")
            assert "Hello, I am a script." in (tmp_path / "kept.md").read_text()
            await chat.ask("/draft lookup, suffix")
            assert chat.screen.event_handler.ready.draft == ("lookup", "suffix")
            await chat.ask("/model other")
            assert chat.screen.event_handler.ready.model == "other"
            await chat.ask("/clear")
            assert chat.contents == []
            await chat.ask("//quit")
            assert chat.contents[0] == "/quit"
            await chat.send("/quit")
            await chat.until(lambda: not chat.app.is_running)

    asyncio.run(body())


@pytest.mark.slow
def test_commands_of_the_plain_chat_run_here_too(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one", "two", "three"])
        async with running_chat(script, tmp_path, size=(120, 24)) as chat:
            composer = chat.screen.composer
            for command in ("/regenerate", "/edit x", "/copy", "/drop-oldest"):
                await chat.ask(command)
                assert composer.text == command
            assert "say /drop-oldest on or /drop-oldest off" in chat.notes[-1]
            await chat.ask("hi")
            await chat.ask("/regenerate")
            assert chat.contents == ["hi", "two"]
            await chat.ask("/edit hello")
            assert chat.contents == ["hello", "three"]
            await chat.ask("/edit")
            assert composer.text == "hello"
            await chat.press("escape")
            await chat.ask("/copy")
            assert chat.app.clipboard == "three"
            await chat.ask("/system Be brief.")
            assert chat.app.settings.system == "Be brief."
            await chat.ask('/system ""')
            assert chat.app.settings.system is None
            await chat.ask("/drop-oldest on")
            assert chat.app.settings.current.drop_oldest
            await chat.ask("/set temperature 0.25")
            assert chat.app.settings.current.sampling == {"temperature": 0.25}
            assert "temperature from the next answer on: 0.25, set" in chat.notes[-1]
            for command, screen in {
                "/?": HelpScreen,
                "/system": SystemPromptScreen,
                "/set": SettingsScreen,
                "/sessions": SessionsScreen,
            }.items():
                await chat.send(command)
                await chat.until(lambda screen=screen: chat.is_on_top(screen))
                await chat.press("escape")
                await chat.until(lambda: chat.app.screen is chat.screen)

    asyncio.run(body())


def test_two_slashes_behind_a_command_are_one(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("hi")
            for command in ("/edit", "/edit-answer", "/system"):
                await chat.ask(f"{command} //x")
            assert chat.contents == ["/x", "/x"]
            assert chat.app.settings.system == "/x"
            await chat.ask("/edit")
            assert chat.screen.composer.text == "//x"

    asyncio.run(body())


def test_a_relative_path_of_a_drafter_is_kept_as_an_absolute_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = tmp_path / "small.gguf"
    small.touch()

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.send("/draft suffix small.gguf")
            await chat.until(lambda: chat.app.settings.current.draft == f"suffix,{small}")

    asyncio.run(body())


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("my small, model.gguf", ["my small, model.gguf"]),
        ('"my small, model.gguf" suffix', ["my small, model.gguf", "suffix"]),
        (r"suffix,my\ small\,\ model.gguf ngram", ["suffix", "my small, model.gguf", "ngram"]),
        ("lookup, Bob's.gguf", None),
    ],
)
def test_names_of_drafters_may_have_spaces_and_commas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, names: list[str] | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my small, model.gguf").touch()

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24)) as chat:
            await chat.ask(f"/draft {typed}")
            if names is None:
                assert "opens a quote and does not close it" in chat.notes[-1]
                assert chat.screen.composer.text == f"/draft {typed}"
                return
            paths = [str(tmp_path / each) if " " in each else each for each in names]
            assert split_names(chat.app.settings.current.draft) == paths

    asyncio.run(body())


@pytest.mark.slow
def test_the_path_of_a_model_may_be_quoted_as_in_a_shell(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24)) as chat:
            for name in ("my model.gguf", "Bob's.gguf", "plain.gguf"):
                file = tmp_path / name
                file.touch()
                for typed in (str(file), shlex.quote(str(file))):
                    await chat.ask("/model other")
                    await chat.ask(f"/model {typed}")
                    assert chat.screen.event_handler.ready.model == str(file)

    asyncio.run(body())


def test_a_file_that_is_missing_is_said_before_the_message_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24)) as chat:
            await chat.ask("Read @nothere.txt, please")
            assert chat.notes[-1] == (
                f"there is no file nothere.txt in {tmp_path}; correct the name, or press Enter "
                "again to send the text as it is"
            )
            assert chat.contents == []
            assert chat.screen.composer.text == "Read @nothere.txt, please"
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents[0] == "Read @nothere.txt, please"
            await chat.ask("Once more @nothere.txt")
            assert len(chat.contents) == 2
            (tmp_path / "nothere.txt").write_text("now it is")
            await chat.press("enter")
            await chat.wait_idle()
            assert "now it is" in chat.contents[2]

    asyncio.run(body())


def test_a_word_that_attaches_nothing_is_said_and_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Makefile").write_text("all:")

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24)) as chat:
            await chat.ask("Ask @nobody")
            assert chat.notes[-1] == (
                f"there is no file nobody in {tmp_path}; @nobody is sent as a word"
            )
            assert chat.contents[0] == "Ask @nobody"
            await chat.ask("Read @Makefil")
            assert chat.notes[-1].startswith(
                f"there is no file Makefil in {tmp_path}, but Makefile; correct the name, or press"
            )
            assert len(chat.contents) == 2

    asyncio.run(body())


def test_an_unknown_command_names_the_nearest_and_stays_in_the_box(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(120, 24)) as chat:
            await chat.ask("/modle x")
            assert "there is no command /modle; did you mean /model?" in chat.notes[-1]
            assert chat.screen.composer.text == "/modle x"
            await chat.ask("/usr/bin/env what?")
            assert "there is no command /usr/bin/env; /help lists them." in chat.notes[-1]
            assert chat.contents == []

    asyncio.run(body())


def test_tab_completes_a_command(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press(*"/mo")
            await chat.pilot.pause()
            await chat.press("tab")
            assert chat.screen.composer.text == "/model"

    asyncio.run(body())


def test_help_lists_the_commands(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(100, 200)) as chat:
            await chat.press("f1")
            await chat.until(lambda: all(usage in chat.text for usage in COMMANDS))

    asyncio.run(body())


# The editor.


def program(folder: Path, code: str) -> str:
    """The path of an editor that runs a line of sh; its file is $1."""
    file = folder / "my editor"
    file.write_text(f"#!/bin/sh\n{code}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return f"'{file}'"


@pytest.mark.skipif(os.name == "nt", reason="there is no sh")
@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("exit 3", "ended with exit code 3; your text is unchanged"),
        ('rm "$1"', "left no text in UTF-8"),
        (r'printf "\377" > "$1"', "left no text in UTF-8"),
    ],
)
def test_an_editor_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, line: str
) -> None:
    monkeypatch.setenv("VISUAL", program(tmp_path, code))
    text, problem = editor.edit("text")
    assert text == "text"
    assert problem and line in problem


@pytest.mark.skipif(os.name == "nt", reason="there is no sh")
def test_a_text_that_cannot_be_written_for_the_editor_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VISUAL", program(tmp_path, "exit 0"))
    text, problem = editor.edit("half \ud83d")
    assert text == "half \ud83d"
    assert problem and "cannot be written to a file for the editor" in problem
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    text, problem = editor.edit("text")
    assert text == "text"
    assert problem and "No such file" in problem and "\n" not in problem


def test_an_editor_in_a_folder_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "my editor.py"
    script.write_text("import pathlib, sys; pathlib.Path(sys.argv[1]).write_text('new')")
    monkeypatch.setenv("VISUAL", f'"{sys.executable}" "{script}"')
    assert editor.edit("old") == ("new", None)


@pytest.mark.skipif(os.name != "nt", reason="there are no batch files")
def test_an_editor_that_is_a_batch_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my-editor.cmd").write_text("@echo new> %2")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("EDITOR", "my-editor --wait")
    monkeypatch.delenv("VISUAL", raising=False)
    assert editor.edit("old") == ("new", None)


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("no-such-editor -w", "'no-such-editor' does not start (No such file"),
        ("vim 'half", "is no command line"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="its words are others")
def test_an_editor_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, command: str, line: str
) -> None:
    monkeypatch.setenv("VISUAL", command)
    text, problem = editor.edit("text")
    assert text == "text"
    assert problem and line in problem


def test_without_any_editor(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VISUAL", "EDITOR", "PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(editor.shutil, "which", lambda _: None)
    assert editor.edit("text") == ("text", "no editor was found; set EDITOR to one")


@terminal
def test_a_message_is_written_in_an_editor(tmp_path: Path, home: Path) -> None:
    code = 'sed -i "s/world/moon/" "$1"; echo "last line" >> "$1"'
    with ChatTerminal(tmp_path, env={"VISUAL": program(tmp_path, code)}) as chat:
        chat.type(b"hello world\n" + CTRL_X_CTRL_E)
        chat.wait_for(lambda: b"last line" in chat.shown)
        chat.type("\r")
        chat.wait_for_messages(["hello moon\nlast line"])


@terminal
def test_a_text_outlives_an_editor_that_fails(tmp_path: Path, home: Path) -> None:
    with ChatTerminal(tmp_path, env={"VISUAL": program(tmp_path, "exit 1")}) as chat:
        chat.type(b"hello world" + CTRL_X_CTRL_E)
        chat.wait_for(lambda: b"EDITOR" in chat.shown)
        chat.type("!\r")
        chat.wait_for_messages(["hello world!"])


@terminal
def test_ctrl_d_deletes_in_a_text_and_quits_in_an_empty_box(tmp_path: Path, home: Path) -> None:
    with ChatTerminal(tmp_path) as chat:
        chat.type(b"abc\x1b[D" + CTRL_D + b"\r" + CTRL_D)
        assert chat.wait_ended() == 0
        assert chat.messages == ["ab"] or "  ab" in chat.shown.decode()


def test_tab_without_a_suggestion_stays_in_a_text(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.ask("hi")
            await chat.press(*"look at te", "tab", *"example")
            assert chat.screen.composer.text == "look at teexample"
            assert chat.screen.unsent.edited is None
            await chat.press("ctrl+u", "tab")
            assert not chat.screen.composer.has_focus

    asyncio.run(body())
