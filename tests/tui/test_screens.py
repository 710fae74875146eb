"""What lies over the conversation: sessions, models, presets, help, the palette."""

import json
from pathlib import Path

import pytest
from fakes.pilot import Chat, chatting, played
from fakes.scripted import Script
from textual.widgets import Input, OptionList, TextArea

from localspec.errors import ModelLoadError
from localspec_tui import presets
from localspec_tui.app import key_groups
from localspec_tui.presets import Preset
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.help import HelpScreen, as_bindings
from localspec_tui.screens.input_dialog import InputDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen
from localspec_tui.screens.system_prompt import SystemPromptScreen
from localspec_tui.widgets.composer import Composer
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.turn_view import TurnView


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Presets and what is remembered are of this test alone."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def over(chat: Chat, kind: type) -> bool:
    return isinstance(chat.app.screen, kind)


async def type_in(chat: Chat, name: str, text: str) -> None:
    """Have a text in a box of the settings."""
    chat.app.screen.query_one(f"#{name}", Input).value = text
    await chat.pilot.pause()


def rows(chat: Chat) -> list[str]:
    """What is listed on the screen that lies on top."""
    return [
        str(option.prompt).split("\n")[0]
        for option in chat.app.screen.query_one(OptionList).options
    ]


async def three_sessions(chat: Chat) -> None:
    for text in ("Tell me about whales", "Sort a list in Rust", "Whittling wood"):
        await chat.keys("ctrl+n")
        await chat.ready()
        await chat.ask(text)


def test_sessions_are_found_by_title_and_by_text(tmp_path: Path) -> None:
    async def body() -> None:
        answers = ["They sing.", "Use sort_unstable.", "Take a knife."]
        async with chatting(Script(answers), tmp_path) as chat:
            await three_sessions(chat)
            await chat.keys("ctrl+o")
            await chat.until(lambda: over(chat, SessionsScreen))
            assert rows(chat) == [
                "Whittling wood (open)",
                "Sort a list in Rust",
                "Tell me about whales",
            ]
            await chat.keys(*"whal")
            assert rows(chat)[0] == "Tell me about whales"
            await chat.keys(*["backspace"] * 4, *"unstable")
            assert rows(chat) == ["Sort a list in Rust"]
            await chat.keys("enter")
            await chat.ready()
            assert chat.contents == ["Sort a list in Rust", "Use sort_unstable."]
            assert "Use sort_unstable." in chat.text

    played(body())


def test_sessions_are_renamed_exported_and_deleted(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["They sing.", "Sorted.", "Cut."]), tmp_path) as chat:
            await three_sessions(chat)
            await chat.keys("ctrl+o")
            await chat.until(lambda: over(chat, SessionsScreen))
            await chat.keys("down", "down", "ctrl+t")
            await chat.until(lambda: over(chat, InputDialog))
            await chat.keys(*" !", "enter")
            await chat.until(lambda: over(chat, SessionsScreen))
            assert rows(chat)[2] == "Tell me about whales !"
            for name in ("whales.json", "whales.md"):
                await chat.keys(*["up"] * 3, "down", "down", "ctrl+s")
                await chat.until(lambda: over(chat, InputDialog))
                chat.app.screen.query_one(Input).value = str(tmp_path / name)
                await chat.keys("enter")
                await chat.until(lambda name=name: (tmp_path / name).exists())
            assert "They sing." in (tmp_path / "whales.md").read_text()
            assert (
                json.loads((tmp_path / "whales.json").read_text())["title"]
                == "Tell me about whales !"
            )
            await chat.keys(*["up"] * 3, "down", "down", "ctrl+d")
            await chat.until(lambda: over(chat, ChoiceDialog))
            await chat.keys("down", "enter")
            await chat.until(lambda: over(chat, SessionsScreen))
            assert rows(chat) == ["Whittling wood (open)", "Sort a list in Rust"]

    played(body())


def test_the_open_session_is_not_deleted(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.ask("stay")
            await chat.keys("ctrl+o")
            await chat.until(lambda: over(chat, SessionsScreen))
            await chat.keys("ctrl+d")
            await chat.pilot.pause()
            assert over(chat, SessionsScreen)
            assert len(chat.app.archive.list()) == 1

    played(body())


def test_no_sessions_yet(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.keys("ctrl+o")
            await chat.until(lambda: "Nothing is kept yet" in chat.text)
            await chat.keys("ctrl+t", "ctrl+s", "ctrl+d", "enter", "escape")
            await chat.until(lambda: not over(chat, SessionsScreen))

    played(body())


def test_another_sampling_holds_for_what_comes(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path, sampling={"top_k": 7}) as chat:
            await chat.ask("one")
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen))
            assert chat.app.screen.query_one("#top_k", Input).value == "7"
            await type_in(chat, "temperature", "0.25")
            await type_in(chat, "top_k", "")
            await type_in(chat, "seed", "11")
            await chat.keys("ctrl+s")
            await chat.ready()
            await chat.ask("two")
            first, second = chat.app.engine_thread.session._slot.started
            assert (first.sampling, second.sampling) == ({"top_k": 7}, {"temperature": 0.25})
            assert second.seed == 11

    played(body())


