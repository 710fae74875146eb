"""Settings switch: changes how answers are written, and goes back where that fails."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.models import registry
from localspec.models.pair_finder import pair_of
from localspec_tui import notes
from localspec_tui.engine_events import ModelReady
from localspec_tui.engine_thread import EngineThread
from localspec_tui.labels import absolute, absolute_drafters
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.sampling_defaults import SAMPLING_DEFAULTS
from localspec_tui.saved_session import SavedSession
from localspec_tui.session_settings import SessionSettings


class SettingsSwitch:
    """Gives the engine thread other settings.

    model: the one in use; None is the bundled pair. current: the drafters, the sampling and what
    else is kept with a session. system: the system prompt.
    """

    def __init__(self, engine_thread: EngineThread, options: LaunchOptions) -> None:
        self.model = options.model
        self.current = options.settings
        self.system = options.system
        self._engine_thread = engine_thread
        # The model and the drafters that are loaded, and what switches under way will change of
        # that, by the numbers of their commands.
        self._loaded: Mapping[str, Any] = {"model": self.model, "draft": self.current.draft}
        self._under_way: dict[int, Mapping[str, Any]] = {}

    def apply(self, model: str | None, settings: SessionSettings) -> None:
        """Switch to these; what did not change is not loaded again.

        An answer that is being written ends only for another model or other drafters.

        Files get absolute paths, so that they are found from another folder later.
        """
        model, draft = model and absolute(model), absolute_drafters(settings.draft)
        settings = replace(settings, draft=draft)
        has_none = self._engine_thread.session is None and not self._engine_thread.busy
        changed: dict[str, Any] = {}
        if model != self.model or has_none:
            changed["model"] = model
        if draft != self.current.draft:
            changed["draft"] = draft
        if not changed and _without_unset(settings) == _without_unset(self.current):
            return
        command = self._engine_thread.switch(
            model or _bundled_model() if "model" in changed else None,
            changed.get("draft"),
            when_full=settings.when_full,
            thinking_budget=settings.session_options.get("thinking_budget"),
            template_options=settings.session_options.get("template_options"),
            # None is the default, also of what was another preset's or session's.
            **{**dict.fromkeys((*SAMPLING_DEFAULTS, *self.current.sampling)), **settings.sampling},
        )
        if changed:
            self._under_way[command] = changed
        self.model, self.current = model, settings

    def change_system(self, system: str | None) -> None:
        """Use another system prompt from the next answer on."""
        if system != self.system:
            self.system = system
            self._engine_thread.set_system(system)

    def continue_as_saved(self, session: SavedSession, ready: ModelReady | None) -> list[str]:
        """Continue a session with its own settings; its drafters only with its own model.

        ready: the loaded model, if there is one. Returns what the user should know.
        """
        saved, lines = session.settings, list[str | None]()
        model = self.model or str(_bundled_model())
        draft = self.current.draft
        if session.model == model:
            draft, note = saved.usable_draft()
            lines = [note, notes.written_otherwise(session.key, saved, ready)]
        elif session.model:
            lines = [notes.another_model(session.model, model)]
        now = self.current
        settings = replace(
            saved,
            draft=draft,
            chat_template=now.chat_template,
            mmproj=now.mmproj,
            runtime=now.runtime,
        )
        if settings != now:
            self.apply(self.model, settings)
        return [*filter(None, lines)]

    def confirm(self, ready: ModelReady) -> None:
        """Note that the settings are in use now, with this model."""
        self._loaded = {"model": ready.model, "draft": ready.draft_option}
        # What was given for another model is not used any more.
        self.current = replace(
            self.current,
            chat_template=ready.chat_template,
            mmproj=ready.mmproj,
            runtime=ready.runtime,
        )
        self._show_loaded()

    def settle(self) -> None:
        """Note which switches are over: one that failed has changed neither model nor drafters."""
        has_run = self._engine_thread.has_run
        left = {number: each for number, each in self._under_way.items() if not has_run(number)}
        if left != self._under_way:
            self._under_way = left
            self._show_loaded()

    def _show_loaded(self) -> None:
        """Have the model and the drafters that are loaded, once all switches are over."""
        shown = self._loaded
        for changed in self._under_way.values():
            shown = {**shown, **changed}
        self.model, self.current = shown["model"], replace(self.current, draft=shown["draft"])


def _without_unset(settings: SessionSettings) -> SessionSettings:
    sampling = {name: each for name, each in settings.sampling.items() if each is not None}
    return replace(settings, sampling=sampling)


def _bundled_model() -> str | Path:
    """A name or path that loads the bundled pair."""
    path = registry.bundled().target
    pair = pair_of(path)
    return pair.name if pair else path
