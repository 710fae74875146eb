"""`localspec chat`: talk with a model, in the terminal."""

import os
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from localspec.cli.aliases import WORDS
from localspec.cli.chats import conversation_named
from localspec.cli.file_options import chat_template_option, copy_from_option, mmproj_option
from localspec.cli.options import keep_option, pop_runtime_options, running_options
from localspec.cli.output import Output
from localspec.cli.sampling_options import sampling_options
from localspec.cli.settings import on_command_line
from localspec.cli.thinking_options import (
    TemplateOptions,
    pop_template_options,
    template_options,
    thinking_budget_option,
)
from localspec.cli.utf8_text import utf8_text
from localspec.errors import InvalidValueError
from localspec.utils.shell import command_line

if TYPE_CHECKING:
    from localspec_tui.archive import Archive
    from localspec_tui.presets import Preset

# Set where the chat runs for a browser.
_SERVED = "TEXTUAL_DRIVER"


@click.command()
@click.argument("model", required=False)
@click.option("-m", "--model", "named", metavar="MODEL", help="The same as MODEL.")
@running_options
@click.option("-c", "--continue", "latest", is_flag=True, help="Continue the latest conversation.")
@click.option(
    "--resume", metavar="ID", help="Continue this conversation; localspec chats lists them."
)
@click.option(
    "--private",
    is_flag=True,
    help="Keep nothing of this chat, and show nothing of earlier ones.",
)
@keep_option("When the chat ends, keep on disk what the model has read, to go on with that.")
@click.option("--system", metavar="TEXT", callback=utf8_text, help="System prompt.")
@click.option(
    "--preset",
    metavar="NAME",
    help="System prompt and sampling that were kept under this name; F2 in the chat lists them.",
)
@click.option(
    "-n",
    "--max-tokens",
    type=int,
    help="Longest answer, in tokens. [default: the rest of the context; 256 for a model that only "
    "continues text]",
)
@sampling_options
@template_options
@thinking_budget_option
@copy_from_option
@chat_template_option
@mmproj_option
@click.option("--theme", metavar="NAME", help="Colour theme. [default: the one used last]")
@click.option(
    "--plain",
    is_flag=True,
    help="Chat line by line, without a screen: for screen readers, and terminals without a cursor. "
    "[default: where TERM is dumb]",
)
# Eager: --copy-from must know of it.
@click.option(
    "--web", is_flag=True, is_eager=True, help="Open the chat in a browser on this machine."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port of --web. [default: 8000]",
)
def chat(
    *,
    model: str | None,
    named: str | None,
    draft: str,
    latest: bool,
    resume: str | None,
    private: bool,
    keep: bool,
    system: str | None,
    preset: str | None,
    copied_texts: tuple[str, ...],
    chat_template: str | None,
    mmproj: str | None,
    theme: str | None,
    plain: bool,
    web: bool,
    port: int | None,
    thinking_budget: int | None,
    **options: Any,
) -> int:
    """Chat with MODEL: a pair's name (`localspec ls --all`), user/repo[:quant] or a GGUF's path.

    Without MODEL, the chat uses the model of the conversation that --continue or --resume names,
    else the one used last, else a tiny bundled pair that answers questions about the terminal.
    """
    # `--help` must not wait for these imports.
    from localspec.cli.fetch_offer import offer_fetch
    from localspec_tui import web as web_chat
    from localspec_tui.archive import Archive
    from localspec_tui.labels import absolute, absolute_drafters
    from localspec_tui.launch import launch
    from localspec_tui.launch_options import LaunchOptions
    from localspec_tui.plain.chat import run_plain

    model = _only_model(model, named)
    runtime, told = pop_runtime_options(options), pop_template_options(options)
    chosen = _merged_preset(preset, system, options, frozenset(filter(_is_of_settings, options)))
    if web and plain:
        raise InvalidValueError("--web and --plain are two kinds of chat; leave one out")
    if plain and theme and _is_named("theme"):
        raise InvalidValueError("--plain has no colours; leave --theme out, or --plain")
    if web:
        web_chat.serve(_command(), port or web_chat.PORT)
        return 0
    if port:
        raise InvalidValueError("--port is of --web; add --web, or leave it out")
    is_dumb = _is_dumb()
    _require_streams(plain or is_dumb)
    if private and (latest or resume):
        raise InvalidValueError(
            "--private begins a chat of its own, and cannot continue one that is kept; "
            f"leave {'--continue' if latest else '--resume'} out"
        )
    if private and keep and _is_named("keep"):
        raise InvalidValueError("--private keeps nothing, and --keep what is read; leave one out")
    if _SERVED not in os.environ:
        offer_fetch(model, draft, Output())
    archive = Archive(private=private)
    session = _session(archive, resume, latest=latest)
    launch_options = LaunchOptions(
        model=model and absolute(model),
        draft=absolute_drafters(draft) if _is_given("draft") else None,
        runtime=runtime,
        copied_texts=copied_texts,
        chat_template=chat_template,
        mmproj=mmproj and absolute(mmproj),
        sampling=chosen.options,
        session_options=_thinking(told, thinking_budget),
        system=chosen.system,
        session=session,
        theme=theme,
        notes=tuple(_notes(private, is_dumb and not plain, latest and not session)),
        private=private,
        keep=keep and not private,
        named=frozenset(filter(_is_named, ("chat_template", *runtime))),
    )
    run = run_plain if plain or is_dumb else launch
    return run(launch_options, archive)


