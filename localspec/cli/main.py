"""The command line: finds the command, and turns every error into one line and an exit code."""

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from localspec import __version__
from localspec.cli.aliases import ALIASES, RUN_HELP, WORDS, without_alias
from localspec.cli.foreign_options import command_here, name_here, refuse_foreign_options
from localspec.cli.output import (
    ReaderGone,
    abandon_stdout,
    show_log_as_notes,
    write_note,
    write_to_stderr,
    write_utf8_to_files,
)
from localspec.errors import InvalidValueError, LocalspecError, ModelNotFoundError
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.lack_of_memory import is_said_in
from localspec.utils.last_words import before_abort
from localspec.utils.option_names import option, typed_options
from localspec.utils.similar_names import did_you_mean

# Command -> its module and function, which are imported only when it is called; its --help line.
_COMMANDS = {
    "chat": ("localspec.cli.chat:chat", "Chat with a model in the terminal."),
    "chats": ("localspec.cli.chats:chats", "List, write and delete conversations of the chat."),
    "demo": ("localspec.cli.demo:demo", "Show on this machine what drafting gains; no download."),
    "pull": ("localspec.cli.pull:pull", "Fetch a model and its drafter from the Hub."),
    "generate": ("localspec.cli.generate:generate", "Generate text from a prompt."),
    "serve": ("localspec.cli.serve:serve", "Serve a model to other programs on this machine."),
    "worker": (
        "localspec.cli.worker:worker",
        "Lend this machine to localspec on another one (--rpc).",
    ),
    "pair": ("localspec.cli.pair:pair", "Check whether a drafter fits a target, or find one."),
    "convert": (
        "localspec.cli.convert:convert_command",
        "Convert a published head to a GGUF for one target.",
    ),
    "trim": (
        "localspec.cli.trim:trim_command",
        "Cut a head's vocabulary to the tokens that matter.",
    ),
    "train": (
        "localspec.cli.train:train_command",
        "Train a drafter for your own model, on this machine.",
    ),
    "ls": ("localspec.cli.ls:ls", "List the models on this disk, and which drafters fit them."),
    "show": ("localspec.cli.show:show", "Show a model's shape, vocabulary and template."),
    "rm": ("localspec.cli.rm:rm", "Delete models that were fetched from the Hub."),
    "bench": ("localspec.cli.bench:bench", "Measure plain decoding against each drafter."),
    "audit": (
        "localspec.cli.audit:audit_command",
        "Check a text against its seed, token by token.",
    ),
    "plan": ("localspec.cli.plan:plan", "Predict what drafting will gain."),
    "config": ("localspec.cli.config:config", "Show and change the defaults of options."),
    "doctor": ("localspec.cli.doctor:doctor", "Check this installation and this machine."),
    "forget": ("localspec.cli.forget:forget", "Delete stored texts and caches."),
    "completion": (
        "localspec.cli.completion:completion",
        "Print a completion script for your shell.",
    ),
}


# What a word too many may have meant, by command.
_WORD_TOO_MANY = {
    "generate": "put the prompt in quotes",
    "chat": "localspec run MODEL PROMPT answers a prompt",
    "bench": "-m names the model",
    "plan": "-m names the model",
    "audit": "-m names the model",
    "train": "train one model after the other",
    "demo": "localspec bench -m measures a model of yours",
    "ls": "localspec show describes one model",
    "pull": "pull models one after the other",
}


# Options that take the ID of a conversation.
_OF_CONVERSATIONS = {"--resume", "--export", "--delete"}


