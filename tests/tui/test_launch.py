"""The model that a chat starts with, and how its loading is shown."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fakes.pilot import running_chat
from fakes.scripted import Script, ScriptedEngine

from localspec.conversation.turns import Turn
from localspec.utils.progress import report_progress
from localspec_tui.archive import Archive, SessionSettings
from localspec_tui.default_options import with_defaults
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.preferences import Preferences
from localspec_tui.screens.settings import SettingsScreen


@dataclass
class Case:
    named: str | None
    continued: bool
    remembered: str | None
    model: str | None


@pytest.mark.parametrize(
    "case",
    [
        Case(None, False, None, None),
        Case(None, False, "used-last", "used-last"),
        Case(None, True, "used-last", "of-the-session"),
        Case("named", True, "used-last", "named"),
        Case("named", False, None, "named"),
    ],
)
def test_the_default_model_is_that_of_the_session_or_the_last_one(home: Path, case: Case) -> None:
    named, used_last, of_the_session = on_disk(home, "named", "used-last", "of-the-session")
    files = {"named": named, "used-last": used_last, "of-the-session": of_the_session, None: None}
    Preferences().remember(model=files[case.remembered])
    archive = Archive()
    key = archive.create(str(of_the_session), None)
    archive.save(key, [], Turn("user", "hi"))
    options = LaunchOptions(model=files[case.named], session=key if case.continued else None)
    assert with_defaults(options, archive).model == files[case.model]
    archive.close()


def test_drafts_may_copy_from_earlier_conversations(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive()
    for number in range(3):
        turns = [Turn("user", f"question {number}"), Turn("assistant", f"answer {number}")]
        archive.save(archive.create("model", None), turns, turns[-1])
    both = ["question 2", "answer 2"]
    every = [f"{role} {number}" for number in range(3) for role in ("question", "answer")]
    options = with_defaults(LaunchOptions(), archive)
    assert [*options.load_options["earlier_texts"]] == every
    monkeypatch.setattr("localspec_tui.default_options._MOST_LETTERS", 15)
    assert [*with_defaults(LaunchOptions(), archive).earlier_texts] == both
    archive.close()
    private = Archive(private=True)
    assert not with_defaults(LaunchOptions(private=True), private).earlier_texts
    private.close()


def on_disk(home: Path, *names: str) -> list[str]:
    """Paths of files that are there."""
    paths = [home / f"{name}.gguf" for name in names]
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


def continued(settings: SessionSettings, kept: str, **given: Any) -> LaunchOptions:
    """What `chat -c` begins with, after a session with these settings."""
    archive = Archive()
    key = archive.create(kept, None, settings)
    archive.save(key, [], Turn("user", "hi"))
    options = with_defaults(LaunchOptions(session=key, **given), archive)
    archive.close()
    return options


def test_a_continued_session_keeps_drafters_and_sampling(home: Path) -> None:
    model, drafter = on_disk(home, "model", "drafter")
    settings = SessionSettings(f"suffix,pard:{drafter}", {"temperature": 0.2, "top_k": 7})
    options = continued(settings, model)
    assert (options.draft, options.sampling) == (settings.draft, settings.sampling)
    options = continued(settings, model, draft="none", sampling={"top_k": 3})
    assert (options.draft, options.sampling) == ("none", {"temperature": 0.2, "top_k": 3})
    options = continued(settings, "", model=drafter)
    assert (options.draft, options.sampling) == (None, settings.sampling)
    assert continued(settings, model, draft="auto").draft == "auto"
    assert not options.drop_oldest and not options.session_options
    settings = SessionSettings("suffix", session_options={"thinking_budget": 5}, chat_template="x")
    note = "the chat template is the one that this conversation was begun with"
    for given in (None, model):
        options = continued(settings, model, model=given)
        assert (options.chat_template, options.notes) == ("x", (note,))
    assert options.session_options == {"thinking_budget": 5}
    options = continued(settings, model, session_options={"thinking_budget": 0}, chat_template="y")
    assert options.session_options == {"thinking_budget": 0}
    other = "this conversation was begun with another chat template"
    assert (options.chat_template, options.notes) == ("y", (other,))
    assert continued(settings, model, model=drafter).chat_template is None
    assert continued(replace(settings, drop_oldest=True), model).drop_oldest


def test_a_model_that_was_deleted_is_a_note_and_the_bundled_pair(home: Path) -> None:
    model, drafter = on_disk(home, "model", "drafter")
    settings = SessionSettings(drafter, {"temperature": 0.2})
    Path(drafter).unlink()
    options = continued(settings, model)
    assert (options.model, options.draft) == (model, "auto")
    assert options.notes == (
        "drafter.gguf is not on this machine any more; the drafters are those of --draft auto",
    )
    Path(model).unlink()
    options = continued(settings, model)
    assert (options.model, options.draft) == (None, None)
    assert options.sampling == settings.sampling
    note = "model.gguf is not on this machine any more; this is the bundled pair"
    assert options.notes == (note,)
    Preferences().remember(model=model)
    archive = Archive()
    assert with_defaults(LaunchOptions(), archive).notes == (note,)
    archive.close()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "nonsense",
        '{"sampling": {"top_k": "x"}}',
        '{"drop_oldest": "yes"}',
        '{"session_options": {"thinking_budget": -1, "template_options": ["x"]}}',
        '{"session_options": 1, "chat_template": 1}',
    ],
)
def test_settings_of_a_session_that_cannot_be_used_are_the_default(text: str | None) -> None:
    assert SessionSettings.parse(text) == SessionSettings()


def test_the_chat_saves_drafters_and_sampling_with_the_session(tmp_path: Path) -> None:
    async def body() -> None:
        sampling = {"temperature": 0.3}
        async with running_chat(Script(), tmp_path, draft="ngram", sampling=sampling) as chat:
            await chat.ask("hi")
            key = chat.app.autosave.key or ""
            assert chat.app.archive.settings(key) == SessionSettings("ngram", sampling)
            settings = chat.app.settings
            changed = replace(settings.current, sampling={"temperature": 0.5})
            settings.apply(settings.model, changed)
            await chat.ask("again")
            assert chat.app.archive.settings(key) == SessionSettings("ngram", {"temperature": 0.5})

    asyncio.run(body())


class SlowScript(Script):
    """Reports a quarter as loaded until `may_finish` is set."""

    may_finish = Event()

    def load(self, *arguments: Any, **options: Any) -> ScriptedEngine:
        while not self.may_finish.wait(0.001):
            report_progress("loading big.gguf", 0.25)
        return super().load(*arguments, **options)


def test_loading_shows_its_progress_and_escape_ends_it(tmp_path: Path) -> None:
    async def body() -> None:
        script = SlowScript()
        async with running_chat(script, tmp_path, loaded=False) as chat:
            bar = "█" * 6 + "░" * 18
            await chat.until(lambda: f"{bar} loading big.gguf: 25%" in chat.text)
            await chat.press("escape")
            await chat.until(lambda: chat.is_on_top(SettingsScreen))
            assert "loading was stopped" in chat.text
            script.may_finish.set()
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.app.engine_thread.session)
            await chat.ask("Are you there?")
            assert chat.contents[0] == "Are you there?"

    asyncio.run(body())
