"""Completing: what a shell is answered when somebody types half a word and presses Tab."""

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

from localspec.errors import LocalspecError

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]
# Bash takes these for the ends of words.
_BREAKS = {":", "="}


def words(fixed: Sequence[str]) -> Complete:
    """What completes to one of a few words."""
    return lambda _context, _parameter, typed: [
        CompletionItem(word) for word in fixed if word.startswith(typed)
    ]


def files(_context: click.Context, _parameter: click.Parameter, typed: str) -> Items:
    """What completes to a file, as the shell completes files."""
    return [CompletionItem(typed, type="file")]


def models(fixed: Sequence[str]) -> Complete:
    """What completes to a model, or one of a few words; to several of them, after a comma."""

    def complete(_context: click.Context, _parameter: click.Parameter, typed: str) -> Items:
        before, comma, typed = typed.rpartition(",") if fixed else ("", "", typed)
        listed = [*((word, None) for word in fixed), *_models(), *_paths(typed)]
        found = {
            name: CompletionItem(before + comma + name, help=about)
            for name, about in listed
            if name.startswith(typed)
        }
        if all(name.endswith("/") for name in found):
            # Folders at most: the shell knows better how to go on in them.
            return [CompletionItem(typed, type="file")]
        return list(found.values())

    return complete


def _models() -> list[tuple[str, str | None]]:
    """The pairs that are known and the models on this disk, by name, with what they are."""
    try:
        from localspec.hub import store
        from localspec.models import registry

        pairs = [(pair.name, pair.note) for pair in registry.pairs().values()]
        # Files outside of the Hub's cache are named by their paths, which `_paths` knows.
        stored = [(model.name, None) for model in store.models()]
    except (LocalspecError, ImportError, OSError, ValueError):
        # Somebody is typing: what is wrong, the command will say.
        return []
    return [*pairs, *stored]


def _paths(typed: str) -> Iterator[tuple[str, None]]:
    """GGUF files and folders, written as the typed path is; hidden ones after a dot."""
    folder, slash, start = typed.rpartition("/")
    try:
        for entry in sorted(Path(folder + slash or ".").expanduser().iterdir()):
            # One that would have to be quoted is left to the shell.
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
    """Bash, which takes `user/repo:Q8_0` for three words, and wants to hear the last of them."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the one that is typed, and what is typed of that."""
        given = split_arg_string(os.environ["COMP_WORDS"])
        current = int(os.environ["COMP_CWORD"])
        last = given[current] if current < len(given) else ""
        *before, typed = _whole([*given[:current], last])
        self._said = typed.removesuffix("" if last in _BREAKS else last)
        return before[1:], typed

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Without what bash takes for words that are complete."""
        said = self._said.rpartition("=")[2]
        return f"{item.type},{item.value.removeprefix(said)}"


def _whole(given: Sequence[str]) -> list[str]:
    """Words as they were typed, from bash's pieces."""
    found: list[str] = []
    for before, piece in zip(["", *given], given, strict=False):
        if found and (piece in _BREAKS or before in _BREAKS):
            found[-1] += piece
        else:
            found.append(piece)
    return found


class _AfterOption(ShellComplete):
    """Shells that put what they are told in place of all of `--draft=suf`."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words before the one that is typed, and what is typed of that."""
        before, typed = super().get_completion_args()
        option, equals, _ = typed.partition("=")
        self._option = option + equals if equals and option.startswith("-") else ""
        return before, typed

    def format_completion(self, item: CompletionItem[str]) -> str:
        """With the option."""
        if item.type == "plain":
            item = CompletionItem(self._option + item.value, help=item.help)
        return super().format_completion(item)


class Zsh(_AfterOption, ZshComplete):
    """Zsh."""


class Fish(_AfterOption, FishComplete):
    """Fish; here a name, and what is said of it, may hold a comma."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )


SHELLS: Mapping[str, type[ShellComplete]] = {
    shell.name: add_completion_class(shell) for shell in (Bash, Zsh, Fish)
}
