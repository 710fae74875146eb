"""Slash commands: what can be typed in place of a message."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from localspec.conversation.turns import Turn
from localspec.conversation.window import last_question
from localspec.drafters.spec import join_names
from localspec.errors import InvalidValueError
from localspec.utils.paths import typed_path
from localspec.utils.similar_names import did_you_mean
from localspec_tui.engine_events import ModelReady

# What each command does, by how it is typed.
COMMANDS: Mapping[str, str] = {
    "/help": "List every key and command",
    "/clear": "Begin a new chat; this one is kept",
    "/sessions": "Find, open, save and delete conversations",
    "/find TEXT": "Find a text in this chat; without one, ask for it",
    "/regenerate": "Answer your last message again; this answer stays as a variant",
    "/continue": "Go on with an answer that was stopped or cut off",
    "/edit TEXT": "Answer another text in place of your last message; without one, edit that in "
    "the box",
    "/edit-answer TEXT": "Put another text in place of the last answer, to go on from; without "
    "one, edit it in the box",
    "/copy": "Copy the last answer",
    "/system TEXT": 'Set the system prompt, "" for none; without a text, open it and the presets',
    "/model NAME": "Load a model; without a name, open the settings",
    "/draft LIST": "Change the drafters (suffix, none, ...); without a list, open the settings",
    "/think on|off": "Switch the model's reasoning, where its chat template has a switch",
    "/drop-oldest on|off": "Drop the oldest messages where the context is full",
    "/save FILE": "Save the conversation; without a file name, ask for one",
    "/quit": "Quit",
}
# Commands whose argument is a text, which may have several lines.
TEXT_COMMANDS = ("/edit", "/edit-answer", "/system")
# Other names of commands, as other chats have them.
_ALIASES = {"/?": "/help", "/new": "/clear", "/bye": "/quit", "/exit": "/quit"}


def command_names(usages: Iterable[str]) -> list[str]:
    """The names of commands, without what follows them."""
    return [usage.split()[0] for usage in usages]


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
    names = command_names(COMMANDS) if line else ()
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


def is_on(command: str, choice: str) -> bool:
    """Whether the argument of a command is "on". Raises InvalidValueError if it is not "off"."""
    if choice not in ("on", "off"):
        raise InvalidValueError(
            f"{command} {choice}".rstrip() + f": say {command} on or {command} off"
        )
    return choice == "on"


def question_of(turns: Sequence[Turn]) -> int:
    """The number of the last message. Raises InvalidValueError if there is none."""
    if not any(turn.role == "user" for turn in turns):
        raise InvalidValueError("there is no message yet; send one first")
    return last_question(turns)


def answer_of(turns: Sequence[Turn]) -> int:
    """The number of the last answer. Raises InvalidValueError if there is none that has ended."""
    numbers = (n for n in range(len(turns) - 1, -1, -1) if turns[n].role == "assistant")
    number = next(numbers, None)
    if number is None:
        raise InvalidValueError("there is no answer yet; send a message first")
    if turns[number].stop_reason is None:
        raise InvalidValueError("the answer is still being written; stop it first")
    return number


def system_of(text: str) -> str | None:
    """The system prompt that `/system` names; None for none, as a pair of quotes."""
    return None if text.strip() in ('""', "''") else text


def full_context_note(*, drop: bool) -> str:
    """What happens from now on where the context is full."""
    what = "drops the oldest messages" if drop else "ends the answer"
    return f"a full context {what} from now on"


def wants_thinking(choice: str, ready: ModelReady | None) -> bool:
    """Whether `/think` asks for reasoning. Raises InvalidValueError where it cannot be switched.

    ready: the loaded model, if there is one.
    """
    on = is_on("/think", choice)
    if ready is None:
        raise InvalidValueError("no model is loaded; choose one")
    if not ready.has_thinking_switch:
        raise InvalidValueError("the chat template of this model has no switch for reasoning")
    return on


def run_command(text: str, actions: Mapping[str, Callable[[str], None]]) -> None:
    """Run a command. Raises InvalidValueError for an unknown one.

    actions: what each command does with its argument, which may be empty, by the command's name. A
    text as argument is given to the letter.
    """
    name, _, argument = text.lstrip().partition(" ")
    name = name.rstrip()
    action = actions.get(_ALIASES.get(name, name))
    if action is None:
        hint = did_you_mean(name, [*actions, *_ALIASES], most=1) or "/help lists them."
        raise InvalidValueError(
            f"there is no command {name}; {hint} To send it as a message, begin it with //"
        )
    is_text = name in TEXT_COMMANDS and bool(argument.strip())
    action(argument if is_text else argument.strip())
