"""Plain commands: what the slash commands do in a chat without a screen."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError
from localspec.utils.format import ago
from localspec_tui.attachments import attach_files
from localspec_tui.completion import objection
from localspec_tui.editor import edit
from localspec_tui.export import export_session
from localspec_tui.labels import absolute, absolute_drafters, messages_text
from localspec_tui.message_history import recalled
from localspec_tui.notes import KEY_LETTERS
from localspec_tui.plain.message_reader import END_KEYS
from localspec_tui.session_settings import with_thinking
from localspec_tui.slash_commands import (
    COMMANDS,
    answer_of,
    as_message,
    drafters_of,
    full_context_note,
    is_on,
    path_of,
    question_of,
    run_command,
    system_of,
    wants_thinking,
)
from localspec_tui.text_pattern import lines_with, pattern_of

if TYPE_CHECKING:
    from localspec_tui.plain.chat import PlainChat

# What each command does, by how it is typed.
PLAIN_COMMANDS: Mapping[str, str] = {
    "/help": "List these commands",
    "/new": "Begin a new chat; this one is kept",
    "/regenerate": "Answer your last message again",
    "/continue": COMMANDS["/continue"],
    "/edit TEXT": "Put another text in place of your last message, and answer that; without one, "
    "edit it in $EDITOR",
    "/edit-answer TEXT": "Put another text in place of the last answer; /continue goes on from it",
    "/system TEXT": 'Set the system prompt from the next answer on; "" for none',
    "/think on|off": COMMANDS["/think on|off"],
    "/model NAME": "Load another model",
    "/draft LIST": "Change the drafters (suffix, none, ...)",
    "/drop-oldest on|off": "Drop the oldest messages where the context is full",
    "/find TEXT": "List the lines of this chat that have a text",
    "/sessions": "List the latest conversations; chat --plain --resume ID goes on with one",
    "/save FILE": "Save the conversation as Markdown; .json has all variants",
    "/quit": f"Quit, as {END_KEYS} does",
}
_MOST_SESSIONS = 20
# Whose message it is, by its role.
_WHO = {"user": "you", "assistant": "answer"}
_TEXT_LINES = (
    'A line that ends in \\ goes on in the next one, and """ begins and ends a text of several.',
    "/edit, /edit-answer and /system take such texts, too.",
    "@path attaches a text file, //text sends /text, and Ctrl-C stops an answer.",
)


def message_of(text: str) -> str:
    """The message that a text stands for, with the files that it attaches.

    Raises InvalidValueError for a file that is missing or cannot be attached.
    """
    if problem := objection(text):
        raise InvalidValueError(problem)
    message, _ = attach_files(as_message(text), Path())
    return message


