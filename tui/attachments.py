"""Attachments: puts files into a message that names them: texts, images and sounds.

A file is named `@notes.txt`, `@~/notes.txt` or `@"my notes.txt"`, but not between backticks.
"""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, count, groupby
from pathlib import Path
from typing import Any

from localspec.conversation.media_spans import Content, MediaSpan, media_part, replaced
from localspec.conversation.turns import Turn
from localspec.errors import InvalidValueError
from localspec.utils.format import format_bytes, printable
from localspec.utils.media_file import MOST_BYTES, image_size, is_sound, require_readable
from localspec.utils.paths import typed_path
from localspec.utils.similar_names import similar_names
from localspec.utils.text_file import SAVE_IT, decode_text, is_utf_16, undecodable
from localspec_tui.slash_commands import as_message

MAX_BYTES = 256 * 1024
# The images and sounds that a message has, by the names that stand for them.
Files = Mapping[str, MediaSpan]
_NONE: Files = {}

# Code, or an @ that begins a word.
_CODE_OR_WORD = re.compile(
    r"""(?P<fence>`{3,}).*?(?:(?P=fence)`*|\Z) | `[^`\n]*`
    | (?<![^\s(\[{]) @ (?: "(?P<double>[^"\n]+)" | '(?P<single>[^'\n]+)' | (?P<bare>\S+) )""",
    re.DOTALL | re.VERBOSE,
)
_AFTER_WORDS = ".,;:!?)]}"
_END_OF_WORD = re.compile(r"[.,;:!?)\]}]*(?:\s|\Z)")
_GAP = re.compile(r"[ \t]*\n+|[ \t]+")
_NEEDS_QUOTES = re.compile(r"""[\s"'`]|[.,;:!?)\]}]\Z""")
# Letters that a text box does not keep: control characters, lone surrogates and ends of lines.
_NOT_TYPED = {"Cc", "Cs", "Zl", "Zp"}
# Of the first bytes of an image or a sound one is zero.
_HEAD = 4096
_SPACE = re.compile(r"\s")
_FENCES = re.compile(r"`{3,}")
# A shorter word is like too many names. In letters.
_LEAST_SIMILAR = 4
# More words than this are no file names, and comparing each with those there would take long.
_MOST_COMPARED = 30
# A code block with a name above it.
_NAMED_BLOCK = re.compile(r"^(?P<name>[^\n]+):\n(?P<fence>`{3,})\w*\n.*?\n(?P=fence)$", re.M | re.S)
# A word after @ that is meant as a file, unlike the name of a person or a decorator.
_FILE_NAME = re.compile(r"[^()]*(?:[/\\][^()]*|\.\w{1,5})")


def attach_files(text: str, folder: Path, known: Files = _NONE) -> tuple[Content, list[str]]:
    """Replace each file name in a message by a code block with the file.

    folder: base of relative paths. known: images and sounds that the message has; their files may
    have changed. A word after @ that is no existing path stays. Returns the new message and the
    file names as they were typed; with an image or a sound it is a list of parts. Raises
    InvalidValueError for a path that is none of these files, or is too large.
    """
    parts: list[str | Mapping[str, Any]] = []
    names: list[str] = []
    end = 0
    for match in _CODE_OR_WORD.finditer(text):
        if name := _existing_path(match, folder, known):
            names.append(name)
            parts += [_text_between(text, end, match.start()), _attached(name, folder, known)]
            end = match.start("bare") + len(name) if match["bare"] else match.end()
    if not names:
        return text, []
    parts.append(_text_between(text, end, len(text)))
    return _joined(parts), names


def _joined(parts: Iterable[str | Mapping[str, Any]]) -> Content:
    """The texts as one, or as those between images and sounds."""
    joined: list[Mapping[str, Any]] = []
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        if not is_text:
            joined += [part for part in group if not isinstance(part, str)]
        elif text := "\n\n".join(part for part in group if isinstance(part, str) and part):
            # What follows an image is apart from it anyway.
            joined.append({"type": "text", "text": text.lstrip() if joined else text})
    has_media = any(part["type"] != "text" for part in joined)
    return joined if has_media else "".join(part["text"] for part in joined)


def detach_files(text: str, folder: Path, known: Files = _NONE) -> str:
    """Undo `attach_files`: the message with the names of its files instead of their text.

    A file that has changed since, or is gone, stays a code block; all of them do where a word has
    become the name of what cannot be attached. known: as of `attach_files`.
    """
    parts: list[str] = []
    end = 0
    for match in _NAMED_BLOCK.finditer(text):
        if _has_text(match["name"], match[0], folder):
            name = f'"{match["name"]}"' if " " in match["name"] else match["name"]
            parts += [text[end : match.start()].removesuffix("\n\n"), f"@{name}"]
            # With the blank line behind it.
            end = match.end() + 2
    if not parts:
        return text
    parts.append(text[end:])
    message = ""
    for part in filter(None, parts):
        message += _gap(message, part) + part
    try:
        whole = attach_files(text, folder, known)[0] if known else text
        is_same = attach_files(message, folder, known)[0] == whole
    except (InvalidValueError, OSError):
        return text
    return message if is_same else text


