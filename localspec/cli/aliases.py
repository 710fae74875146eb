"""Aliases: other names of commands, as people know them from other programs; --help hides them."""

import sys

ALIASES = ("run", "list", "help")
# Where click's contexts keep the words of the command line, without an alias.
WORDS = "localspec.words"

RUN_HELP = """\
Usage: localspec run MODEL [PROMPT] [OPTIONS]

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
    """Return `generate` if there is a prompt or something on standard input, else `chat`."""
    options = next((at for at, word in enumerate(words) if word.startswith("-")), len(words))
    model, prompt = words[:options][:1], " ".join(words[1:options])
    if prompt or not (sys.stdin and sys.stdin.isatty()):
        named = ["-m", *model] if model else []
        return ["generate", *named, *([prompt] if prompt else []), *words[options:]]
    return ["chat", *model, *words[options:]]
