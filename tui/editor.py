"""Editor: lets the user write a text in an editor of their own."""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.errors import InvalidValueError

# Tried in turn where neither VISUAL nor EDITOR is set.
_USUAL = ("notepad",) if os.name == "nt" else ("sensible-editor", "nano", "vim", "vi")


def edit(text: str) -> tuple[str, str | None]:
    """Open a text in $VISUAL or $EDITOR, and wait for the editor.

    Returns the text that it saved, and None; or the text as it was, and why the editor failed.
    """
    try:
        return _edited(text), None
    except InvalidValueError as error:
        return text, str(error)
    except (OSError, UnicodeError) as error:
        return text, f"the text cannot be written to a file for the editor ({error})"


def _edited(text: str) -> str:
    command = _command()
    with tempfile.TemporaryDirectory(prefix="localspec-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "message.md"
        file.write_text(text, encoding="utf-8")
        _run([*command, str(file)])
        try:
            return file.read_text(encoding="utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise _failed(command[0], f"left no text in UTF-8 ({error})") from error


def _command() -> list[str]:
    """The words that start the editor."""
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        words = shlex.split(named, posix=os.name != "nt")
    except ValueError as error:
        raise _failed(named, f"is no command line ({error})") from error
    if words and os.name == "nt":
        # Its shells need quotes where there are spaces, and find `code` as code.cmd.
        words = [word.strip('"') for word in words]
        words[0] = shutil.which(words[0]) or words[0]
    if words:
        return words
    usual = next((name for name in _USUAL if shutil.which(name)), None)
    if usual is None:
        raise InvalidValueError("no editor was found; set EDITOR to one")
    return [usual]


def _run(command: list[str]) -> None:
    try:
        with _interrupts_ignored():
            code = subprocess.run(command, check=False).returncode
    except OSError as error:
        raise _failed(command[0], f"does not start ({error.strerror})") from error
    if code:
        raise _failed(command[0], f"ended with exit code {code}")


def _failed(editor: str, problem: str) -> InvalidValueError:
    return InvalidValueError(
        f"the editor {editor!r} {problem}; your text is unchanged; set VISUAL or EDITOR to "
        "another editor"
    )


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Leave Ctrl-C to the editor, which has the terminal."""
    # A handler, unlike SIG_IGN, is not inherited by the editor.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