@pytest.mark.parametrize(
    ("box", "typed", "problem"),
    [
        ("temperature", "warm", "temperature is 'warm'; it must be a number"),
        ("top_k", "1.5", "top_k is '1.5'; it must be a whole number"),
        ("top_p", "7", "top_p is 7.0; it must be above 0 and at most 1 (1 is off)"),
        ("rule", "dice", "rule is 'dice'"),
        ("when_full", "burst", "when_full is 'burst'; it must be stop or drop"),
    ],
)
def test_what_makes_no_sense_is_said_and_not_used(
    tmp_path: Path, box: str, typed: str, problem: str
) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen))
            await type_in(chat, box, typed)
            await chat.keys("ctrl+s")
            await chat.until(lambda: problem in chat.text)
            assert over(chat, SettingsScreen)
            await chat.keys("escape")
            await chat.ready()
            assert chat.app.settings.sampling == {}

    played(body())


def test_another_model_and_drafter(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("x")
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen))
            await type_in(chat, "model", "other-model")
            await type_in(chat, "draft", "ngram")
            await chat.keys("ctrl+s")
            await chat.ready()
            assert "other-model" in chat.text
            await chat.ask("y")
            assert "draft: ngram" in chat.text
            assert chat.contents == ["x", "one", "y", "two"]
            assert chat.app.archive.list()[0].model == "other-model"

    played(body())


def test_a_model_of_the_list_is_taken(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen) and rows(chat))
            assert rows(chat)[0].startswith("pycode ")
            await chat.keys("tab", "enter")
            await chat.pilot.pause()
            assert chat.app.screen.query_one("#model", Input).value == "pycode"

    played(body())


def test_a_model_that_cannot_be_had_is_said_and_the_old_one_stays(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one", "two"])
        async with chatting(script, tmp_path) as chat:
            await chat.ask("x")
            script.fails["switch"] = ModelLoadError("big.gguf needs 40.00 GB; there are 8.00 GB")
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen))
            await type_in(chat, "model", "big.gguf")
            await chat.keys("ctrl+s")
            await chat.ready()
            assert "big.gguf needs 40.00 GB; there are 8.00 GB" in chat.notes
            assert chat.app.settings.model == "scripted"
            await chat.ask("y")
            assert chat.contents == ["x", "one", "y", "two"]

    played(body())


def test_a_chat_without_a_model_offers_those_there_are(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(fails={"load": ModelLoadError("no.gguf is no GGUF file")})
        async with chatting(script, tmp_path, model="no.gguf") as chat:
            await chat.until(lambda: over(chat, SettingsScreen) and rows(chat))
            assert "no.gguf is no GGUF file" in chat.text
            assert any(row.startswith("pycode ") for row in rows(chat))
            await chat.keys("escape")
            await chat.say("anybody there?")
            await chat.until(lambda: over(chat, SettingsScreen))
            await chat.keys("escape")
            assert chat.screen.composer.text == "anybody there?"
            script.fails.clear()
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen))
            await type_in(chat, "model", "good.gguf")
            await chat.keys("ctrl+s")
            await chat.ready()
            await chat.keys("enter")
            await chat.ready()
            assert chat.contents == ["anybody there?", "Hello, I am a script."]

    played(body())


def test_a_full_context_is_for_the_user_to_decide(tmp_path: Path) -> None:
    async def body() -> None:
        long = "word " * 100
        async with chatting(Script([long, long, "short"], context=200), tmp_path) as chat:
            await chat.ask("first")
            await chat.say("second")
            await chat.until(lambda: over(chat, ChoiceDialog))
            assert "The context of 200 tokens is full." in chat.text
            await chat.keys("escape")
            assert "cut off: the context is full" in chat.text
            await chat.say("third")
            await chat.until(lambda: over(chat, ChoiceDialog))
            assert chat.screen.composer.text == "third"
            await chat.keys("down", "enter")
            await chat.ready()
            assert chat.contents[-2:] == ["third", "short"]
            assert any("does not see the oldest" in note for note in chat.notes)
            await chat.keys("ctrl+s")
            await chat.until(lambda: over(chat, SettingsScreen))
            assert chat.app.screen.query_one("#when_full", Input).value == "drop"

    played(body())


