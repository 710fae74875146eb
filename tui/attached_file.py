"""Attached file: a file that a message names, as what the message has in its place."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.conversation.media_spans import media_part
from localspec.errors import InvalidValueError
from localspec.utils.format import format_bytes, printable
from localspec.utils.media_file import (
    CONVERT_IT,
    MOST_BYTES,
    image_size,
    is_sound,
    other_image,
    require_readable,
)
from localspec.utils.text_file import SAVE_IT, decode_text, is_pdf, is_utf_16, undecodable
from localspec_tui.file_names import path_of

MAX_BYTES = 256 * 1024
# A code block with the text of a file, or the part of a message that an image or a sound is.
Attached = str | Mapping[str, Any]
# Of the first bytes of an image or a sound one is zero.
_HEAD = 4096
_FENCES = re.compile(r"`{3,}")


def attached_file(name: str) -> Attached:
    """A file as it is now. name: as it was typed. Raises InvalidValueError."""
    data = file_contents(name)
    if not _is_media(data):
        return _block(name, data)
    try:
        require_readable(data, images=True, sounds=True)
    except InvalidValueError as error:
        raise InvalidValueError(f"@{printable(name)}: {error}") from error
    return media_part(name, data)


def file_contents(name: str) -> bytes:
    """The contents of a file, as far as it may be large. Raises InvalidValueError."""
    path = path_of(name)
    if not path.is_file():
        if path.is_dir():
            raise _error(name, "is a folder", "name the files in it, each after an @")
        raise _error(name, "is no file", "name a file")
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


def _text(name: str, data: bytes) -> str:
    if is_pdf(data):
        raise _error(name, "is a PDF", "attach its text (pdftotext FILE.pdf FILE.txt writes it)")
    if other := other_image(data):
        raise _error(name, f"is {other}", CONVERT_IT)
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
