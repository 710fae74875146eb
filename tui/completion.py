"""Completion: how the word before the cursor may go on, and which file in a text is missing."""

import os

from localspec.utils.format import printable
from localspec_tui.attachments import Attachments
from localspec_tui.command_arguments import complete_argument
from localspec_tui.file_names import complete_path, quoted, similar_file, written_name
from localspec_tui.slash_commands import complete_command, is_command


def completion(line: str) -> str:
    """The rest of a command or its argument, or of a path after an @ at the end; may be empty."""
    if is_command(line):
        command = line.lstrip()
        return complete_command(command) or complete_argument(command)
    prefix = _begun_path(line)
    if prefix is None:
        return ""
    # Behind what was typed; paths that differ in capitals cannot be shown so.
    paths = complete_path(prefix)
    return next((path.removeprefix(prefix) for path in paths if path.startswith(prefix)), "")


def quoted_completion(line: str) -> str:
    """The path at the end of a line after an @ in quotes, if it is completed only so; or empty."""
    prefix = _begun_path(line)
    if not prefix:
        return ""
    return next((path for path in complete_path(prefix) if path.startswith(f'"{prefix}')), "")


def _begun_path(line: str) -> str | None:
    """What is typed of a path at the end of a line after an @; None if there is none."""
    before, at, prefix = line.rpartition("@")
    if is_command(line) or not at or (before and not before[-1].isspace()):
        return None
    return None if " " in prefix and not prefix.startswith('"') else prefix


def objection(text: str, attachments: Attachments) -> str | None:
    """Return which file that a text attaches does not exist, in a line; None if all of them do."""
    if is_command(text):
        return None
    if name := attachments.unquoted(text):
        return f"@{printable(name)} needs quotes: @{quoted(printable(name))}; put them around it"
    missing = attachments.missing(text)
    if missing is None:
        return None
    similar = similar_file(missing)
    but = f", but {printable(similar)}" if similar else ""
    return f"{_no_file(missing)}{but}; correct the name"


def remark(text: str, attachments: Attachments) -> str | None:
    """Return which word after @ attaches nothing to a message that is sent, in a line, or None.

    Or which one is an image of the message whose file has changed.
    """
    if changed := attachments.changed(text):
        now = written_name(os.path.join(os.path.dirname(changed), ".", os.path.basename(changed)))
        return (
            f"{printable(changed)} has changed on the disk: the message keeps it as it was sent, "
            f"and @{now} is the file as it is now"
        )
    word = attachments.unattached(text)
    return word and f"{_no_file(word)}; @{printable(word)} is sent as a word"


def _no_file(name: str) -> str:
    line = f"there is no file {printable(name)}"
    if name.startswith(("/", "~")):
        return line
    try:
        return f"{line} in {printable(os.getcwd())}"
    except FileNotFoundError:
        return f"{line}: the folder of this chat was deleted, so a file needs its whole path"
