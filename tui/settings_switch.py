"""Settings switch: changes how answers are written, and goes back where that fails."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.models import registry
from localspec.models.pair_finder import pair_of
from localspec_tui import notes
from localspec_tui.archive import SavedSession
from localspec_tui.engine_events import ModelReady
from localspec_tui.labels import absolute, absolute_drafters
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.screens.settings import SAMPLING_DEFAULTS
from localspec_tui.session_settings import SessionSettings

if TYPE_CHECKING:
    from localspec_tui.app import ChatApp


class SettingsSwitch:
    """Gives the engine thread other settings.

    model: the one in use; None is the bundled pair. current: the drafters, the sampling and what
    else is kept with a session. system: the system prompt.
    """

    def __init__(self, app: "ChatApp", options: LaunchOptions) -> None:
        self.model = options.model
        self.current = options.settings
        self.system = options.system
        self._app = app
        # The model and the drafters that are loaded, to go back to if a switch fails.
        self._loaded = self.model, self.current.draft

    def apply(self, model: str | None, settings: SessionSettings) -> None:
        """Switch to these; what did not change is not loaded again.

        An answer that is being written ends only for another model or other drafters.

        Files get absolute paths, so that they are found from another folder later.
        """
        model, draft = model and absolute(model), absolute_drafters(settings.draft)
        settings = replace(settings, draft=draft)
        is_same = model == self.model and _is_same(settings, self.current)
        if is_same and self._app.main.event_handler.state != "no model":
            return
        self._app.engine_thread.switch(
            model or _bundled_model() if model != self.model else None,
            draft if draft != self.current.draft else None,
            when_full=settings.when_full,
            thinking_budget=settings.session_options.get("thinking_budget"),
            template_options=settings.session_options.get("template_options"),
            **_shown_sampling(settings),
        )
        self.model, self.current = model, settings

    def change_system(self, system: str | None) -> None:
        """Use another system prompt from the next answer on."""
        if system != self.system:
            self.system = system
            self._app.engine_thread.set_system(system)

    def continue_as_saved(self, session: SavedSession) -> None:
        """Continue a session with its own settings; its drafters only with its own model."""
        saved, ready = session.settings, self._app.main.event_handler.ready
        model, lines = self.model or str(_bundled_model()), list[str | None]()
        draft = self.current.draft
        if session.model == model:
            draft, note = saved.usable_draft()
            lines = [note, notes.written_otherwise(session.key, saved, ready)]
        elif session.model:
            lines = [notes.another_model(session.model, model)]
        for line in filter(None, lines):
            self._app.main.view.note(line, warning=True)
        now = self.current
        settings = replace(saved, draft=draft, chat_template=now.chat_template, runtime=now.runtime)
        if settings != now:
            self.apply(self.model, settings)

    def confirm(self, ready: ModelReady) -> None:
        """Note that the settings are in use now, with this model."""
        self.model = ready.model
        # A template that was given for another model is not used any more.
        self.current = replace(
            self.current, chat_template=ready.chat_template, runtime=ready.runtime
        )
        self._loaded = self.model, self.current.draft

    def revert(self) -> None:
        """Go back to the model and drafters that are loaded, after a switch failed."""
        self.model, draft = self._loaded
        self.current = replace(self.current, draft=draft)


def _is_same(settings: SessionSettings, others: SessionSettings) -> bool:
    """Whether both are the same in what the settings screen shows."""
    same = _shown_sampling(settings) == _shown_sampling(others)
    return same and replace(settings, sampling={}) == replace(others, sampling={})


def _shown_sampling(settings: SessionSettings) -> dict[str, object]:
    return {name: settings.sampling.get(name) for name in SAMPLING_DEFAULTS}


def _bundled_model() -> str | Path:
    """A name or path that loads the bundled pair."""
    path = registry.bundled().target
    pair = pair_of(path)
    return pair.name if pair else path
