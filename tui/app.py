"""Chat app: what all screens share."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any, ClassVar

from textual import events
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme, ThemeProvider
from textual.widget import Widget
from textual.widgets import Input, TextArea

from localspec.conversation.turns import Turn
from localspec.errors import LocalspecError
from localspec.utils.running_clock import running_clock
from localspec_tui.archive import Archive
from localspec_tui.autosave import Autosave
from localspec_tui.control_filter import ControlFilter
from localspec_tui.copier import Copier
from localspec_tui.encoding_filter import EncodingFilter
from localspec_tui.engine_events import ModelReady, QuestionAsked
from localspec_tui.engine_thread import EngineThread
from localspec_tui.job_control import is_job_of_shell
from localspec_tui.labels import model_label
from localspec_tui.launch_options import LaunchOptions
from localspec_tui.log_lines import LogLines
from localspec_tui.lost_terminal import exit_with_terminal
from localspec_tui.pinned_columns import with_pinned_columns
from localspec_tui.preferences import Preferences
from localspec_tui.screen_commands import SCREEN_COMMANDS
from localspec_tui.screens.chat import ChatScreen
from localspec_tui.screens.choice_dialog import ChoiceDialog
from localspec_tui.screens.dialog import Palette
from localspec_tui.screens.help import HelpScreen, KeyGroups, as_bindings, key_text
from localspec_tui.screens.sessions import SessionsScreen
from localspec_tui.screens.settings import SettingsScreen
from localspec_tui.screens.system_prompt import SystemPromptScreen
from localspec_tui.session_settings import SessionSettings
from localspec_tui.settings_switch import SettingsSwitch
from localspec_tui.typed_keys import KeyDue, KeyHandled, TypedKeys, is_text
from localspec_tui.widgets.composer import Composer
from localspec_tui.widgets.conversation_view import ConversationView
from localspec_tui.widgets.find_bar import FindBar
from localspec_tui.widgets.turn_view import TurnView

_LIGHT_THEME = "textual-light"
# Seconds within which ctrl+c must be pressed twice to quit.
_QUIT_INTERVAL = 2.0


class ChatApp(App[None]):
    """Owns the engine thread, the archive and the settings; screens reach them through the app.

    encoding: of a terminal without Unicode; None for UTF-8. main: the chat screen, which is always
    the lowest. settings: the model, drafters, sampling and system prompt in use.
    lost_text: what was in the text box at the end, if it could not be kept with the session, and
    lost_edit, if it was another text of an answer.
    copier: for what is copied. typed_keys: keys that wait for the key before them.
    """

    TITLE = "localspec"
    CSS_PATH = "chat.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]  # noqa: RUF012 (as Textual has it)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (16, "-high")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1", "help", "Help", tooltip="all keys and commands"),
        Binding(
            "ctrl+c", "stop_or_quit", "Stop or quit", tooltip="twice", show=False, priority=True
        ),
        Binding(
            "ctrl+p",
            "command_palette",
            "palette",
            tooltip="find a command by name",
            show=False,
            priority=True,
        ),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
        Binding(
            "ctrl+z", "suspend_process", "Suspend", tooltip="until fg in the shell", show=False
        ),
    ]

    def __init__(
        self,
        engine_thread: EngineThread,
        archive: Archive,
        options: LaunchOptions,
        *,
        encoding: str | None = None,
    ) -> None:
        # With NO_COLOR all colours are the terminal's own, whatever the theme.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.engine_thread = engine_thread
        self.archive = archive
        self.autosave = Autosave(archive)
        self.log_lines = LogLines()
        self.copier = Copier(self)
        self.settings = SettingsSwitch(engine_thread, options)
        self.main = ChatScreen()
        self.lost_text = self.lost_edit = ""
        self.typed_keys = TypedKeys(self)
        # Whether the theme is not the user's choice.
        self._is_theme_guessed = False
        self._launch_options = options
        self._preferences = Preferences.read()
        self._control_filter = ControlFilter()
        self._encoding_filter = EncodingFilter(encoding) if encoding else None
        self._ctrl_c_pressed = float("-inf")

    # Start and end.

    def get_default_screen(self) -> Screen[None]:
        """The chat screen."""
        return self.main

    def on_mount(self) -> None:
        theme = self._launch_options.theme or self._preferences.theme
        if theme in BUILTIN_THEMES:
            self.theme = theme
        elif self._launch_options.is_terminal_light:
            self._is_theme_guessed, self.theme = True, _LIGHT_THEME
        self.theme_changed_signal.subscribe(self, self._remember_theme)
        # Otherwise only what changes is drawn on the screen that the shell had.
        self.app_resume_signal.subscribe(self, lambda _: self.refresh(layout=True))
        self.log_lines.attach()
        self.archive.set_patient(False)
        exit_with_terminal(self)
        running_clock.follow_stops()
        self.call_after_refresh(self._open_session)

    async def _open_session(self) -> None:
        """Show the resumed session and load the model, once the first frame is drawn."""
        await self.typed_keys.release()
        options, screen = self._launch_options, self.main
        for note in options.notes:
            screen.view.note(note, warning=True)
        screen.event_handler.note_archive_problem()
        if options.session:
            screen.switch.resume(options.session, options.system, at_start=True)
        else:
            screen.switch.begin(options.system)
        self.engine_thread.load(**options.load_options)

    @property
    def is_loading(self) -> bool:
        """Whether a model is being loaded. Quitting does not wait for that."""
        return self.main.event_handler.state == "loading"

    def on_unmount(self) -> None:
        self.archive.set_patient(True)
        text, self.lost_edit = self.main.unsent.text, self.main.unsent.edited_answer
        if self.save_unsent(text) or not self.archive.is_kept:
            self.lost_text = text
        if self.engine_thread.keeps and not self.is_loading:
            # What was read is kept while the terminal is given back.
            self.engine_thread.end(self.autosave.kept)
        elif not self.is_loading:
            self.engine_thread.close()
        for event in self.engine_thread.drain():
            if isinstance(event, QuestionAsked):
                self.save_question(event.turn)
            self.autosave.handle(event)
        self.autosave.save_answer()
        self.autosave.save_rest()
        self.archive.close()
        self.log_lines.detach()

    def save_question(self, turn: Turn) -> None:
        """Save a message that is in the conversation now."""
        self.main.outbox.in_flight = ""
        self.autosave.save_question(turn, *self._about_session)

    def save_settings(self) -> None:
        """Save the settings that an answer is written with, which may be no new question's."""
        self.autosave.save_settings(*self._about_session)

    def save_unsent(self, text: str) -> str | None:
        """Save what is in the text box. Returns the problem if that fails, else None."""
        try:
            self.autosave.save_unsent(text, *self._about_session)
        except LocalspecError as error:
            return str(error)
        return None

    @property
    def _about_session(self) -> tuple[str, str | None, SessionSettings]:
        """The model, the system prompt and the settings of the session."""
        ready = self.main.event_handler.ready
        return ready.model if ready else "", self.settings.system, self.settings.current

    def get_driver_class(self) -> type[Driver]:
        """Textual's, for terminals that do not agree on the widths of emoji."""
        return with_pinned_columns(super().get_driver_class())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's filters, and those for what the terminal must not or cannot show."""
        own = [self._encoding_filter] if self._encoding_filter else []
        return [*super().get_line_filters(), self._control_filter, *own]

    # Settings.

    def confirm_settings(self, ready: ModelReady) -> None:
        """Note that the settings are in use now, with this model."""
        self.settings.confirm(ready)
        self.main.message_size.show_model(model_label(ready.model))
        self._remember(lambda known: known.remember_model(ready.model, bundled=ready.bundled))

    def _remember_theme(self, theme: Theme) -> None:
        is_guessed, self._is_theme_guessed = self._is_theme_guessed, False
        if not is_guessed:
            self._remember(lambda known: known.remember(theme=theme.name))

    def _remember(self, change: Callable[[Preferences], Preferences]) -> None:
        if self._launch_options.private:
            return
        try:
            self._preferences = change(self._preferences)
        except OSError as error:
            self.main.view.note(f"your choices cannot be saved: {error.strerror}")

    # Keys.

    async def on_event(self, event: events.Event) -> None:
        """Focus the text box for letters that nothing else uses; have keys wait for a screen."""
        typed = event if isinstance(event, events.Key | events.Paste) else None
        is_new = typed is not None and not typed.is_forwarded
        if typed and is_new:
            if not (isinstance(typed, events.Key) and typed.key == "ctrl+c"):
                # A second one quits only if nothing was begun meanwhile.
                self._ctrl_c_pressed = float("-inf")
            if not self.typed_keys.take(typed):
                return
            if self.screen_stack:
                self._focus_for(typed)
        await super().on_event(event)
        if isinstance(typed, events.Key) and not (is_new and typed.is_forwarded):
            self.typed_keys.done(typed)

    def _focus_for(self, typed: events.Key | events.Paste) -> None:
        """Focus the text box for what is meant for it."""
        screen = self.screen
        if isinstance(screen, ChoiceDialog) and screen.gives_way and is_text(typed):
            screen.dismiss(None)
        if self.screen is self.main:
            self.main.focus_for(typed)

    def on_key_handled(self, message: KeyHandled) -> None:
        """Handle what was typed behind a key."""
        self.typed_keys.done(message.key)

    def on_key_due(self, message: KeyDue) -> None:
        """Let what is typed from now on wait for a key."""
        self.typed_keys.hold(message.key)
        message.handle(message.key)

    async def action_stop_or_quit(self) -> None:
        """Copy the selected text, if any; else stop the answer, and quit the second time.

        Where there is no answer, the bar that finds a text is closed first, and a text in the box
        goes to the earlier messages.
        """
        if selected := self._selected_text:
            self.copier.copy(selected)
            return
        is_idle = not self.engine_thread.busy
        if is_idle and self.screen is self.main and self.main.search.bar.has_focus_within:
            self.main.search.bar.action_close()
            return
        self.main.action_stop()
        if is_idle and self.screen is self.main and self.main.unsent.set_aside():
            self.notify("kept: Up brings it back", timeout=4)
            return
        if monotonic() - self._ctrl_c_pressed < _QUIT_INTERVAL:
            self.exit()
        self._ctrl_c_pressed = monotonic()
        self.notify("ctrl+c again quits", timeout=_QUIT_INTERVAL)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works: nobody could continue what no shell has begun."""
        return action != "suspend_process" or is_job_of_shell()

    @property
    def _selected_text(self) -> str | None:
        focused = self.focused
        if isinstance(focused, TextArea) and focused.selected_text:
            return focused.selected_text
        if isinstance(focused, Input) and focused.selected_text:
            # The bar that finds a text selects the whole by itself.
            is_whole = focused.selected_text == focused.value
            if not (is_whole and self.main.search.bar.has_focus_within):
                return focused.selected_text
        return self.screen.get_selected_text()

    async def action_quit(self) -> None:
        """Quit, once what was typed before is in the text box, or sent."""
        if self.main.is_mounted:
            self.main.composer.call_later(self._exit_when_sent)
        else:
            self.exit()

    def _exit_when_sent(self) -> None:
        self.main.composer.send_waiting()
        self.main.call_later(self.exit)

    def action_command_palette(self) -> None:
        """Find a command by its name."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(Palette(id="--command-palette"))

    def search_themes(self) -> None:
        """Choose other colours."""
        self.push_screen(Palette([ThemeProvider], placeholder="Search for themes…"))

    def action_help(self) -> None:
        """Show what every key does."""
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(key_groups(), SCREEN_COMMANDS))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Every action that has a key, and the themes."""
        yield SystemCommand("Theme", "Other colours", self.action_change_theme)
        for node in self._action_owners(screen):
            for binding in as_bindings(node.BINDINGS):
                key = key_text(self, binding)
                about = f"{key}: {binding.tooltip}" if binding.tooltip else key
                run = partial(node.run_action, binding.action)
                yield SystemCommand(binding.description, about, run)

    def _action_owners(self, screen: Screen[Any]) -> Iterator[App[Any] | Screen[Any] | Widget]:
        """The parts of the app that have keys of their own now."""
        yield screen
        if isinstance(screen, ChatScreen):
            yield from (screen.view, screen.composer)
            if screen.view.focused_turn_view:
                yield screen.view.focused_turn_view
        yield self


def key_groups() -> KeyGroups:
    """All keys of the chat, by the place where they work; Textual's own keys come last."""
    owners: dict[str, type[DOMNode]] = {
        "Everywhere": ChatApp,
        "The conversation": ChatScreen,
        "The text box": Composer,
        "Finding a text": FindBar,
        "A message that has the focus": ConversationView,
        "Sessions": SessionsScreen,
        "Model and sampling": SettingsScreen,
        "System prompt and presets": SystemPromptScreen,
        "Going about": Screen,
        "Editing text": TextArea,
    }
    found = {title: owner.BINDINGS for title, owner in owners.items()}
    found["A message that has the focus"] = [*ConversationView.BINDINGS, *TurnView.BINDINGS]
    return found