class Commands(click.Group):
    """A group that imports a command when it is called, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = args if ctx.resilient_parsing else without_alias(args)
        if words[:1] == ["run"] and not ctx.resilient_parsing:
            click.echo(RUN_HELP, nl=False)
            ctx.exit()
        ctx.meta[WORDS] = words
        return super().parse_args(ctx, words)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            known = [*_COMMANDS, *ALIASES]
            if not name.lower().startswith("chats"):  # chat is meant, which is as much like it
                known.remove("chats")
            hint = command_here(name) or did_you_mean(name, known)
            ctx.fail(f"No such command {name!r}" + (f"; {hint}" if hint else ""))
        # Help must be there also where the settings cannot be read.
        if name in _COMMANDS and not {"-h", "--help"} & {*args}:
            from localspec.cli.settings import CommandDefaults, Settings

            ctx.default_map = {name: CommandDefaults(name, Settings())}
        found = super().resolve_command(ctx, args)
        if found[1] is not None and not ctx.resilient_parsing:
            refuse_foreign_options(click.Context(found[1], ctx, name), args[1:])
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # Click does not say to which command an option without its value belongs.
            error.ctx = error.ctx or click.Context(self, ctx, ctx.invoked_subcommand)
            raise
        except (InvalidValueError, ModelNotFoundError) as error:
            defaults = (ctx.default_map or {}).get(ctx.invoked_subcommand or "")
            if defaults is not None:
                defaults.raise_with_origin(error)
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if ctx.resilient_parsing:
            return _indexed(cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        location, _ = _COMMANDS[cmd_name]
        module, _, name = location.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


def _indexed(name: str) -> click.Command | None:
    """Return a command of which only a word is completed, by any of its names."""
    # A command's own module may import the engine, and the index is needed for nothing else.
    from localspec.cli.command_index import indexed_command, indexed_run

    if name == "run":
        return indexed_run()
    name = "ls" if name == "list" else name
    return indexed_command(name, _COMMANDS[name][1]) if name in _COMMANDS else None


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="localspec")
def localspec() -> None:
    """Speculative decoding for local GGUF models: faster, with the same text.

    A small drafter guesses some tokens ahead, and your model, the target, checks all of them in one
    pass. To see it on this machine, without a download: `localspec demo`, then `localspec chat`.
    """


def main() -> None:
    """Run the command line and exit."""
    if "_LOCALSPEC_COMPLETE" in os.environ:
        # It registers localspec's way of splitting words with click.
        import_module("localspec.cli.shell_completion")
    write_utf8_to_files()
    show_log_as_notes()
    with before_abort(_explain_abort):
        sys.exit(explaining_errors(lambda: localspec(prog_name="localspec", standalone_mode=False)))


def explaining_errors(work: Callable[[], int | None]) -> int:
    """Do the work of a command; return its exit code. An error becomes one line on stderr."""
    with typed_options():
        return _explaining_errors(work)


def _explaining_errors(work: Callable[[], int | None]) -> int:
    try:
        return work() or 0
    except ReaderGone:
        abandon_stdout()
        return 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.UsageError as error:
        return _explain_usage(error)
    except Exception as error:
        if os.environ.get("LOCALSPEC_DEBUG") == "1":
            raise
        return _explain(error)


def _explain_usage(error: click.UsageError) -> int:
    """Write one line to stderr, or the help for a bare `localspec`; return the exit code."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        write_to_stderr(f"{error.format_message()}\n")
    else:
        command = error.ctx.command_path if error.ctx else "localspec"
        hint = _usage_hint(error)
        # Click's own suggestions are worse than none: --help for --temp.
        unknown = isinstance(error, click.NoSuchOption)
        what = (error.message if unknown else error.format_message()).rstrip(".")
        write_note(f"error: {what}{hint and '; '}{hint} (see {command} --help)")
    return error.exit_code


def _usage_hint(error: click.UsageError) -> str:
    """Return what the user may have meant; empty where that is unknown."""
    if error.ctx is None:
        return ""
    if isinstance(error, click.NoSuchOption):
        return name_here(error.ctx, error.option_name)
    if isinstance(error, click.BadOptionUsage) and error.option_name in _OF_CONVERSATIONS:
        return "localspec chats lists the conversations, and localspec chat -c opens the latest"
    if error.message.startswith("Got unexpected extra"):
        return _WORD_TOO_MANY.get(error.ctx.info_name or "", "")
    return ""


def _explain(error: Exception) -> int:
    """Write one line to stderr; return the exit code."""
    if isinstance(error, LocalspecError):
        message, code = _as_options(error), error.exit_code
    elif isinstance(error, OSError) and error.strerror:
        message, code = _of_the_system(error), LocalspecError.exit_code
    else:
        message, code = f"unexpected {type(error).__name__}: {error}", LocalspecError.exit_code
        message += " (LOCALSPEC_DEBUG=1 shows where)"
    line = " ".join(message.split())
    write_note(f"error: {line}")
    return code


def _explain_abort(reason: str) -> None:
    """Write one line to stderr, and end the process, which llama.cpp would end with a core dump."""
    if os.environ.get("LOCALSPEC_DEBUG") == "1":
        write_note(f"error: llama.cpp ends the process: {reason}")
        return
    smaller = "pass a smaller --ctx or --gpu-layers; " if is_said_in(reason) else ""
    more = "LOCALSPEC_DEBUG=1 shows more"
    write_note(f"error: llama.cpp ended the process: {reason}; {smaller}{more}")
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(LocalspecError.exit_code)


def _of_the_system(error: OSError) -> str:
    """Return the message for what the system refuses: a file, or what was written to stdout."""
    if error.filename is not None:
        return f"{str(error.filename)!r:.120}: {error.strerror}"
    if error.errno not in (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT):
        return f"{error.strerror} (LOCALSPEC_DEBUG=1 shows where)"
    # Files are written by names: this was the output.
    abandon_stdout()
    return f"standard output cannot be written: {error.strerror}; send it elsewhere"


def _as_options(error: LocalspecError) -> str:
    """Return the message, with the name of a setting replaced by its option."""
    message = str(error)
    setting, _, rest = message.partition(" ")
    if isinstance(error, InvalidValueError) and rest.startswith("is "):
        from localspec.cli.command_index import all_options

        if option(setting) in all_options():
            return f"{option(setting)} {rest}"
    return message
