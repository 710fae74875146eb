"""Plain commands: what the slash commands do in a chat without a screen."""

from typing import TYPE_CHECKING

from localspec.conversation.media_spans import Content
from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError
from localspec.utils.format import ago
from localspec_tui.attachments import Attachments
from localspec_tui.chat_commands import ChatCommands
from localspec_tui.completion import objection, remark
from localspec_tui.editor import edit
from localspec_tui.labels import messages_text
from localspec_tui.message_history import recalled_turn
from localspec_tui.notes import KEY_LETTERS
from localspec_tui.plain.message_reader import END_KEYS
from localspec_tui.sampling_values import listed
from localspec_tui.slash_commands import as_message, commands_with
from localspec_tui.text_pattern import lines_with, pattern_of

if TYPE_CHECKING:
    from localspec_tui.plain.chat import PlainChat

_PLAIN_COMMANDS = commands_with(
    {
        "/sessions": "chat --plain --resume ID goes on with one",
        "/edit": "without one, edit that in $EDITOR",
        "/edit-answer": "without one, edit that in $EDITOR",
        "/system": "without a text, show it",
        "/set": "without a name, list them",
        "/quit": f"so does {END_KEYS}",
    }
)
_MOST_SESSIONS = 20
# Whose message it is, by its role.
_WHO = {"user": "you", "assistant": "answer"}
_TEXT_LINES = (
    'A line that ends in \\ goes on in the next one, and """ begins and ends a text of several.',
    "/edit, /edit-answer and /system take such texts, too.",
    "@path attaches a file, //text sends /text, and Ctrl-C stops an answer.",
)


def message_of(text: str, edited: Turn | None = None) -> Content:
    """The message that a text stands for, with the files that it attaches.

    edited: the turn that it replaces, whose images it may have. Raises InvalidValueError for a file
    that is missing or cannot be attached.
    """
    attachments = Attachments.of(edited)
    if problem := objection(text, attachments):
        raise InvalidValueError(problem)
    return attachments.attach(as_message(text))


class PlainCommands(ChatCommands):
    """Runs commands in a plain chat."""

    def __init__(self, chat: "PlainChat") -> None:
        self._plain, self._printer = chat, chat.printer
        super().__init__(
            chat,
            chat.ready,
            {
                "/help": lambda _: self._help(),
                "/clear": lambda _: chat.begin_new(),
                "/sessions": lambda _: self._sessions(),
                "/find": self._find,
                "/regenerate": lambda _: chat.engine_thread.regenerate(),
                "/continue": lambda _: chat.engine_thread.continue_answer(),
                "/quit": lambda _: chat.leave(),
            },
            {
                "/find": "say behind it what to look for",
                "/system": lambda: self.note(f"system prompt: {chat.settings.system or 'none'}"),
                "/model": "name a model behind it; localspec ls lists them",
                "/draft": "name drafters behind it, auto or none",
                "/set": self._list_settings,
                "/save": "name a new file behind it, such as chat.md",
            },
        )

    def run(self, text: str) -> None:
        super().run(text)
        self._plain.work()

    def note(self, line: str) -> None:
        self._printer.note(line)

    def change(self, turn: Turn, text: str) -> None:
        number, engine_thread = self._turns.index(turn), self._plain.engine_thread
        if turn.role == "assistant":
            text = text or self._edited(turn.content, "/edit-answer", "the last answer")
            engine_thread.edit_answer(number, text)
        else:
            text = text or self._edited(recalled_turn(turn), "/edit", "your last message")
            message = message_of(text, turn)
            if line := remark(text, Attachments.of(turn)):
                self.note(line)
            engine_thread.edit(number, message)

    def _edited(self, text: str, command: str, what: str) -> str:
        """A text as the user leaves it in an editor. Raises InvalidValueError without one."""
        if not self._plain.is_typed:
            raise InvalidValueError(f"{command}: say the new text of {what} behind it")
        edited, problem = edit(text)
        if problem:
            raise InvalidValueError(problem)
        return edited

    def _help(self) -> None:
        commands = {usage: what for usage, what in _PLAIN_COMMANDS.items() if usage != "/copy"}
        width = max(map(len, commands))
        for usage, what in commands.items():
            self._printer.lines(f"{usage:{width}}  {what}\n")
        for line in _TEXT_LINES:
            self._printer.lines(f"{line}\n")

    def _list_settings(self) -> None:
        chosen = self._plain.settings.current.sampling
        for line in listed(chosen, self.models_own):
            self._printer.lines(f"{line}\n")

    def _find(self, text: str) -> None:
        """List the lines that have a text, each with the number of its message."""
        pattern, found = pattern_of(text), list[str]()
        for number, turn in enumerate(self._turns, 1):
            parts = {"reasoning": turn.thought, _WHO.get(turn.role, turn.role): turn.content}
            for who, part in parts.items():
                found += [f"{number} {who}: {line}\n" for line in lines_with(pattern, part)]
        for line in found:
            self._printer.lines(line)
        if not found:
            self.note(f"{text} is nowhere in this chat")

    def _sessions(self) -> None:
        found = self._plain.archive.list(_MOST_SESSIONS)
        for each in found:
            when, count = ago(each.changed.timestamp()), messages_text(each.turns)
            key = each.key[:KEY_LETTERS]
            self._printer.lines(f"{key}  {each.title} ({count}, {when})\n")
        if not found:
            self.note("no conversation is kept yet")
