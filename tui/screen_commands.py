"""Screen commands: what the slash commands do on the chat screen."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from localspec.errors import InvalidValueError, LocalspecError
from localspec_tui.export import export_session
from localspec_tui.screens.export_dialog import ask_export
from localspec_tui.slash_commands import drafters_of, path_of, run_command, wants_thinking

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen


class SlashCommands:
    """Runs commands on the chat screen."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self._actions: Mapping[str, Callable[[str], None]] = {
            "/help": lambda _: self._screen.chat.action_help(),
            "/clear": lambda _: self._screen.switch.begin_new(),
            "/continue": lambda _: self._screen.action_continue_answer(),
            "/model": self._model,
            "/draft": self._draft,
            "/think": self._think,
            "/save": self._save,
            "/quit": lambda _: self._screen.chat.exit(),
        }

    def run(self, text: str) -> None:
        """Run a command. Raises InvalidValueError for an unknown one."""
        run_command(text, self._actions)

    def _model(self, name: str) -> None:
        """Switch to a model. name: empty opens the settings."""
        if not name:
            self._screen.action_settings()
            return
        settings = replace(self._screen.chat.settings, model=path_of(name))
        self._screen.chat.apply_settings(settings)

    def _draft(self, drafters: str) -> None:
        """Switch to these drafters. drafters: empty opens the settings."""
        if not drafters:
            self._screen.action_settings()
            return
        settings = replace(self._screen.chat.settings, draft=drafters_of(drafters))
        self._screen.chat.apply_settings(settings)

    def _think(self, choice: str) -> None:
        """Switch reasoning on or off."""
        on = wants_thinking(choice, self._screen.event_handler.ready)
        self._screen.chat.engine_thread.set_thinking(on)
        self._screen.view.note(f"reasoning is {choice} from the next answer on")

    def _save(self, path: str) -> None:
        """Save the conversation. path: empty asks for one."""
        chat = self._screen.chat
        key = chat.autosave.key
        if key is None:
            raise InvalidValueError("there is nothing to save yet; send a message first")
        if not path:
            ask_export(chat, chat.archive, key)
            return
        try:
            self._screen.view.note(f"written: {export_session(chat.archive, key, path_of(path))}")
        except LocalspecError as error:
            raise InvalidValueError(str(error)) from error
