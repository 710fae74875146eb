"""The screens over the chat screen: settings, system prompt, help, dialogs and palette."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fakes.pilot import TIMEOUT, ChatPilot, running_chat
from fakes.scripted import Script, ScriptedEngine
from textual.widgets import Input, OptionList, TextArea
from textual.widgets._toast import ToastRack

from localspec.errors import ModelLoadError
from localspec.models import registry
from localspec_tui import presets
from localspec_tui.app import key_groups
from localspec_tui.notes import context_full, context_full_choices
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

pytestmark = pytest.mark.usefixtures("home")


async def type_in(chat: ChatPilot, name: str, text: str) -> None:
    """Type a text into an input of the settings."""
    chat.app.screen.query_one(f"#{name}", Input).value = text
    await chat.pilot.pause()


def test_changed_sampling_applies_to_the_next_answer(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, sampling={"top_k": 7}) as chat:
            await chat.ask("one")
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            assert chat.app.screen.query_one("#top_k", Input).value == "7"
            await type_in(chat, "temperature", "0.25")
            await type_in(chat, "top_k", "")
            await type_in(chat, "seed", "11")
            await chat.press("ctrl+s")
            await chat.wait_idle()
            await chat.ask("two")
            first, second = chat.app.engine_thread.session._slot.started
            assert (first.sampling, second.sampling) == ({"top_k": 7}, {"temperature": 0.25})
            assert second.seed == 11

    asyncio.run(body())


@pytest.mark.parametrize(
    ("box", "typed", "problem"),
    [
        ("temperature", "warm", "temperature is 'warm'; it must be a number"),
        ("top_k", "1.5", "top_k is '1.5'; it must be a whole number"),
        ("top_p", "7", "top_p is 7.0; it must be above 0 and at most 1 (1 is off)"),
        ("rule", "dice", "rule is 'dice'"),
        ("dry_allowed_length", "2.5", "dry_allowed_length is '2.5'; it must be a whole number"),
        ("xtc_probability", "7", "xtc_probability is 7.0; it must be between 0 (off) and 1"),
        ("when_full", "burst", "when_full is 'burst'; it must be stop or drop"),
    ],
)
def test_a_bad_setting_is_explained_and_not_applied(
    tmp_path: Path, box: str, typed: str, problem: str
) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await type_in(chat, box, typed)
            await chat.press("ctrl+s")
            await chat.until(lambda: problem in chat.text)
            assert chat.is_on_top(SettingsScreen)
            await chat.press("escape")
            await chat.wait_idle()
            assert chat.app.settings.current.sampling == {}

    asyncio.run(body())


@pytest.mark.slow
def test_dry_and_xtc_are_settings_and_others_of_the_command_line_stay(tmp_path: Path) -> None:
    async def body() -> None:
        given = {"dry_multiplier": 0.5, "dry_sequence_breakers": ("\n",)}
        async with running_chat(Script(), tmp_path, sampling=given) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await type_in(chat, "dry_multiplier", "0.8")
            await type_in(chat, "dry_allowed_length", "3")
            await type_in(chat, "xtc_probability", "0.25")
            await chat.press("ctrl+s")
            await chat.wait_idle()
            assert chat.app.settings.current.sampling == {
                **given,
                "dry_multiplier": 0.8,
                "dry_allowed_length": 3,
                "xtc_probability": 0.25,
            }

    asyncio.run(body())


def test_model_and_drafter_can_be_changed(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("x")
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await type_in(chat, "model", "other-model")
            await type_in(chat, "draft", "ngram")
            await chat.press("ctrl+s")
            await chat.wait_idle()
            assert "other-model" in chat.text
            await chat.ask("y")
            assert "draft: ngram" in chat.text
            assert chat.contents == ["x", "one", "y", "two"]
            assert chat.app.archive.list()[0].model == "other-model"

    asyncio.run(body())


@pytest.mark.slow
def test_paths_typed_in_the_settings_are_kept_as_absolute_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("target.gguf", "small.gguf"):
        (tmp_path / name).touch()

    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await type_in(chat, "model", "target.gguf")
            await type_in(chat, "draft", "suffix, small.gguf")
            await chat.press("ctrl+s")
            await chat.wait_idle()
            await chat.ask("hi")
            [summary] = chat.app.archive.list()
            assert summary.model == str(tmp_path / "target.gguf")
            kept = chat.app.archive.settings(summary.key)
            assert kept.draft == f"suffix,{tmp_path / 'small.gguf'}"

    asyncio.run(body())


def test_a_model_is_chosen_from_the_list(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen) and chat.options)
            assert chat.options[0].startswith("terminal ")
            await chat.press("tab", "enter")
            await chat.pilot.pause()
            assert chat.app.screen.query_one("#model", Input).value == "terminal"

    asyncio.run(body())


def test_the_settings_offer_the_drafters_that_fit(tmp_path: Path) -> None:
    async def body() -> None:
        bundled = registry.bundled()
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen) and chat.options)
            drafts = chat.app.screen.query_one("#drafts", OptionList)
            offered = [option.id for option in drafts.options]
            assert offered == ["auto", "none", "suffix", "lookup", "ngram"]
            await type_in(chat, "model", str(bundled.target))
            await chat.until(lambda: drafts.option_count == 6)
            assert bundled.drafter.stem in str(drafts.options[5].id)
            assert not drafts.display or not drafts.region.height
            chat.app.screen.query_one("#draft", Input).focus()
            await chat.until(lambda: drafts.display and drafts.region.height)
            assert not chat.app.screen.query_one("#models", OptionList).display
            await chat.press("tab", "down", "enter")
            assert chat.app.screen.query_one("#draft", Input).value == "none"

    asyncio.run(body())


def test_the_settings_tell_how_many_tokens_fit(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(context=300), tmp_path) as chat:
            await chat.ask("x")
            session = chat.app.engine_thread.session
            assert session
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            left = session.gauge.size - session.gauge.used
            await chat.until(lambda: f"{left}, as many as fit" in chat.text)

    asyncio.run(body())


def test_typing_replaces_the_path_of_a_broken_model(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(fails={"load": ModelLoadError("there is no model file /no/x.gguf")})
        async with running_chat(script, tmp_path, model="/no/x.gguf") as chat:
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await chat.press(*"new")
            assert chat.app.screen.query_one("#model", Input).value == "new"

    asyncio.run(body())


def test_toasts_leave_the_text_box_free(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            rack = ToastRack()
            await chat.screen.mount(rack)
            assert rack.styles.dock == "top"

    asyncio.run(body())


def test_a_model_that_cannot_be_loaded_leaves_the_old_one(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(["one", "two"])
        async with running_chat(script, tmp_path) as chat:
            await chat.ask("x")
            script.fails["switch"] = ModelLoadError("big.gguf needs 40.00 GB; there are 8.00 GB")
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await type_in(chat, "model", "big.gguf")
            await chat.press("ctrl+s")
            await chat.wait_idle()
            assert "big.gguf needs 40.00 GB; there are 8.00 GB" in chat.notes
            assert chat.app.settings.model == "scripted"
            await chat.ask("y")
            assert chat.contents == ["x", "one", "y", "two"]

    asyncio.run(body())


@pytest.mark.slow
def test_without_a_model_the_settings_list_those_on_disk(tmp_path: Path) -> None:
    async def body() -> None:
        script = Script(fails={"load": ModelLoadError("no.gguf is no GGUF file")})
        async with running_chat(script, tmp_path, model="no.gguf") as chat:
            await chat.until(lambda: chat.is_on_top(SettingsScreen) and chat.options)
            assert "no.gguf is no GGUF file" in chat.text
            assert any(row.startswith("terminal ") for row in chat.options)
            await chat.press("escape")
            await chat.send("anybody there?")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await chat.press("escape")
            assert chat.screen.composer.text == "anybody there?"
            script.fails.clear()
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            await type_in(chat, "model", "good.gguf")
            await chat.press("ctrl+s")
            await chat.wait_idle()
            await chat.press("enter")
            await chat.wait_idle()
            assert chat.contents == ["anybody there?", "Hello, I am a script."]

    asyncio.run(body())


def test_a_full_context_can_be_made_larger(tmp_path: Path) -> None:
    async def body() -> None:
        long = "word " * 160
        script = Script([long], context=140)
        async with running_chat(script, tmp_path) as chat:
            await chat.send("first")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            key = chat.app.autosave.key
            assert "The model was made for up to" in chat.text
            assert f"localspec chat --resume {key[:8]} --ctx 280" in chat.text
            partial = chat.contents[1]
            script.answers = ["and on."]
            await chat.press("down", "down", "enter")
            await chat.wait_idle()
            assert script.engines[-1].options["context"] == 280
            assert chat.contents == ["first", f"{partial}and on."]
            assert "cut off" not in chat.text

    asyncio.run(body())


@dataclass
class _Small(Script):
    """A script for a machine without room for a context of 280. The next load waits for `go_on`."""

    waits: Event = field(default_factory=Event)
    go_on: Event = field(default_factory=Event)
    refused: bool = False

    def load(self, *model: Any, context: int | None = None, **options: Any) -> ScriptedEngine:
        if context == 280:
            self.refused = True
            raise ModelLoadError("a context of 280 does not fit")
        if self.refused:
            self.waits.set()
            assert self.go_on.wait(TIMEOUT)
        return super().load(*model, context=context, **options)


def test_where_a_larger_context_does_not_fit_the_chat_goes_on(tmp_path: Path) -> None:
    async def body() -> None:
        script = _Small(["word " * 160], context=140)
        async with running_chat(script, tmp_path) as chat:
            await chat.send("first")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            await chat.press("down", "down", "enter")
            await chat.until(script.waits.is_set)
            await chat.pilot.pause(0.3)
            chat.screen.event_handler.poll()
            assert not chat.is_on_top(SettingsScreen)
            assert not any("no model is loaded" in note for note in chat.notes)
            script.go_on.set()
            await chat.wait_idle()
            assert "a context of 280 does not fit" in chat.notes
            assert chat.screen.outbox.held != "because no model is loaded"
            assert chat.screen.event_handler.ready.context == 140
            assert any("question fill the context of 140 tokens" in note for note in chat.notes)
            assert not chat.is_on_top(SettingsScreen)

    asyncio.run(body())


def test_the_question_of_a_full_context() -> None:
    assert [*context_full_choices(99, 99)] == ["stop", "drop", "new"]
    assert [*context_full_choices(99, 120, drops=True)] == ["stop", "larger", "new"]
    assert context_full(99, 99, None).endswith("is full. The model was made for no more.")
    assert context_full(99, 0, None) == "The context of 99 tokens is full."
    assert context_full(99, 120, None).endswith("localspec chat --ctx 120")


@pytest.mark.slow
def test_a_full_context_asks_the_user_and_drops_turns(tmp_path: Path) -> None:
    async def body() -> None:
        long = "word " * 100
        async with running_chat(Script([long, long, "short"], context=200), tmp_path) as chat:
            await chat.ask("first")
            await chat.send("second")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            assert "The context of 200 tokens is full." in chat.text
            await chat.press("escape")
            assert "cut off: the context is full" in chat.text
            await chat.send("third")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            assert chat.screen.composer.text == "third"
            await chat.press("down", "enter")
            await chat.wait_idle()
            assert chat.contents[-2:] == ["third", "short"]
            assert any("messages were dropped" in note for note in chat.notes)
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            assert chat.app.screen.query_one("#when_full", Input).value == "drop"

    asyncio.run(body())


def test_a_full_context_can_be_left_as_it_is(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["word " * 400], context=200), tmp_path) as chat:
            await chat.send("go on")
            await chat.until(lambda: chat.is_on_top(ChoiceDialog))
            await chat.press("enter")
            await chat.wait_idle()
            assert not chat.is_on_top(ChoiceDialog)
            assert not chat.app.settings.current.drop_oldest
            assert len(chat.contents) == 2

    asyncio.run(body())


@pytest.mark.slow
def test_system_prompts_and_presets_apply_to_the_next_answer(tmp_path: Path) -> None:
    async def body() -> None:
        presets.add("short", Preset("Be short.", {"temperature": 0.2}))
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("f2")
            await chat.until(lambda: chat.is_on_top(SystemPromptScreen))
            await chat.press("tab", "enter")
            await chat.pilot.pause()
            assert chat.app.screen.query_one(TextArea).text == "Be short."
            await chat.press("ctrl+s")
            await chat.wait_idle()
            await chat.ask("x")
            session = chat.app.engine_thread.session
            assert session.system == "Be short."
            assert session._slot.started[-1].sampling == {"temperature": 0.2}
            await chat.press("f2")
            await chat.until(lambda: chat.is_on_top(SystemPromptScreen))
            chat.app.screen.query_one(TextArea).text = "Be long."
            await chat.press("ctrl+s")
            await chat.wait_idle()
            await chat.ask("longer")
            await chat.press("ctrl+n")
            await chat.wait_idle()
            await chat.ask("y")
            assert session.system == "Be long."
            assert [chat.app.archive.open(each.key).system for each in chat.app.archive.list()] == [
                "Be long.",
                "Be long.",
            ]

    asyncio.run(body())


def test_a_preset_is_saved_by_name(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path, sampling={"top_k": 3}) as chat:
            await chat.press("f2")
            await chat.until(lambda: chat.is_on_top(SystemPromptScreen))
            await chat.press(*"Hm.", "ctrl+n")
            for name in ("bad name", "good"):
                await chat.until(lambda: chat.is_on_top(InputDialog))
                chat.app.screen.query_one(Input).value = name
                await chat.press("enter")
                await chat.until(lambda: chat.is_on_top(SystemPromptScreen))
                assert ("is no name of a preset" in chat.text) == (name == "bad name")
                if name == "bad name":
                    await chat.press("ctrl+n")
            assert presets.load("good") == Preset("Hm.", {"top_k": 3})

    asyncio.run(body())


def test_every_key_has_a_description_in_help_and_palette(tmp_path: Path) -> None:
    ours = [binding for bindings in key_groups().values() for binding in as_bindings(bindings)]
    assert all(binding.description for binding in ours)

    async def body() -> None:
        async with running_chat(Script(), tmp_path, size=(100, 200)) as chat:
            await chat.ask("x")
            await chat.press("shift+tab")
            commands = {each.title for each in chat.app.get_system_commands(chat.screen)}
            for owner in (chat.app, chat.screen, chat.screen.view, chat.screen.composer, TurnView):
                assert {each.description for each in as_bindings(owner.BINDINGS)} <= commands
            await chat.press("f1")
            await chat.until(lambda: chat.is_on_top(HelpScreen))
            await chat.pilot.pause()
            for binding in ours:
                assert binding.description in chat.text
            for key in ("^r", "^p", "esc", "shift+tab"):
                assert key in chat.text
            await chat.press("f1")
            await chat.until(lambda: not chat.is_on_top(HelpScreen))

    asyncio.run(body())


def test_every_binding_belongs_to_a_group() -> None:
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


def test_the_palette_runs_actions(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(["one", "two"]), tmp_path) as chat:
            await chat.ask("x")
            await chat.press("ctrl+p")
            await chat.pilot.pause(0.2)
            await chat.press(*"regener")
            await chat.until(lambda: "this answer stays" in chat.text)
            await chat.press("enter")
            await chat.until(lambda: chat.contents == ["x", "two"])

    asyncio.run(body())


def test_themes_are_remembered(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            assert chat.app.theme == "textual-dark"
            chat.app.theme = "ansi-light"
            await chat.wait_idle()
        async with running_chat(Script(), tmp_path) as chat:
            assert chat.app.theme == "ansi-light"
        async with running_chat(Script(), tmp_path, theme="nord") as chat:
            assert chat.app.theme == "nord"

    asyncio.run(body())


def test_ctrl_q_quits_from_any_screen(tmp_path: Path) -> None:
    async def body() -> None:
        async with running_chat(Script(), tmp_path) as chat:
            await chat.press("f1")
            await chat.until(lambda: chat.is_on_top(HelpScreen))
            await chat.press("ctrl+q")
            await chat.until(lambda: not chat.app.is_running)

    asyncio.run(body())
