"""Options of commands that name files which are read at once."""

from pathlib import Path

import click

from localspec.cli.options import Command, stacked
from localspec.errors import InvalidValueError
from localspec.loading.copied_texts import read_texts
from localspec.loading.given_template import read_template
from localspec.utils.format import printable
from localspec.utils.text_file import read_text_file


def _copied_texts(context: click.Context, files: tuple[str, ...]) -> tuple[str, ...]:
    if not files:
        return ()
    if context.params.get("web"):
        _require_regular(files)
    return read_texts(files, "--copy-from")


def _require_regular(files: tuple[str, ...]) -> None:
    """Refuse pipes, which only one of the chats of `chat --web` could read."""
    for file in files:
        if Path(file).exists() and not Path(file).is_file():
            raise InvalidValueError(
                f"--copy-from {printable(file)}: it is no regular file, and with --web each "
                "browser window reads it again; save the text in a file and name that"
            )


# Read here, once: a file may be a pipe (not with --web), and a chat loads models again and again.
copy_from_option = click.option(
    "--copy-from",
    "copied_texts",
    multiple=True,
    metavar="FILE",
    callback=lambda context, _option, files: _copied_texts(context, files),
    help="Let drafts copy from this text, which is not in the prompt: an open file, or an older "
    "version. Repeatable.",
)


prediction_option = click.option(
    "--prediction",
    metavar="FILE",
    callback=lambda _context, _option, file: file and read_texts(file, "--prediction")[0],
    help="Most of the answer, as far as it is known: a file to be rewritten. Drafts follow it "
    "through edits; the answer does not depend on it.",
)


chat_template_option = click.option(
    "--chat-template",
    metavar="FILE|model",
    callback=lambda _context, _option, path: path and _template(path),
    help="Chat template (Jinja) to use in place of the model's own, which `model` means.",
)


def _template(path: str) -> str | None:
    return None if path == "model" else read_template(Path(path), "--chat-template")


mmproj_option = click.option(
    "--mmproj",
    metavar="FILE|none",
    callback=lambda _context, _option, value: value and _projector(value),
    help="The file that reads images and sounds for the model, with room on a GPU before layers of "
    "the model; `none` is none. [default: the one beside the model, if there is any]",
)


def _projector(value: str) -> str:
    # `--help` must not wait for these imports.
    from localspec.gguf.projectors import check_projector
    from localspec.models.projectors import NO_PROJECTOR

    if value != NO_PROJECTOR:
        check_projector(Path(value))
    return value


def constraint_options(command: Command) -> Command:
    """Add --grammar and --schema; the command gets the text of the grammar or the schema."""
    return stacked(
        click.option(
            "--grammar",
            metavar="FILE",
            callback=lambda _context, _option, path: path and _grammar(path),
            help="The text must satisfy this grammar: GBNF, or Lark if it begins with %llguidance.",
        ),
        click.option(
            "--schema",
            metavar="FILE|JSON",
            callback=lambda _context, _option, value: value and _schema(value),
            help="The text must be JSON that satisfies this JSON schema.",
        ),
    )(command)


def _grammar(path: str) -> str:
    text = read_text_file("--grammar", Path(path), "name a file that holds a grammar")
    return _checked_file(path, grammar=text)


def _schema(value: str) -> str:
    if value.lstrip().startswith("{"):
        return value
    remedy = "name a file, or write the schema itself: {...}"
    return _checked_file(value, schema=read_text_file("--schema", Path(value), remedy))


def _checked_file(path: str, **constraint: str) -> str:
    """Return the grammar or schema of a file. Raises InvalidValueError that names the file."""
    # `--help` must not wait for this import.
    from localspec.generation_config import GenerationConfig

    try:
        GenerationConfig.of(**constraint)
    except InvalidValueError as error:
        raise InvalidValueError(f"{printable(path)}: {error}") from error
    [text] = constraint.values()
    return text
