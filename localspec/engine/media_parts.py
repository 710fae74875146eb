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
    return part.get("type") in _TYPES


def media_of(part: Mapping[str, Any], place: str, *, files: bool) -> bytes:
    """The file of a part that is an image or a sound, as OpenAI and Anthropic write them.

    files: whether a part may name a file of this machine, as a Path or as `path`: {"type": "image",
    "image": Path("cat.png")}. place: where it stands. Raises InvalidValueError.
    """
    kind = str(part["type"])
    key = _TYPES[kind]
    value: object = part.get(key, part.get("source", part.get("path") if files else None))
    if files and isinstance(value, str | Path) and ("path" in part or isinstance(value, Path)):
        return _file(Path(value), f"{place}.{'path' if 'path' in part else key}")
    return _given(value, f"{place}.{key}")


def _given(value: object, place: str) -> bytes:
    """The contents of a file that is given as such, or in base64, in a data: URL or in `data`."""
    if isinstance(value, Mapping):
        inner = next((name for name in ("url", "data") if name in value), "url")
        return _given(value.get(inner), f"{place}.{inner}")
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if not isinstance(value, str):
        raise InvalidValueError(
            f"{place} is {value!r:.60}; give the file's contents: a data: URL, or base64"
        )
    if value.startswith(("http:", "https:", "file:")):
        raise InvalidValueError(
            f"{place} is {value!r:.60}; localspec fetches no addresses: send the file itself, as a "
            "data: URL"
        )
    head, comma, body = value.partition(",")
    if comma and head.startswith("data:") and not head.endswith(";base64"):
        raise InvalidValueError(f"{place} is {value!r:.60}; give its data in base64")
    return decoded(body if comma and head.startswith("data:") else value, place)


def decoded(text: str, place: str) -> bytes:
    """A file in base64. Raises InvalidValueError for what is none."""
    try:
        data = b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidValueError(f"{place} is {text!r:.60}, which is no base64 ({error})") from error
    if not data:
        raise InvalidValueError(f"{place} is empty; give the contents of a file")
    return data


def _file(path: Path, place: str) -> bytes:
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        reason = f"it cannot be read ({error.strerror or error})"
        raise InvalidValueError(f"{place} is {str(path)!r}; {reason}") from error
