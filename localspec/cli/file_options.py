"""Options of commands that name files which are read at once."""

from pathlib import Path

import click

from localspec.errors import InvalidValueError
from localspec.loading.copied_texts import read_texts
from localspec.loading.given_template import read_template
from localspec.utils.format import printable


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


chat_template_option = click.option(
    "--chat-template",
    metavar="FILE|model",
    callback=lambda _context, _option, path: path and _template(path),
    help="Chat template (Jinja) to use in place of the model's own, which `model` means.",
)


def _template(path: str) -> str | None:
    return None if path == "model" else read_template(Path(path), "--chat-template")
