"""Dialogs: the screens that the chat screen opens, and what their results change."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from localspec_tui import notes
from localspec_tui.figures import longest_answer
from localspec_tui.presets import Preset
from localspec_tui.sampling_defaults import SAMPLING_DEFAULTS, defaults_with
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen
from localspec_tui.screens.system_prompt import SystemPromptScreen
from localspec_tui.session_settings import SessionSettings

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen

# Seconds without a letter after which a screen opens that the user has not asked for.
_PAUSE = 1.0


class Dialogs:
    """Opens screens over the chat screen.

    One that the user has not asked for takes no keys that are meant for the text box.
    """

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        # Opens such a screen, which waits for a pause.
        self._due: Callable[[], None] | None = None

    def sessions(self) -> None:
        """List the saved sessions, and resume the one that is chosen."""
        chat = self._screen.chat

        def chosen(choice: tuple[str, str | None] | None) -> None:
            key, found = choice or (None, None)
            if key and key != chat.autosave.key:
                self._screen.switch.resume(key, found=found)
            elif found:
                self._screen.switch.go_to(found)

        saved, forget = chat.autosave, chat.engine_thread.forget
        screen = SessionsScreen(chat.archive, saved.key, saved.read, forget)
        chat.push_screen(screen, chosen)

    def no_model(self, problem: str) -> None:
        """Open the settings, because no model is loaded. problem: why.

        They are not opened where another model is loaded, or was, meanwhile.
        """

        def show() -> None:
            if self._screen.event_handler.state == "no model":
                self.settings(problem)

        if not self._are_settings_open:
            self._open_in_pause(show)

    def settings(self, problem: str = "") -> None:
        """Open the settings, unless they are open. problem: why no model is loaded."""
        chat = self._screen.chat
        if self._are_settings_open:
            return

        def chosen(choice: tuple[str | None, SessionSettings] | None) -> None:
            if choice:
                settings.apply(*choice)

        settings, ready = chat.settings, self._screen.event_handler.ready
        usual = defaults_with(ready.sampling) if ready else SAMPLING_DEFAULTS
        usual = {**usual, "max_tokens": longest_answer(self._screen)}
        screen = SettingsScreen(settings.model, settings.current, problem, usual)
        chat.push_screen(screen, chosen)

    @property
    def _are_settings_open(self) -> bool:
        return any(isinstance(each, SettingsScreen) for each in self._screen.chat.screen_stack)

    def system_prompt(self) -> None:
        """Open the system prompt and the presets."""
        settings = self._screen.chat.settings

        def chosen(preset: Preset | None) -> None:
            if preset:
                settings.apply(settings.model, replace(settings.current, sampling=preset.options))
                settings.change_system(preset.system)

        current = Preset(settings.system, settings.current.sampling)
        self._screen.chat.push_screen(SystemPromptScreen(current), chosen)

    def context_full(self, retry: Callable[[], None]) -> None:
        """Ask what to do now that the context is full. retry: called if there is room again.

        It is not asked of a conversation that has gone on since, or was left, or has another model.
        """
        screen = self._screen
        last, ready = screen.conversation.last, screen.event_handler.ready

        def ask() -> None:
            if screen.conversation.last is last and screen.event_handler.ready is ready:
                self._ask_of_full_context(retry)

        self._open_in_pause(ask)

    def _open_in_pause(self, show: Callable[[], None]) -> None:
        """Open a screen by itself over the chat screen, once nothing is typed there.

        It replaces another that waits.
        """
        self._due = show
        self._open_unless_typing(show)

    def _open_unless_typing(self, show: Callable[[], None]) -> None:
        if show is not self._due:
            return
        chat = self._screen.chat
        wait = _PAUSE - chat.typed_keys.seconds_since_letter
        if chat.screen is not self._screen:
            wait = _PAUSE
        if wait > 0:
            chat.set_timer(wait, partial(self._open_unless_typing, show))
        else:
            self._due = None
            show()

    def _ask_of_full_context(self, retry: Callable[[], None]) -> None:
        screen, chat = self._screen, self._screen.chat
        ready = screen.event_handler.ready
        size, most = (ready.context, ready.longest_context) if ready else (0, 0)
        larger = min(2 * size, most)

        def decided(choice: str | None) -> None:
            match choice:
                case "drop":
                    settings = chat.settings
                    settings.apply(settings.model, replace(settings.current, drop_oldest=True))
                case "larger":
                    chat.engine_thread.enlarge(larger)
                case "new":
                    screen.switch.begin_new()
            if choice in ("drop", "larger"):
                retry()
                screen.outbox.release()

        question = notes.context_full(size, most, chat.autosave.kept)
        drops = chat.settings.current.drop_oldest
        choices = notes.context_full_choices(size, larger, drops=drops)
        chat.push_screen(ChoiceDialog(question, choices, gives_way=True), decided)
