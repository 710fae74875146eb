"""Slash commands: what can be typed in place of a message, in the chat and in the plain chat."""

import os
import shlex
from collections.abc import Mapping

from localspec.drafters.spec import join_names
from localspec.errors import InvalidValueError
from localspec.utils.paths import typed_path

# What each command does, by how it is typed.
COMMANDS: Mapping[str, str] = {
    "/help": "List every command and key",
    "/clear": "Begin a new chat; this one is kept",
    "/sessions": "List the conversations",
    "/find TEXT": "Find a text in this chat",
    "/regenerate": "Answer your last message again; this answer stays as a variant",
    "/continue": "Go on with an answer that was stopped or cut off",
    "/edit TEXT": "Answer another text in place of your last message",
    "/edit-answer TEXT": "Put another text in place of the last answer; /continue goes on from it",
    "/copy": "Copy the last answer",
    "/system TEXT": 'Set the system prompt from the next answer on, "" for none',
    "/model NAME": "Load another model",
    "/draft LIST": "Change the drafters (suffix, none, ...)",
    "/set NAME VALUE": "Set temperature, max_tokens, seed or another sampling value for this chat",
    "/think on|off|LEVEL": "Switch the model's reasoning, or say how much (low, medium, high), "
    "where its chat template can",
    "/drop-oldest on|off": "Drop the oldest messages where the context is full",
    "/save FILE": "Save the conversation as Markdown; .json has all variants",
    "/quit": "Quit",
}
# Commands whose argument is a text, which may have several lines.
TEXT_COMMANDS = ("/edit", "/edit-answer", "/system")
# Other names of commands, as other chats have them.
ALIASES = {"/?": "/help", "/new": "/clear", "/bye": "/quit", "/exit": "/quit"}


def commands_with(details: Mapping[str, str]) -> Mapping[str, str]:
    """COMMANDS, with what a chat does in its own way behind what all of them do."""
    return {
        usage: "; ".join(filter(None, (what, details.get(usage.split()[0]))))
        for usage, what in COMMANDS.items()
    }


def is_command(text: str) -> bool:
    """Whether a text is meant as a command: one line that begins with one slash, or with spaces
    and one slash.
    """
    return "\n" not in text.strip() and _slashes(text) == 1


def as_message(text: str) -> str:
    """The message that a text stands for: two slashes at its beginning are one.

    Spaces may stand before them in one line. In several, that is a comment of a program.
    """
    return text.replace("/", "", 1) if _is_doubled(text) else text


def as_typed(message: str) -> str:
    """The text to type for a message, which is no command: the inverse of `as_message`."""
    if is_command(message) or _is_doubled(message):
        return message.replace("/", "//", 1)
    return message


def _slashes(text: str) -> int:
    """How many slashes, at most two, a text begins with behind spaces."""
    begun = text.lstrip()
    return 2 if begun.startswith("//") else int(begun.startswith("/"))


def _is_doubled(text: str) -> bool:
    """Whether the first slash of a text is there so that it is no command."""
    is_line = "\n" not in text.strip()
    return text.startswith("//") or (is_line and _slashes(text) == 2)


def complete_command(line: str) -> str:
    """The rest of the command that a line begins with; empty if there is none."""
    names = (usage.split()[0] for usage in COMMANDS if line)
    name = next((name for name in names if name.startswith(line)), "")
    return name[len(line) :]


def _words(argument: str) -> list[str]:
    """The words of an argument, separated by spaces or commas and quoted as in a shell.

    An existing file is one word. Raises InvalidValueError for a quote that is not closed.
    """
    argument = typed_path(argument)
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


def path_of(argument: str) -> str:
    """The one path or name that an argument is, with or without the quotes of a shell."""
    try:
        words = _words(argument)
    except InvalidValueError:
        return typed_path(argument)
    return words[0] if len(words) == 1 else argument


def drafters_of(argument: str) -> str:
    """The drafters that an argument names, as `--draft` takes them; see `_words`."""
    return join_names(_words(argument))


def parse(text: str) -> tuple[str, str]:
    """The name of a command, and its argument, which may be empty. A text stays as it was typed."""
    name, _, argument = text.lstrip().partition(" ")
    name = name.rstrip()
    is_text = name in TEXT_COMMANDS and argument.strip()
    return ALIASES.get(name, name), argument if is_text else argument.strip()