def _notes(is_private: bool, is_dumb: bool, is_missing: bool) -> Iterator[str]:
    """Yield what is said first. is_missing: whether there is no conversation to go on with."""
    if is_dumb:
        yield "TERM is dumb, so this is the chat of --plain"
    if is_private:
        yield "this chat is private: it is gone when it ends, unless /save writes it to a file"
    if is_missing:
        yield "there is no conversation to go on with yet"


def _only_model(model: str | None, named: str | None) -> str | None:
    """Return the model: that of --model, as other commands name it, or of the argument."""
    if named is None:
        return model
    # An argument that is not there has the value of a setting.
    if on_command_line("model"):
        raise InvalidValueError(f"two models are named, {model!r} and {named!r}; name one of them")
    return named


def _thinking(told: TemplateOptions, budget: int | None) -> dict[str, Any]:
    """Return what was said of reasoning, as options of Session."""
    switch = {"template_options": told.variables} if told else {}
    return switch if budget is None else {**switch, "thinking_budget": budget}


def _merged_preset(
    preset: str | None,
    system: str | None,
    options: Mapping[str, Any],
    of_settings: frozenset[str] = frozenset(),
) -> "Preset":
    """Return system prompt and sampling: the command line's, else the preset's, else the settings'.

    of_settings: which of the options have the value of a setting.
    """
    from localspec.generation_config import GenerationConfig
    from localspec_tui import presets
    from localspec_tui.presets import Preset

    kept = presets.load(preset) if preset else Preset()
    given = {name: value for name, value in options.items() if value is not None}
    if given["rule"] == GenerationConfig().rule:
        del given["rule"]
    usual = {name: given.pop(name) for name in of_settings & given.keys()}
    chosen = {**usual, **kept.options, **given}
    GenerationConfig.of(**chosen)
    return Preset(kept.system if system is None else system, chosen)


def _is_given(option: str) -> bool:
    """Whether an option is not its default: `--draft auto` replaces the drafters of a session."""
    source = click.get_current_context().get_parameter_source(option)
    return source is not ParameterSource.DEFAULT


def _is_of_settings(option: str) -> bool:
    """Whether an option has the value of a setting."""
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.DEFAULT_MAP


def _is_named(option: str) -> bool:
    """Whether the command line itself names an option: a conversation has more to say than files.

    One that it names may be None, as the chat template of the model's own.
    """
    source = click.get_current_context().get_parameter_source(option)
    return source is ParameterSource.COMMANDLINE


def _is_dumb() -> bool:
    """Whether the terminal has no cursor to move."""
    return _SERVED not in os.environ and os.environ.get("TERM") == "dumb"


def _require_streams(plain: bool) -> None:
    if plain:
        if sys.stdin is None:
            raise InvalidValueError("standard input is closed; chat --plain reads messages there")
        return
    if _SERVED in os.environ:
        return
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise InvalidValueError(
            "chat needs a terminal; localspec chat --plain reads and writes lines anywhere, and "
            "localspec generate answers one prompt"
        )


def _session(archive: "Archive", resume: str | None, *, latest: bool) -> str | None:
    """Return the key of the conversation to go on with, or None for a new one."""
    if (latest or resume is not None) and os.path.exists(archive.file):
        archive.require_file()
    if resume is None:
        return archive.latest() if latest else None
    return conversation_named(archive, resume).key


def _command() -> str:
    """Return this command line without --web and its port, quoted for a shell."""
    # Not as typed: `run` is another command where no terminal is.
    words: list[str] = click.get_current_context().meta[WORDS]
    arguments, rest = [], iter(words)
    for word in rest:
        if word == "--port":
            next(rest)
        elif word != "--web" and not word.startswith("--port="):
            arguments.append(word)
    return command_line([sys.executable, "-m", "localspec", *arguments])
