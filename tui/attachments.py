"""Attachments: files named in a message, put into it.

`@notes.txt`, `@~/notes.txt`, or `@"my notes.txt"`. What stands between backticks is left alone.
"""

import os
import re
from pathlib import Path

from localspec.errors import InvalidValueError
from localspec.utils.format import printable

MOST_BYTES = 256 * 1024

# Code, or an @ that begins a word.
_CODE_OR_WORD = re.compile(
    r"""```.*?(?:```|\Z) | `[^`\n]*`
    | (?<![^\s(\[{]) @ (?: "(?P<double>[^"\n]+)" | '(?P<single>[^'\n]+)' | (?P<bare>\S+) )""",
    re.DOTALL | re.VERBOSE,
)
_AFTER_WORDS = ".,;:!?)]}"
_GAP = re.compile(r"[ \t]*\n+|[ \t]+")
_FENCES = re.compile(r"`{3,}")


def expand(text: str, folder: Path) -> tuple[str, list[str]]:
    """The message with the files in it, and their names as they were typed.

    folder: where relative paths begin. A word that is no existing path stays as it is. Raises
    InvalidValueError for a path that is no text file of at most MOST_BYTES.
    """
    parts: list[str] = []
    names: list[str] = []
    end = 0
    for match in _CODE_OR_WORD.finditer(text):
        if name := _named(match, folder):
            names.append(name)
            parts += [_outside(text, end, match.start()), _block(name, folder)]
            end = match.start("bare") + len(name) if match["bare"] else match.end()
    if not names:
        return text, []
    parts.append(_outside(text, end, len(text)))
    return "\n\n".join(part for part in parts if part), names


def completions(prefix: str, folder: Path) -> list[str]:
    """What may follow an @ that is followed by this much of a path; folders end with a slash.

    Hidden files are left out unless their dot was typed. What has spaces is in quotes.
    """
    quoted = prefix.startswith('"')
    parent, begun = os.path.split(prefix.removeprefix('"'))
    stem = prefix.removeprefix('"').removesuffix(begun)
    try:
        entries = sorted(os.scandir(_path(parent, folder)), key=lambda entry: entry.name.casefold())
    except OSError:
        return []
    return [
        _completed(stem + entry.name, is_folder=os.path.isdir(entry.path), quoted=quoted)
        for entry in entries
        if entry.name.casefold().startswith(begun.casefold())
        and (begun.startswith(".") or not entry.name.startswith("."))
        and entry.name.isprintable()
    ]


def _named(match: re.Match[str], folder: Path) -> str | None:
    """The path that is meant, if it exists."""
    bare = match["bare"] or ""
    names = (match["double"], match["single"], bare, bare.rstrip(_AFTER_WORDS))
    return next((name for name in names if name and os.path.exists(_path(name, folder))), None)


def _path(name: str, folder: Path) -> Path:
    return folder / os.path.expanduser(name)


def _outside(text: str, start: int, end: int) -> str:
    """What stands before, between or after files."""
    gap = _GAP.match(text, start, end) if start else None
    return text[gap.end() if gap else start : end].rstrip()


def _block(name: str, folder: Path) -> str:
    content = _content(name, _path(name, folder))
    longest = max((len(fence) for fence in _FENCES.findall(content)), default=2)
    fence, suffix = "`" * (longest + 1), Path(name).suffix[1:]
    language = suffix if suffix.isalnum() else ""
    return f"{printable(name)}:\n{fence}{language}\n{content}\n{fence}"


def _content(name: str, path: Path) -> str:
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no file"
        raise _refusal(name, f"is {kind}", "name a text file")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refusal(
            name, f"cannot be read ({error.strerror})", "check its permissions"
        ) from error
    if len(data) > MOST_BYTES:
        raise _refusal(name, f"has more than {MOST_BYTES // 1024} KiB", "copy what matters of it")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(name, f"is no UTF-8 text at byte {error.start}", "convert it") from error
    if "\0" in text:
        raise _refusal(name, "is no text, as it has a zero byte", "attach text files only")
    return text.replace("\r\n", "\n").rstrip("\n")


def _refusal(name: str, what: str, way_out: str) -> InvalidValueError:
    return InvalidValueError(
        f"@{printable(name)} {what}; {way_out}, or put the word between backticks"
    )


def _completed(path: str, *, is_folder: bool, quoted: bool) -> str:
    if is_folder:
        path += "/"
    if not quoted and " " not in path:
        return path
    return f'"{path}' if is_folder else f'"{path}"'
