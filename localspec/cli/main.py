"""The command line: finds the command, and turns every error into one line and an exit code."""

import os
import sys
from importlib import import_module

import click

from localspec import __version__
from localspec.cli.interrupt import INTERRUPTED
from localspec.cli.output import ReaderGone, abandon_stdout, show_log_as_notes, write_note
from localspec.errors import InvalidValueError, LocalspecError

# Command -> its module and function, which are imported only when it is called; its --help line.
_COMMANDS = {
    "chat": ("localspec.cli.chat:chat", "Talk with a model, in the terminal."),
    "demo": ("localspec.cli.demo:demo", "Watch drafting pay, with nothing downloaded."),
    "pull": ("localspec.cli.pull:pull", "Fetch a model and its drafter from the Hub."),
    "generate": ("localspec.cli.generate:generate", "Generate text; shows what drafting gained."),
    "pair": ("localspec.cli.pair:pair", "Check whether a drafter fits a target, or find one."),
    "ls": ("localspec.cli.ls:ls", "List the models on this disk, and which drafters fit them."),
    "show": ("localspec.cli.show:show", "Show what a model is: shape, vocabulary, template."),
    "rm": ("localspec.cli.rm:rm", "Delete models fetched from the Hub, and free their bytes."),
    "bench": ("localspec.cli.bench:bench", "Measure plain decoding against each drafter."),
    "audit": ("localspec.cli.audit:audit_command", "Check that a text is what its seed gives."),
    "plan": ("localspec.cli.plan:plan", "Predict what drafting gains; `auto` starts from it."),
    "doctor": ("localspec.cli.doctor:doctor", "Check this installation and this machine."),
    "forget": ("localspec.cli.forget:forget", "Delete the texts and the caches that were kept."),
    "completion": ("localspec.cli.completion:completion", "Complete words in your shell."),
}


class Commands(click.Group):
    """A group that imports a command when it is called, so that --help is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        location, summary = _COMMANDS[cmd_name]
        if ctx.resilient_parsing:
            # Only a word is completed: the command's own module may import the engine, and the
            # index is needed for nothing else.
            from localspec.cli.command_index import indexed_command

            return indexed_command(cmd_name, summary)
        module, _, name = location.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="localspec")
def localspec() -> None:
    """Speculative decoding for local GGUF models: faster, with the same text."""


def main() -> None:
    """Run the command line and exit."""
    if "_LOCALSPEC_COMPLETE" in os.environ:
        # It registers localspec's way of splitting words with click.
        import_module("localspec.cli.shell_completion")
    show_log_as_notes()
    try:
        code = localspec(prog_name="localspec", standalone_mode=False) or 0
    except ReaderGone:
        abandon_stdout()
        code = 0
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except click.UsageError as error:
        code = _explain_usage(error)
    except Exception as error:
        if os.environ.get("LOCALSPEC_DEBUG") == "1":
            raise
        code = _explain(error)
    sys.exit(code)


def _explain_usage(error: click.UsageError) -> int:
    """Write one line to stderr, or the help for a bare `localspec`; return the exit code."""
    message = error.format_message()
    if "\n" in message:
        sys.stderr.write(f"{message}\n")
    else:
        command = error.ctx.command_path if error.ctx else "localspec"
        write_note(f"error: {message.rstrip('.')} (see {command} --help)")
    return error.exit_code


def _explain(error: Exception) -> int:
    """Write one line to stderr; return the exit code."""
    if isinstance(error, LocalspecError):
        message, code = _as_options(error), error.exit_code
    else:
        message, code = f"unexpected {type(error).__name__}: {error}", LocalspecError.exit_code
        message += " (LOCALSPEC_DEBUG=1 shows where)"
    line = " ".join(message.split())
    write_note(f"error: {line}")
    return code


def _as_options(error: LocalspecError) -> str:
    """Return the message, with the name of a setting replaced by its option."""
    message = str(error)
    setting, _, rest = message.partition(" ")
    named = setting.isidentifier() and setting != "there" and rest.startswith("is ")
    if isinstance(error, InvalidValueError) and named:
        option = {"context": "ctx"}.get(setting, setting).replace("_", "-")
        return f"--{option} {rest}"
    return message
