"""Settings that change while something else fails, and options that have no row in the settings."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from fakes.pilot import running_chat
from fakes.scripted import Script

from localspec.errors import ModelLoadError
from localspec_tui import presets
from localspec_tui.presets import Preset
from localspec_tui.screens.system_prompt import SystemPromptScreen

pytestmark = pytest.mark.usefixtures("home")


class FailingOnce(Script):
    """Fails only once with what it fails with."""

    def require(self, what: str) -> None:
        if what in self.fails:
            raise self.fails.pop(what)


@pytest.mark.parametrize("failing", ["compare", "switch"])
def test_a_command_that_fails_takes_back_no_switch_behind_it(tmp_path: Path, failing: str) -> None:
    async def body() -> None:
        script = FailingOnce()
        async with running_chat(script, tmp_path) as chat:
            settings = chat.app.settings
            if failing == "compare":
                chat.app.engine_thread.compare()  # there is no answer
            else:
                script.fails["switch"] = ModelLoadError("no such model")
                settings.apply("/models/other.gguf", settings.current)
            settings.apply(settings.model, replace(settings.current, draft="none"))
            await chat.wait_idle()
            assert chat.notes[1:] == ["draft: off (drafting was turned off)"]
            assert chat.screen.event_handler.ready.draft == ()
            assert (settings.model, settings.current.draft) == ("scripted", "none")
            script.fails["switch"] = ModelLoadError("no such model")
            settings.apply("/models/other.gguf", settings.current)
            await chat.wait_idle()
            assert chat.notes[1:] == ["draft: off (drafting was turned off)", "no such model"]
            settings.apply(settings.model, replace(settings.current, draft="auto"))
            await chat.wait_idle()
            assert chat.screen.event_handler.ready.draft == ("suffix",)

    asyncio.run(body())


def test_a_model_is_loaded_where_another_could_not_be(tmp_path: Path) -> None:
    async def body() -> None:
        script = FailingOnce(fails={"load": ModelLoadError("no such model")})
        async with running_chat(script, tmp_path, loaded=False) as chat:
            await chat.until(lambda: chat.screen.event_handler.state == "no model")
            settings = chat.app.settings
            for model, others in (("/models/bad.gguf", 1), ("scripted", 0)):
                script.fails |= {"load": ModelLoadError("no such model")} if others else {}
                settings.apply(model, settings.current)
                await chat.wait_idle()
            assert chat.screen.event_handler.ready.model.endswith("scripted")

    asyncio.run(body())


def test_options_without_a_row_in_the_settings_come_and_go_with_a_preset(tmp_path: Path) -> None:
    async def body() -> None:
        presets.add("until", Preset(None, {"stop": ["ls"], "min_tokens": 2}))
        presets.add("warm", Preset(None, {"temperature": 0.2}))
        async with running_chat(Script(), tmp_path) as chat:
            for keys, stop, least in ((["enter"], ("ls",), 2), (["down", "enter"], (), 0)):
                await chat.press("f2")
                await chat.until(lambda: chat.is_on_top(SystemPromptScreen))
                await chat.press("tab", *keys)
                await chat.pilot.pause()
                await chat.press("ctrl+s")
                await chat.wait_idle()
                await chat.ask("x")
                used = chat.app.engine_thread.session._slot.started[-1]
                assert (used.stop, used.min_tokens) == (stop, least)

    asyncio.run(body())
