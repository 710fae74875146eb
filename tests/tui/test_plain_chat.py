"""The chat without a screen: what it reads, writes, keeps and stops."""

import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes.chat_terminal import CTRL_C, ChatTerminal
from fakes.pilot import running_chat
from fakes.plain_chat import Chat, contents, prompt_of
from fakes.scripted import Script
from fakes.templates import QWEN3

from localspec.cli.output import OutputError
from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError, ModelLoadError, ModelNotFoundError
from localspec_tui.archive import OVERTAKEN, Archive
from localspec_tui.default_options import with_defaults
from localspec_tui.engine_thread import EngineThread
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.plain import chat as plain
from localspec_tui.plain.message_reader import MessageReader, Typed
from localspec_tui.preferences import Preferences

LEAVING = "Ctrl-Z Enter" if os.name == "nt" else "Ctrl-D"
pty = pytest.mark.skipif(os.name == "nt", reason="there is no pty")
pytestmark = pytest.mark.usefixtures("home")


def test_answers_are_all_that_is_written_to_stdout(chat: Chat) -> None:
    done = chat(Script(["Hello.", "Bye.\n"]), "hi\n\nand now?\n")
    assert (done.code, done.out) == (0, "Hello.\nBye.\n")
    assert contents(done) == ["hi", "Hello.", "and now?", "Bye.\n"]
    lines = done.notes.removesuffix("\n").split("\n")
    assert lines[:3] == [
        "(loading scripted)",
        "(model: scripted, drafter: suffix)",
        f"(/help lists the commands, {LEAVING} leaves)",
    ]
    assert lines[3].startswith("> (") and "tokens per second, " in lines[3]
    assert ", drafter: suffix, context: " in lines[3] and "of 8,192 tokens)" in lines[3]
    assert lines[-1].startswith("continue with: localspec chat --plain --resume ")
    assert "\x1b" not in done.out + done.notes


def test_messages_of_several_lines(chat: Chat) -> None:
    typed = 'one\\\ntwo\n"""\n\n  three\n/four """\n"""five"""\n//six\n"""/seven"""\n"""eight\nnine'
    done = chat(Script(), typed)
    assert contents(done)[::2] == [
        "one\ntwo",
        "  three\n/four ",
        "five",
        "/six",
        "/seven",
        "eight\nnine",
    ]


def test_a_pipe_of_windows_and_bytes_that_are_no_text(chat: Chat) -> None:
    done = chat(Script(), b"\xef\xbb\xbfh\xc3\xa9\r\n\xff\r\n")
    assert contents(done)[::2] == ["hé", "\ufffd"]


def test_a_file_that_powershell_wrote(chat: Chat) -> None:
    assert contents(chat(Script(), "hé\r\nb\r\n".encode("utf-16")))[::2] == ["hé", "b"]


def test_reasoning_is_marked(chat: Chat) -> None:
    done = chat(Script(["<think>\nHm.\n</think>\n\nYes.", "No."]), "a\nb\n")
    assert done.out == "(reasoning)\nHm.\n(answer)\nYes.\nNo.\n"


def test_variants_edits_and_a_new_chat(chat: Chat, file: Path) -> None:
    script = Script(["one", "two", "three"])
    done = chat(script, "first\n/regenerate\n/edit other\n")
    assert done.out == "one\ntwo\nthree\n"
    assert contents(done) == ["other", "three"]
    with closing(Archive(file)) as archive:
        everything = archive.open(archive.latest() or "").conversation.everything()
        assert [turn.content for turn in everything] == ["first", "one", "two", "other", "three"]
    done = chat(Script(["four"]), "/new\nlast\n", latest=True)
    assert contents(done) == ["last", "four"]
    with closing(Archive(file)) as archive:
        assert [each.title for each in archive.list()] == ["last", "first"]