def test_a_full_context_may_be_left(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["word " * 400], context=200), tmp_path) as chat:
            await chat.say("go on")
            await chat.until(lambda: over(chat, ChoiceDialog))
            await chat.keys("enter")
            await chat.ready()
            assert not over(chat, ChoiceDialog)
            assert not chat.app.settings.drop_oldest
            assert len(chat.contents) == 2

    played(body())


def test_a_system_prompt_and_presets(tmp_path: Path) -> None:
    async def body() -> None:
        presets.add("short", Preset("Be short.", {"temperature": 0.2}))
        async with chatting(Script(), tmp_path) as chat:
            await chat.keys("f2")
            await chat.until(lambda: over(chat, SystemPromptScreen))
            await chat.keys("tab", "enter")
            await chat.pilot.pause()
            assert chat.app.screen.query_one(TextArea).text == "Be short."
            await chat.keys("ctrl+s")
            await chat.ready()
            await chat.ask("x")
            session = chat.app.engine_thread.session
            assert session.system == "Be short."
            assert session._slot.started[-1].sampling == {"temperature": 0.2}
            await chat.keys("f2")
            await chat.until(lambda: over(chat, SystemPromptScreen))
            chat.app.screen.query_one(TextArea).text = "Be long."
            await chat.keys("ctrl+s")
            await chat.ready()
            await chat.ask("longer")
            await chat.keys("ctrl+n")
            await chat.ready()
            await chat.ask("y")
            assert session.system == "Be long."
            assert [chat.app.archive.open(each.key).system for each in chat.app.archive.list()] == [
                "Be long.",
                "Be long.",
            ]

    played(body())


def test_a_preset_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path, sampling={"top_k": 3}) as chat:
            await chat.keys("f2")
            await chat.until(lambda: over(chat, SystemPromptScreen))
            await chat.keys(*"Hm.", "ctrl+n")
            for name in ("bad name", "good"):
                await chat.until(lambda: over(chat, InputDialog))
                chat.app.screen.query_one(Input).value = name
                await chat.keys("enter")
                await chat.until(lambda: over(chat, SystemPromptScreen))
                assert ("is no name" in chat.text) == (name == "bad name")
                if name == "bad name":
                    await chat.keys("ctrl+n")
            assert presets.load("good") == Preset("Hm.", {"top_k": 3})

    played(body())


def test_every_key_has_a_description_and_stands_in_help_and_palette(tmp_path: Path) -> None:
    ours = [binding for bindings in key_groups().values() for binding in as_bindings(bindings)]
    assert all(binding.description for binding in ours)

    async def body() -> None:
        async with chatting(Script(), tmp_path, size=(100, 200)) as chat:
            await chat.ask("x")
            await chat.keys("up")
            commands = {each.title for each in chat.app.get_system_commands(chat.screen)}
            for owner in (chat.app, chat.screen, chat.screen.view, chat.screen.composer, TurnView):
                assert {each.description for each in as_bindings(owner.BINDINGS)} <= commands
            await chat.keys("f1")
            await chat.until(lambda: over(chat, HelpScreen))
            await chat.pilot.pause()
            for binding in ours:
                assert binding.description in chat.text
            for key in ("^r", "^p", "esc", "shift+tab"):
                assert key in chat.text
            await chat.keys("f1")
            await chat.until(lambda: not over(chat, HelpScreen))

    played(body())


def test_all_keys_there_are_belong_to_a_group() -> None:
    grouped = {id(binding) for bindings in key_groups().values() for binding in bindings}
    for owner in (
        Composer,
        ConversationView,
        TurnView,
        SessionsScreen,
        SettingsScreen,
        SystemPromptScreen,
    ):
        assert {id(binding) for binding in owner.BINDINGS} <= grouped


def test_the_palette_does_what_keys_do(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("x")
            await chat.keys("ctrl+p")
            await chat.pilot.pause(0.2)
            await chat.keys(*"regener")
            await chat.until(lambda: "this answer stays" in chat.text)
            await chat.keys("enter")
            await chat.until(lambda: chat.contents == ["x", "two"])

    played(body())


def test_themes_are_remembered(tmp_path: Path) -> None:
    async def body() -> None:
        async with chatting(Script(), tmp_path) as chat:
            assert chat.app.theme == "textual-dark"
            chat.app.theme = "ansi-light"
            await chat.ready()
        async with chatting(Script(), tmp_path) as chat:
            assert chat.app.theme == "ansi-light"
        async with chatting(Script(), tmp_path, theme="nord") as chat:
            assert chat.app.theme == "nord"

    played(body())