def with_names(content: str, media: Iterable[tuple[int, int, str]]) -> str:
    """A message with the names of its images and sounds, as they are typed.

    media: where their chips stand in the content, and the names of their files.
    """
    named = []
    for start, end, name in media:
        shown = content[start:end]
        ends = shown[-1:].isspace() or _END_OF_WORD.match(content, end)
        if name and shown.strip():
            written = _quoted(_typeable(name), always=not ends)
            named.append((start, end, shown.replace(shown.strip(), f"@{written}")))
    return replaced(content, named)


def typed_message(turn: Turn) -> str:
    """A turn of the user with the names of its files, as they were typed."""
    files = files_of(turn)
    named = ((span.start, span.end, _name_in(files, span)) for span in turn.media)
    return detach_files(with_names(turn.content, named), Path(), files)


def with_images_of(turn: Turn, text: str) -> str:
    """Another text of a turn behind the names of its images and sounds, unless it names some."""
    files = files_of(turn)
    message, _ = attach_files(text, Path(), files)
    if not files or not isinstance(message, str):
        return text
    return " ".join((*(f"@{_quoted(name)}" for name in files), as_message(text)))


def files_of(turn: Turn | None) -> Files:
    """The images and sounds of a turn, each by a name that can be typed and is no other's."""
    files: dict[str, MediaSpan] = {}
    for span in turn.media if turn else ():
        files.setdefault(_name_in(files, span), span)
    return files


def _name_in(files: Files, span: MediaSpan) -> str:
    """The name of an image or a sound among others; those that have the same get numbers."""
    name = _typeable(span.name or ("sound" if is_sound(span.data) else "image"))
    numbered = chain([name], (f"{name} {number}" for number in count(2)))
    others = {each for each, at in files.items() if (at.name, at.key) != (span.name, span.key)}
    return next(each for each in numbered if each not in others)


def written_name(path: str) -> str | None:
    """A path as it is written after @; None for one that cannot be typed."""
    return _quoted(path) if path == _typeable(path) else None


def _quoted(name: str, *, always: bool = False) -> str:
    if not always and not _NEEDS_QUOTES.search(name):
        return name
    quote = "'" if '"' in name else '"'
    return f"{quote}{name}{quote}"


def _typeable(name: str) -> str:
    """A name with other letters for those that cannot be typed after @."""
    typed = "".join("?" if unicodedata.category(each) in _NOT_TYPED else each for each in name)
    return typed.replace('"', "'") if '"' in typed and "'" in typed else typed


def missing_file(text: str, folder: Path, known: Files = _NONE) -> str | None:
    """Return the first word after @ that is meant as a file and is none; None without such a word.

    A word that is almost the name of a file there is meant as that. folder, known: as of
    `attach_files`.
    """
    missing = dict(_missing(text, folder, known))
    compared = len(missing) <= _MOST_COMPARED
    for name, is_file_name in missing.items():
        if is_file_name or (compared and similar_file(name, folder)):
            return name
    return None


def unattached_word(text: str, folder: Path, known: Files = _NONE) -> str | None:
    """Return the first word after @ that no file has as its name; None in a text of several lines.

    Those are mostly code, whose decorators look the same. known: as of `attach_files`.
    """
    return None if "\n" in text else next((name for name, _ in _missing(text, folder, known)), None)


def changed_file(text: str, folder: Path, known: Files) -> str | None:
    """Return the first name of a known image in a text whose file is another one now, or None."""
    for match in _CODE_OR_WORD.finditer(text):
        name = _existing_path(match, folder, known)
        if name and (span := known.get(name)) and name == span.name:
            with suppress(InvalidValueError, OSError):
                if _contents(name, _path(name, folder)) != span.data:
                    return name
    return None


def similar_file(name: str, folder: Path) -> str | None:
    """Return the file or folder that a misspelt name may mean, as a name in the same folder."""
    parent, word = os.path.split(name)
    try:
        names = os.listdir(_path(parent, folder))
    except (OSError, ValueError):
        return None
    found = similar_names(word, names) if len(word) >= _LEAST_SIMILAR else []
    return found[0] if found else None


def _missing(text: str, folder: Path, known: Files) -> Iterator[tuple[str, bool]]:
    """Yield words after @ that are no existing paths, and whether each is written as a path."""
    for match in _CODE_OR_WORD.finditer(text):
        name = match["double"] or match["single"] or (match["bare"] or "").rstrip(_AFTER_WORDS)
        if name and not _existing_path(match, folder, known):
            yield name, not match["bare"] or bool(_FILE_NAME.fullmatch(name))