def test_an_answer_that_was_cut_off_goes_on(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    # The archive takes the tokens of no larger vocabulary.
    monkeypatch.setattr("fakes.scripted._BYTES_PER_TOKEN", 3)
    done = chat(Script(["abcdefghi"]), "go\n", sampling={"max_tokens": 1})
    assert done.out == "abc\n" and "(cut off: the limit of tokens was reached; " in done.notes
    more = {"max_tokens": 9}
    done = chat(Script(["defghi"]), "/continue\n/continue\n", latest=True, sampling=more)
    assert contents(done) == ["go", "abcdefghi"]
    assert done.out == "defghi\n" and "(the last answer is complete; " in done.notes


def test_the_system_prompt_and_reasoning_are_switched(chat: Chat) -> None:
    script = Script(template=QWEN3)
    done = chat(script, "/system Be brief.\n/think off\nhi\n")
    assert "(system prompt: Be brief.)" in done.notes
    assert "system\nBe brief." in prompt_of(script) and "</think>" in prompt_of(script)
    script = Script(template=QWEN3)
    done = chat(script, '/system  "" \n/think on\nagain\n/system\n', latest=True)
    assert done.notes.count("(system prompt: none)") == 2
    assert "Be brief." not in prompt_of(script)
    assert "/think on: say" not in done.notes
    done = chat(Script(), "/think 5\n/think off\n")
    assert "(/think 5: say /think on or /think off)" in done.notes
    assert "has no switch for reasoning)" in done.notes


def test_models_and_drafters_are_switched(chat: Chat) -> None:
    script = Script()
    script.fails["switch"] = ModelLoadError("it is too large")
    done = chat(script, "/model other\n/draft ngram\nhi\n")
    assert done.notes.count("(it is too large)") == 2 and ", drafter: suffix, " in done.notes
    script = Script()
    done = chat(script, "/model other\n/draft ngram,lookup\n/draft\nhi\n")
    assert "(model: other, drafter: suffix)" in done.notes
    assert "(model: other, drafter: ngram or lookup)" in done.notes
    assert "(/draft: name drafters behind it" in done.notes
    assert Preferences.read().model == "other"
    done = chat(Script(), "/draft none\nhi\n")
    assert "(model: scripted, draft: off (drafting was turned off))" in done.notes


def test_what_is_no_command_or_no_file_is_one_line(chat: Chat, tmp_path: Path) -> None:
    there = tmp_path / "there.md"
    there.touch()
    (folder := tmp_path / "my dir").mkdir()
    typed = f"{folder}\n{there}\n/nw\n/quit now\n"
    typed += "/edit x\n/save x.md\n@gone.txt\nhi @nobody\n/edit\n/save\n"
    typed += f"/save {there}\n/help\n/bye\nno\n"
    done = chat(Script(), typed)
    for line in (
        f"{folder} is a folder; name a file in it after @, or begin it with // to send it as a",
        f"{there} is a file; name it after @, or begin it with // to send it as a message",
        "there is no command /nw; did you mean /new?",
        "/quit takes nothing behind it, and there is 'now'; to send this as a message, begin it",
        "there is no message yet",
        "there is nothing to save yet",
        "there is no file gone.txt in ",
        "there is no file nobody in ",
        "/edit: say the new text",
        "/save: name a new file",
        f"{there} is there already",
    ):
        assert done.notes.count(f"({line}") == 1
    assert "\n/drop-oldest on|off  Drop" in done.notes
    assert contents(done)[::2] == ["hi @nobody"]


def test_a_text_is_found_in_the_chat(chat: Chat) -> None:
    answers = ["<think>A needle.</think>See:\nthe Needle here,\nno needle", "None at all."]
    typed = 'where is the needle?\nand\n/find needle\n/find "ALL.  \n/find  at   ALL\n/find\n'
    done = chat(Script(answers), typed)
    assert re.findall(r"\d (?:you|reasoning|answer): .*", done.notes) == [
        "1 you: where is the needle?",
        "2 reasoning: A needle.",
        "2 answer: the Needle here,",
        "2 answer: no needle",
        "4 answer: None at all.",
    ]
    assert '("ALL. is nowhere in this chat)' in done.notes
    assert "/find: say behind it what to look for" in done.notes


def test_conversations_are_listed_and_saved(chat: Chat, tmp_path: Path) -> None:
    chat(Script(), "the first\n")
    done = chat(Script(["Yes."]), f"second\n/sessions\n/save {tmp_path}/a b.md\n")
    listed = [line for line in done.notes.split("\n") if line.endswith("(2 messages, just now)")]
    assert [line.split("  ")[1].split(" (")[0] for line in listed] == ["second", "the first"]
    assert "Yes." in (tmp_path / "a b.md").read_text(encoding="utf-8")


def test_a_full_context_says_what_can_be_done_and_the_choice_is_kept(
    chat: Chat, file: Path
) -> None:
    script = Script(["word " * 100, "word " * 100, "short"], context=200)
    done = chat(script, "first\nsecond\n/continue\n/drop-oldest on\n/continue\n")
    assert "(cut off: the context was full; " in done.notes
    assert done.notes.count("(The context of 200 tokens is full.") == 2
    assert "localspec chat --plain --resume " in done.notes and " --ctx 400)" in done.notes
    assert "then send /continue; " in done.notes and "messages were dropped" in done.notes
    with closing(Archive(file)) as archive:
        begun = LaunchOptions(session=archive.latest(), model="scripted")
        assert with_defaults(begun, archive).drop_oldest


def test_both_chats_go_on_with_each_other_s_conversations(chat: Chat, file: Path) -> None:
    chat(Script(["One."]), "first\n", system="Be brief.")

    async def with_a_screen() -> None:
        async with running_chat(Script(["Two."]), file.parent, latest=True) as opened:
            assert opened.app.settings.system == "Be brief."
            await opened.ask("second")

    asyncio.run(with_a_screen())
    script = Script(["Three."])
    done = chat(script, "third\n", latest=True)
    assert "(going on with: first)\n> second\nTwo.\n" in done.notes and done.out == "Three.\n"
    assert contents(done) == ["first", "One.", "second", "Two.", "third", "Three."]
    assert prompt_of(script).startswith("<system>Be brief.\n<user>first\n<assistant>One.")


def test_another_window_that_goes_on_with_the_conversation_is_said(
    chat: Chat, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = MessageReader.read

    def read_later(reader: MessageReader) -> Typed | None:
        typed = read(reader)
        if typed and typed.text == "here":
            with closing(Archive(file)) as other:
                key = other.latest()
                assert key
                other.save(key, [], other.open(key).conversation.add(Turn("user", "there")))
        return typed

    monkeypatch.setattr(MessageReader, "read", read_later)
    chatted = chat(Script(), "a\nhere\nagain\n")
    assert chatted.notes.count(OVERTAKEN) == 1
    assert "there" not in contents(chatted)


def test_nothing_is_kept_of_a_private_chat(chat: Chat, home: Path) -> None:
    done = chat(Script(["xylophone"]), "my xylophone\n", private=True)
    assert done.turns == [] and "--resume" not in done.notes
    files = [each for each in home.rglob("*") if each.is_file()]
    assert not [each for each in files if b"xylophone" in each.read_bytes()]
    assert Preferences.read() == Preferences()


def test_a_model_that_is_not_loaded_ends_the_chat_with_its_code(chat: Chat) -> None:
    script = Script()
    script.fails["load"] = ModelNotFoundError("there is no model 'x'")
    done = chat(script, "hi\n")
    assert done.code == ModelNotFoundError.exit_code and done.out == ""
    assert done.notes == "(loading scripted)\nlocalspec: error: there is no model 'x'\n"


def test_what_failed_of_a_file_of_messages_is_its_exit_code(chat: Chat) -> None:
    assert chat(Script(["a", "b"]), "/nonsense\none\n").code == InvalidValueError.exit_code
    assert chat(Script(["a"]), "one\n/quit\n").code == 0


def test_a_line_in_front_of_a_command_makes_it_a_message(chat: Chat) -> None:
    done = chat(Script(["a", "b"]), "\\\n/quit\nhi\n")
    assert contents(done) == ["\n/quit", "a", "hi", "b"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_a_full_disk_ends_the_chat(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would read the answers to the other messages."""
    script = Script(["a", "b"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    monkeypatch.setattr(plain, "EngineThread", lambda: EngineThread(script.load))
    with (
        Path("/dev/full").open("w", encoding="utf-8") as full,
        monkeypatch.context() as patch,
        pytest.raises(OutputError, match="cannot be written"),
    ):
        patch.setattr(sys, "stdout", full)
        plain.run_plain(LaunchOptions(model="scripted"), Archive(file))
    assert len(script.engines[-1].slots.own.started) == 1


def test_who_asks_for_the_end_again_loses_nothing(
    chat: Chat, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every signal, while the engine's thread is waited for."""
    close = EngineThread.close

    def interrupted(thread: EngineThread) -> None:
        for each in (signal.SIGINT, *plain._ENDINGS):
            signal.raise_signal(each)
        close(thread)

    monkeypatch.setattr(EngineThread, "close", interrupted)
    before = [signal.getsignal(each) for each in (signal.SIGINT, *plain._ENDINGS)]
    done = chat(Script(["a"]), "one\n")
    assert done.code == 0 and contents(done) == ["one", "a"]
    assert [signal.getsignal(each) for each in (signal.SIGINT, *plain._ENDINGS)] == before


def test_it_needs_no_textual() -> None:
    code = "import localspec_tui.plain.chat, sys; print('textual' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


class Interrupted(MessageReader):
    """Is interrupted when something is read. begun: whether a part of a message was typed."""

    begun = False

    @property
    def is_begun(self) -> bool:
        return self.begun

    def read(self) -> Typed | None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(("begun", "answered"), [(False, -9.0), (True, -9.0), (False, 0.0)])
def test_a_ctrl_c_that_comes_late_or_drops_a_line_does_not_leave(
    monkeypatch: pytest.MonkeyPatch, begun: bool, answered: float
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(Interrupted, "begun", begun)
    any_thing: Any = None
    opened = plain.PlainChat(any_thing, any_thing, LaunchOptions(), Interrupted(), any_thing)
    opened._events.answered = time.monotonic() + answered
    stays = begun or answered == 0.0
    if stays:
        reads = iter([KeyboardInterrupt, None])

        def read(_reader: MessageReader) -> None:
            if error := next(reads):
                raise error

        monkeypatch.setattr(Interrupted, "read", read)
        assert opened._read() is None
    else:
        with pytest.raises(KeyboardInterrupt):
            opened._read()


@pty
@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_ctrl_c_stops_an_answer_and_then_leaves(tmp_path: Path, term: str) -> None:
    words = "word " * 2000
    with ChatTerminal(
        tmp_path, plain=True, env={"TERM": term}, answers=[words, "Short."], rate=100
    ) as terminal:
        terminal.type("first\r")
        terminal.wait_for(lambda: terminal.shown.count(b"word") > 5)
        terminal.type(CTRL_C)
        terminal.wait_for(lambda: b"(stopped; " in terminal.shown)
        terminal.wait_for(lambda: terminal.shown.endswith(b"\n> ") or b"\n\x1b" in terminal.shown)
        terminal.type("second\r")
        terminal.wait_for(lambda: b"Short.\r\n(" in terminal.shown)
        time.sleep(1.2)
        terminal.type(CTRL_C)
        assert terminal.wait_ended() == 130
        first, stopped, second, _ = terminal.turns
        assert (first.content, second.content) == ("first", "second")
        assert stopped.stop_reason == "cancelled" and words.startswith(stopped.content)
        assert 5 < stopped.content.count("word") < 2000
    if term == "dumb":
        assert b"\x1b" not in terminal.shown
    assert b"continue with: localspec chat --plain --resume " in terminal.shown
    assert b"Traceback" not in terminal.shown


@pty
def test_the_second_ctrl_c_leaves_and_ctrl_d_too(tmp_path: Path) -> None:
    script: dict[str, Any] = {"answers": ["\x1b[31m" + "word " * 2000], "rate": 100}
    with ChatTerminal(tmp_path, plain=True, env={"TERM": "dumb"}, **script) as terminal:
        terminal.type("a\n")
        terminal.wait_for(lambda: b"word" in terminal.shown)
        # What a model writes is no command to the terminal.
        assert b"\x1b" not in terminal.shown and "\ufffd[31m".encode() in terminal.shown
        terminal.process.send_signal(signal.SIGINT)
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for(
            lambda: terminal.process.poll() is not None or b"(stopped" in terminal.shown
        )
        if terminal.process.poll() is None:
            assert terminal.end_plain() == 0
        else:
            assert terminal.wait_ended() == 130
        assert terminal.turns[-1].stop_reason == "cancelled"


@pty
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_an_answer_is_kept_when_the_terminal_is_closed(tmp_path: Path, name: str) -> None:
    with ChatTerminal(tmp_path, plain=True, answers=["word " * 2000], rate=100) as terminal:
        terminal.type("a\r")
        terminal.wait_for(lambda: terminal.shown.count(b"word") > 5)
        terminal.process.send_signal(getattr(signal, name))
        assert terminal.wait_ended() == 128 + getattr(signal, name)
        assert terminal.turns[-1].stop_reason == "cancelled"
        assert terminal.turns[-1].content.count("word") > 5
    assert b"Traceback" not in terminal.shown