class PlainCommands:
    """Runs commands in a plain chat."""

    def __init__(self, chat: "PlainChat") -> None:
        self._chat = chat
        self._actions: Mapping[str, Callable[[str], None]] = {
            "/help": lambda _: self._help(),
            "/clear": lambda _: self._chat.begin_new(),
            "/regenerate": lambda _: self._regenerate(),
            "/continue": lambda _: self._continue(),
            "/edit": self._edit,
            "/edit-answer": self._edit_answer,
            "/system": self._system,
            "/think": self._think,
            "/model": self._model,
            "/draft": self._draft,
            "/drop-oldest": self._drop_oldest,
            "/find": self._find,
            "/sessions": lambda _: self._sessions(),
            "/save": self._save,
            "/quit": lambda _: self._chat.leave(),
        }

    def run(self, text: str) -> None:
        """Run a command. Raises LocalspecError if that is not possible."""
        run_command(text, self._actions)

    def _help(self) -> None:
        width = max(map(len, PLAIN_COMMANDS))
        for usage, what in PLAIN_COMMANDS.items():
            self._chat.printer.lines(f"{usage:{width}}  {what}\n")
        for line in _TEXT_LINES:
            self._chat.printer.lines(f"{line}\n")

    def _regenerate(self) -> None:
        self._chat.engine_thread.regenerate()
        self._chat.work()

    def _continue(self) -> None:
        self._chat.engine_thread.continue_answer()
        self._chat.work()

    def _edit(self, text: str) -> None:
        """Answer another text in place of the last question."""
        turns = self._turns
        question = question_of(turns)
        text = text or self._edited(recalled(turns[question].content), "/edit", "your last message")
        self._chat.engine_thread.edit(question, message_of(text))
        self._chat.work()

    def _edit_answer(self, text: str) -> None:
        """Put another text in place of the last answer."""
        turns = self._turns
        answer = answer_of(turns)
        if text:
            text = as_message(text)
        else:
            text = self._edited(turns[answer].content, "/edit-answer", "the last answer")
        self._chat.engine_thread.edit_answer(answer, text)
        if self._chat.work():
            self._chat.printer.note("edited: /continue goes on from its end, or send a message")

    @property
    def _turns(self) -> Sequence[Turn]:
        session = self._chat.engine_thread.session
        return session.turns if session else []

    def _edited(self, text: str, command: str, what: str) -> str:
        """A text as the user leaves it in an editor. Raises InvalidValueError without one."""
        if not self._chat.is_typed:
            raise InvalidValueError(f"{command}: say the new text of {what} behind it")
        edited, problem = edit(text)
        if problem:
            raise InvalidValueError(problem)
        return edited

    def _system(self, text: str) -> None:
        """Set the system prompt. text: empty shows it."""
        if text:
            system = system_of(text)
            self._chat.system = system and as_message(system)
            self._chat.engine_thread.set_system(self._chat.system)
            self._chat.work()
        self._chat.printer.note(f"system prompt: {self._chat.system or 'none'}")

    def _think(self, choice: str) -> None:
        on = wants_thinking(choice, self._chat.ready)
        options = with_thinking(self._chat.settings.session_options, on)
        self._chat.settings = replace(self._chat.settings, session_options=options)
        self._chat.engine_thread.set_thinking(on)
        self._chat.work()
        self._chat.printer.note(f"reasoning is {choice} from the next answer on")

    def _model(self, name: str) -> None:
        if not name:
            raise InvalidValueError("/model: name a model behind it; localspec ls lists them")
        self._chat.engine_thread.switch(absolute(path_of(name)))
        self._chat.work()

    def _draft(self, drafters: str) -> None:
        if not drafters:
            raise InvalidValueError("/draft: name drafters behind it, auto or none")
        draft = absolute_drafters(drafters_of(drafters))
        self._chat.engine_thread.switch(draft=draft)
        if self._chat.work():
            self._chat.settings = replace(self._chat.settings, draft=draft)

    def _drop_oldest(self, choice: str) -> None:
        """Choose what happens where the context is full."""
        drop = is_on("/drop-oldest", choice)
        self._chat.settings = replace(self._chat.settings, drop_oldest=drop)
        self._chat.engine_thread.switch(when_full=self._chat.settings.when_full)
        self._chat.work()
        self._chat.printer.note(full_context_note(drop=drop))

    def _find(self, text: str) -> None:
        """List the lines that have a text, each with the number of its message."""
        if not text:
            raise InvalidValueError("/find: say behind it what to look for")
        pattern, found = pattern_of(text), list[str]()
        for number, turn in enumerate(self._turns, 1):
            parts = {"reasoning": turn.thought, _WHO.get(turn.role, turn.role): turn.content}
            for who, part in parts.items():
                found += [f"{number} {who}: {line}\n" for line in lines_with(pattern, part)]
        for line in found:
            self._chat.printer.lines(line)
        if not found:
            self._chat.printer.note(f"{text} is nowhere in this chat")

    def _sessions(self) -> None:
        found = self._chat.archive.list(_MOST_SESSIONS)
        for each in found:
            when, count = ago(each.changed.timestamp()), messages_text(each.turns)
            key = each.key[:KEY_LETTERS]
            self._chat.printer.lines(f"{key}  {each.title} ({count}, {when})\n")
        if not found:
            self._chat.printer.note("no conversation is kept yet")

    def _save(self, path: str) -> None:
        session = self._chat.autosave.current
        if not path:
            raise InvalidValueError("/save: name a new file behind it, such as chat.md")
        file = export_session(session, path_of(path))
        self._chat.printer.note(f"written: {file}")