def complete_path(prefix: str, folder: Path) -> Iterator[str]:
    """Yield the paths that begin with a prefix, as they are written after @.

    folder: base of relative paths. Folders end with a slash, and paths with spaces are quoted.
    Hidden files are left out unless the prefix has their dot.
    """
    quoted = prefix.startswith('"')
    parent, begun = os.path.split(prefix.removeprefix('"'))
    stem = prefix.removeprefix('"').removesuffix(begun)
    parent_path = _path(parent, folder)
    try:
        names = os.listdir(parent_path)
    except OSError:
        return
    beginning = begun.casefold()
    fitting = [
        name
        for name in names
        if name.casefold().startswith(beginning)
        and (begun.startswith(".") or not name.startswith("."))
        and name == _typeable(name)
    ]
    for name in sorted(fitting, key=str.casefold):
        is_folder = os.path.isdir(parent_path / name)
        yield _completed(stem + name, is_folder=is_folder, quoted=quoted)


def _existing_path(match: re.Match[str], folder: Path, known: Files) -> str | None:
    """The path that a match names, if it exists."""
    bare = match["bare"] or ""
    names = (match["double"], match["single"], bare, bare.rstrip(_AFTER_WORDS))
    return next(
        (each for each in names if each and (each in known or os.path.exists(_path(each, folder)))),
        None,
    )


def _path(name: str, folder: Path) -> Path:
    return folder / os.path.expanduser(typed_path(name))


def _text_between(text: str, start: int, end: int) -> str:
    """The part of a message before, between or after file names."""
    gap = _GAP.match(text, start, end) if start else None
    return text[gap.end() if gap else start : end].rstrip()


def _gap(before: str, after: str) -> str:
    """What stands between two parts of a message of which one is a file name."""
    if not before or before[-1] in "([{" or after[0] in _AFTER_WORDS:
        return ""
    return "\n" if after[0].isspace() else " "


def _has_text(name: str, block: str, folder: Path) -> bool:
    """Whether a file still has the text of a code block."""
    try:
        return _attached(name, folder, _NONE) == block
    except (InvalidValueError, OSError):
        return False


def _attached(name: str, folder: Path, known: Files) -> str | Mapping[str, Any]:
    """A code block with the text of a file, or the part of a message that an image or a sound is.

    Raises InvalidValueError.
    """
    if span := known.get(name):
        return span.part
    data = _contents(name, _path(name, folder))
    if not _is_media(data):
        return _block(name, data)
    try:
        require_readable(data, images=True, sounds=True)
    except InvalidValueError as error:
        raise InvalidValueError(f"@{printable(name)}: {error}") from error
    return media_part(name, data)


def _is_media(data: bytes) -> bool:
    """Whether a file is an image or a sound; texts may begin as some do."""
    return _is_binary(data) and bool(is_sound(data) or image_size(data))


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_HEAD] and not is_utf_16(data)


def _block(name: str, data: bytes) -> str:
    content = _text(name, data)
    longest = max((len(fence) for fence in _FENCES.findall(content)), default=2)
    fence, suffix = "`" * (longest + 1), Path(name).suffix[1:]
    language = suffix if suffix.isalnum() else ""
    return f"{printable(name)}:\n{fence}{language}\n{content}\n{fence}"


def _contents(name: str, path: Path) -> bytes:
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "no file"
        raise _error(name, f"is {kind}", "name a file")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
            if _is_binary(data):
                # The size of a JPEG may stand behind much else.
                data += file.read(MOST_BYTES + 1 - len(data))
    except OSError as error:
        raise _error(name, f"cannot be read ({error.strerror})", "check its permissions") from error
    if len(data) > MOST_BYTES and _is_media(data):
        raise _error(name, f"has more than {format_bytes(MOST_BYTES)}", "make it smaller")
    return data


def _text(name: str, data: bytes) -> str:
    if _is_binary(data):
        what = "is no text, JPEG, PNG, GIF, BMP, WAV, MP3 or FLAC"
        raise _error(name, what, "convert it to one of these")
    if len(data) > MAX_BYTES:
        raise _error(name, f"has more than {MAX_BYTES // 1024} KiB", "attach a smaller file")
    try:
        text = decode_text(data)
    except UnicodeDecodeError as error:
        what = f"cannot be read: {undecodable(error)}"
        raise _error(name, what, SAVE_IT) from error
    if "\0" in text:
        raise _error(name, "is no text: it has a zero byte", "attach another file")
    return text.replace("\r\n", "\n").rstrip("\n")


def _error(name: str, what: str, way_out: str) -> InvalidValueError:
    return InvalidValueError(
        f"@{printable(name)} {what}; {way_out}, or put the word between backticks"
    )


def _completed(path: str, *, is_folder: bool, quoted: bool) -> str:
    if is_folder:
        path += "/"
    if not quoted and not _SPACE.search(path):
        return path
    return f'"{path}' if is_folder else f'"{path}"'
