"""Media parts: images and sounds in the messages of a chat, as clients and scripts write them."""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import read_regular
from localspec.utils.media_file import MOST_BYTES

# The types of a content's parts that are media, with the key of what they hold.
_TYPES = {
    "image": "image",
    "image_url": "image_url",
    "input_image": "image_url",
    "audio": "audio",
    "input_audio": "input_audio",
}


def is_media(part: Mapping[str, Any]) -> bool:
    """Whether a part of a content is an image or a sound."""
    kind = part.get("type")
    return isinstance(kind, str) and kind in _TYPES


def media_of(part: Mapping[str, Any], place: str) -> bytes:
    """The file of a part that is an image or a sound, which may be one of this machine.

    Such a part names it as a Path, or as `path`: {"type": "image", "image": Path("cat.png")}.
    place: where the part stands. Raises InvalidValueError.
    """
    value, where = held_by(part, place, files=True)
    return _file(value, where) if isinstance(value, Path) else contents(value, where)


def held_by(part: Mapping[str, Any], place: str, *, files: bool = False) -> tuple[object, str]:
    """What a part that is an image or a sound holds, and where that stands.

    As OpenAI and Anthropic write them. files: whether it may be `path`, which becomes a Path.
    """
    names = (_TYPES[str(part["type"])], "source", "path" if files else "")
    key = next((name for name in names if name in part), names[0])
    value = part.get(key)
    if isinstance(value, Mapping):
        place = f"{place}.{key}"
        key = next((name for name in ("url", "data") if name in value), "url")
        value = value.get(key)
    elif key == "path" and isinstance(value, str):
        value = Path(value)
    return value, f"{place}.{key}"


def contents(value: object, place: str) -> bytes:
    """The contents of a file that is given as such, or in base64, or in a data: URL.

    place: where it stands. Raises InvalidValueError.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise InvalidValueError(
            f"{place} is {value!r:.24}; give the file's contents: a data: URL, or base64"
        )
    if value.startswith(("http:", "https:", "file:")):
        raise InvalidValueError(
            f"{place} is {value!r:.60}; localspec fetches no addresses: send the file itself, in "
            "base64 or as a data: URL"
        )
    head, comma, body = value.partition(",")
    is_url = bool(comma) and head.startswith("data:")
    if is_url and not head.endswith(";base64"):
        raise InvalidValueError(f"{place} is {value!r:.24}; give its data in base64")
    return _decoded(body if is_url else value, place)


def _decoded(text: str, place: str) -> bytes:
    """A file in base64. Raises InvalidValueError for what is none."""
    try:
        data = b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValueError(f"{place} is {text!r:.24}, which is no base64 ({error})") from error
    if not data:
        raise InvalidValueError(f"{place} is empty; give the contents of a file")
    return data


def _file(path: Path, place: str) -> bytes:
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error})"
        raise InvalidValueError(f"{place} is {str(path)!r}; {reason}") from error
