"""Aliases: other names of commands, as people know them from other programs; --help hides them."""

import os
import sys

from localspec.errors import InvalidValueError

ALIASES = ("run", "list", "help")
# Where click's contexts keep the words of the command line, without an alias.
WORDS = "localspec.words"

RUN_HELP = """\
Usage: localspec run [OPTIONS] MODEL [PROMPT]

  With a prompt: localspec generate -m MODEL PROMPT. Without one: localspec chat MODEL.
  Both show their options with --help.
"""


def without_alias(words: list[str]) -> list[str]:
    """Return the words of a command line with the command that an alias stands for."""
    match words:
        case ["list", *rest]:
            return ["ls", *rest]
        case ["help", "help", *_] | ["help"]:
            return ["--help"]
        case ["help", name, *_]:
            return without_alias([name, "--help"])
        case ["run", *rest] if not {"-h", "--help"} & {*rest}:
            return _run(rest)
    return words


def _run(words: list[str]) -> list[str]:
    """Return `generate` if there is a prompt or something on standard input, else `chat`.

    Options may stand anywhere.
    """
    typed, options = _sorted(words)
    is_named = any(word.startswith(("-m", "--model")) for word in options)
    model, prompt = ([], typed) if is_named else (typed[:1], typed[1:])
    if model and not prompt and " " in model[0] and not os.path.exists(model[0]):
        raise InvalidValueError(
            f"run is written as: run MODEL [PROMPT], and there is no model {model[0]!r:.60}; "
            "localspec generate PROMPT asks the usual one"
        )
    if not prompt and sys.stdin and sys.stdin.isatty():
        return ["chat", *model, *options]
    command = ["generate", *(["-m", *model] if model else [])]
    if prompt and prompt[0].startswith("-"):
        return [*command, *options, "--", " ".join(prompt)]
    return [*command, *([" ".join(prompt)] if prompt else []), *options]


def _sorted(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments, and the options with their values."""
    # Only `run` needs it.
    from localspec.cli.command_index import options_with_values

    with_values = options_with_values("generate") | options_with_values("chat")
    arguments, options, rest = list[str](), list[str](), iter(words)
    for word in rest:
        if word == "--":
            arguments += rest
        elif word.startswith("-") and word != "-":
            # A value may also be in the same word: -n5, --seed=3.
            value = [next(rest, None)] if word in with_values else []
            options += [word, *(each for each in value if each is not None)]
        else:
            arguments.append(word)
    return arguments, options
