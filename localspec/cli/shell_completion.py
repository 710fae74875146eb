"""Completion: the answers to a shell when the user types a part of a word and presses Tab."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from localspec.models.model_names import model_names

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]
# Bash ends a word at these.
_BREAKS = {":", "="}


def words(fixed: Sequence[str]) -> Complete:
    """Return a completion to one of `fixed`."""
    return lambda _context, _parameter, typed: [
        CompletionItem(word) for word in fixed if word.startswith(typed)
    ]


def word_list(fixed: Sequence[str]) -> Complete:
    """Return a completion of the last part of a list with commas to one of `fixed`."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> Items:
        before, comma, typed = typed.rpartition(",")
        return [CompletionItem(before + comma + word) for word in fixed if word.startswith(typed)]

    return complete


def words_or_files(fixed: Sequence[str]) -> Complete:
    """Return a completion to one of `fixed`; where none fits, the shell completes a file's name."""
    complete = words(fixed)
    return lambda context, parameter, typed: (
        complete(context, parameter, typed) or [CompletionItem(typed, type="file")]
    )


def models(fixed: Sequence[str]) -> Complete:
    """Return a completion to the name of a model or one of `fixed`.

    If there are fixed words, the value is a list with commas, and its last part is completed.
    """

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> Items:
        before, comma, typed = typed.rpartition(",") if fixed else ("", "", typed)
        names = [*((word, None) for word in fixed), *model_names(), *_paths(typed)]
        found = {
            name: CompletionItem(before + comma + name, help=note)
            for name, note in names
            if name.startswith(typed)
        }
        if all(name.endswith("/") for name in found):
            # Nothing but folders: the shell completes better inside them.
            return [CompletionItem(typed, type="file")]
        return list(found.values())

    return complete


def _paths(typed: str) -> Iterator[tuple[str, None]]:
    """Yield the GGUF files and folders that continue a path; hidden ones after a dot only."""
    folder, slash, start = typed.rpartition("/")
    try:
        for entry in sorted(Path(folder + slash or ".").expanduser().iterdir()):
            # A name that needs quotes is left to the shell.
            if entry.name.startswith(start or entry.name.lstrip(".")) and _is_plain(entry.name):
                if entry.is_dir():
                    yield f"{folder}{slash}{entry.name}/", None
                elif entry.suffix.lower() == ".gguf":
                    yield f"{folder}{slash}{entry.name}", None
    except (OSError, RuntimeError):
        return


def _is_plain(name: str) -> bool:
    return shlex.quote(name) == name


class Bash(BashComplete):
    """Bash, which splits `user/repo:Q8_0` into three words and expects the last of them."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is typed, and the typed part of that."""
        given = split_arg_string(os.environ["COMP_WORDS"])
        current = int(os.environ["COMP_CWORD"])
        last = given[current] if current < len(given) else ""
        *before, typed = _rejoined([*given[:current], last])
        self._given = typed.removesuffix("" if last in _BREAKS else last)
        return before[1:], typed

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return an item without the words that bash regards as complete."""
        given = self._given.rpartition("=")[2]
        return f"{item.type},{item.value.removeprefix(given)}"


def _rejoined(pieces: Sequence[str]) -> list[str]:
    """Return the words as they were typed, from the pieces that bash gives."""
    found: list[str] = []
    for before, piece in zip(["", *pieces], pieces, strict=False):
        if found and (piece in _BREAKS or before in _BREAKS):
            found[-1] += piece
        else:
            found.append(piece)
    return found


class _AfterOption(ShellComplete):
    """A shell that replaces all of `--draft=suf` by the answer, not `suf` alone."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is typed, and the typed part of that."""
        before, typed = super().get_completion_args()
        option, equals, _ = typed.partition("=")
        self._option = option + equals if equals and option.startswith("-") else ""
        return before, typed

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return an item with the option before it."""
        if item.type == "plain":
            item = CompletionItem(self._option + item.value, help=item.help)
        return super().format_completion(item)


class Zsh(_AfterOption, ZshComplete):
    """Zsh."""


class Fish(_AfterOption, FishComplete):
    """Fish; unlike in click's script, names and their notes may contain commas."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )


SHELLS: Mapping[str, type[ShellComplete]] = {
    shell.name: add_completion_class(shell) for shell in (Bash, Zsh, Fish)
}
