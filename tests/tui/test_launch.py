"""The model that a chat starts with, and how its loading is shown."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from fakes.pilot import running_chat
from fakes.scripted import Script, ScriptedEngine

from localspec.conversation.turns import Turn
from localspec.utils.progress import report_progress
from localspec_tui import launch
from localspec_tui.archive import Archive
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
@pytest.mark.usefixtures("home")
def test_the_default_model_is_that_of_the_session_or_the_last_one(case: Case) -> None:
    Preferences().remember(model=case.remembered)
    archive = Archive()
    key = archive.create("of-the-session", None)
    archive.save(key, [], Turn("user", "hi"))
    options = LaunchOptions(model=case.named, session=key if case.continued else None)
    assert launch.with_default_model(options, archive).model == case.model
    archive.close()


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
            await chat.until(lambda: f"{bar} loading big.gguf: 25 %" in chat.text)
            await chat.press("escape")
            await chat.until(lambda: isinstance(chat.app.screen, SettingsScreen))
            assert "loading was stopped" in chat.text
            script.may_finish.set()
            await chat.press("ctrl+s")
            await chat.until(lambda: chat.app.engine_thread.session)
            await chat.ask("Are you there?")
            assert chat.contents[0] == "Are you there?"

    asyncio.run(body())
