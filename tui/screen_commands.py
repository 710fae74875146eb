"""Screen commands: what the slash commands do on the chat screen."""

from typing import TYPE_CHECKING

from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError
from localspec_tui.chat_commands import ChatCommands
from localspec_tui.screens.export_dialog import ask_export
from localspec_tui.slash_commands import commands_with

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen

SCREEN_COMMANDS = commands_with(
    {
        "/sessions": "find, open, save and delete them there",
        "/find": "without one, ask for it",
        "/edit": "without one, edit that in the box",
        "/edit-answer": "without one, edit that in the box",
        "/system": "without a text, open it and the presets",
        "/model": "without a name, open the settings",
        "/draft": "without a list, open the settings",
        "/set": "without a name, open the settings",
        "/save": "without a file name, ask for one",
    }
)


class ScreenCommands(ChatCommands):
    """Runs commands on the chat screen."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen, chat = screen, screen.chat
        super().__init__(
            chat,
            screen.event_handler.ready,
            {
                "/help": lambda _: chat.action_help(),
                "/clear": lambda _: screen.switch.begin_new(),
                "/sessions": lambda _: screen.action_sessions(),
                "/find": screen.search.open,
                "/regenerate": lambda _: self._regenerate(),
                "/continue": lambda _: screen.action_continue_answer(),
                "/copy": lambda _: self._copy(),
                "/quit": lambda _: chat.exit(),
            },
            {
                "/system": screen.action_system,
                "/model": screen.action_settings,
                "/draft": screen.action_settings,
                "/set": screen.action_settings,
                "/save": lambda: ask_export(chat, chat.autosave.current),
            },
        )

    def note(self, line: str) -> None:
        self._screen.view.note(line)

    def change(self, turn: Turn, text: str) -> None:
        if text:
            self._screen.outbox.edit(turn, text)
        else:
            self._screen.unsent.begin_edit(turn)

    def _regenerate(self) -> None:
        self._question()
        self._screen.action_regenerate()

    def _copy(self) -> None:
        """Copy the last answer."""
        answers = [turn.content for turn in self._turns if turn.role == "assistant"]
        if not answers:
            raise InvalidValueError("there is no answer to copy yet")
        self._screen.chat.copier.copy(answers[-1])
