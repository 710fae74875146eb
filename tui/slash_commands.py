"""Slash commands: what can be typed in place of a message."""

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from localspec.drafters.spec import join_names
from localspec.errors import InvalidValueError, LocalspecError
from localspec.utils.similar_names import did_you_mean
from localspec_tui.screens.export_dialog import ask_export, export_session

if TYPE_CHECKING:
    from localspec_tui.screens.chat import ChatScreen

# What each command does, by how it is typed.
COMMANDS: Mapping[str, str] = {
    "/help": "List every key and command",
    "/clear": "Begin a new chat; this one is kept",
    "/continue": "Go on with an answer that was stopped or cut off",
    "/model NAME": "Load a model; without a name, open the settings",
    "/draft LIST": "Change the drafters (suffix, none, ...); without a list, open the settings",
    "/think on|off": "Switch the model's reasoning, where its chat template has a switch",
    "/save FILE": "Save the conversation; without a file name, ask for one",
    "/quit": "Quit",
}
_NAMES = [usage.split()[0] for usage in COMMANDS]


def is_command(text: str) -> bool:
    """Whether a text is meant as a command: one line that begins with one slash."""
    return text.startswith("/") and not text.startswith("//") and "\n" not in text.strip()


def as_message(text: str) -> str:
    """The message that a text stands for: two slashes at its beginning are one."""
    return text[1:] if text.startswith("//") else text


def as_typed(message: str) -> str:
    """The text to type for a message, which is no command: the inverse of `as_message`."""
    return f"/{message}" if is_command(message) or message.startswith("//") else message


def complete_command(line: str) -> str:
    """The rest of the command that a line begins with; empty if there is none."""
    name = next((name for name in _NAMES if name.startswith(line)), "") if line else ""
    return name[len(line) :]


def _words(argument: str) -> list[str]:
    """The words of an argument, separated by spaces or commas and quoted as in a shell.

    An existing file is one word. Raises InvalidValueError for a quote that is not closed.
    """
    if os.path.isfile(os.path.expanduser(argument)):
        return [argument]
    lexer = shlex.shlex(argument, posix=True)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t,", True, ""
    if os.name == "nt":
        # It separates the folders of a path.
        lexer.escape = ""
    try:
        return [*lexer]
    except ValueError as error:
        raise InvalidValueError(
            f"{argument!r} opens a quote and does not close it; close it, or put quotes around "
            "the whole name"
        ) from error


def _path(argument: str) -> str:
    """The one path or name that an argument is, with or without the quotes of a shell."""
    try:
        words = _words(argument)
    except InvalidValueError:
        return argument
    return words[0] if len(words) == 1 else argument


class SlashCommands:
    """Runs commands on the chat screen."""

    def __init__(self, screen: "ChatScreen") -> None:
        self._screen = screen
        self._actions: Mapping[str, Callable[[str], None]] = {
            "/help": lambda _: self._screen.chat.action_help(),
            "/clear": lambda _: self._screen.begin_new(),
            "/continue": lambda _: self._screen.action_continue_answer(),
            "/model": self._model,
            "/draft": self._draft,
            "/think": self._think,
            "/save": self._save,
            "/quit": lambda _: self._screen.chat.exit(),
        }

    def run(self, text: str) -> None:
        """Run a command. Raises InvalidValueError for an unknown one."""
        name, _, argument = text.strip().partition(" ")
        if name not in self._actions:
            hint = did_you_mean(name, _NAMES, most=1) or "/help lists them."
            raise InvalidValueError(
                f"there is no command {name}; {hint} To send it as a message, begin it with //"
            )
        self._actions[name](argument.strip())

    def _model(self, name: str) -> None:
        """Switch to a model. name: empty opens the settings."""
        if not name:
            self._screen.action_settings()
            return
        settings = replace(self._screen.chat.settings, model=_path(name))
        self._screen.chat.apply_settings(settings)

    def _draft(self, drafters: str) -> None:
        """Switch to these drafters. drafters: see `_words`; empty opens the settings."""
        if not drafters:
            self._screen.action_settings()
            return
        draft = join_names(_words(drafters))
        self._screen.chat.apply_settings(replace(self._screen.chat.settings, draft=draft))

    def _think(self, choice: str) -> None:
        """Switch reasoning on or off."""
        ready = self._screen.event_handler.ready
        if choice not in ("on", "off"):
            raise InvalidValueError(f"/think {choice}".rstrip() + ": say /think on or /think off")
        if ready is None:
            raise InvalidValueError("no model is loaded; choose one")
        if not ready.has_thinking_switch:
            raise InvalidValueError("the chat template of this model has no switch for reasoning")
        self._screen.chat.engine_thread.set_thinking(choice == "on")
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
            self._screen.view.note(f"written: {export_session(chat.archive, key, _path(path))}")
        except LocalspecError as error:
            raise InvalidValueError(str(error)) from error
