"""Media file: what kind of file an image or a sound is, and how large it becomes."""

import struct

from localspec.errors import InvalidValueError
from localspec.utils.format import format_bytes

# The largest file, and the most pixels: a small file may hold an image that fills all memory.
MOST_BYTES, MOST_PIXELS = 64_000_000, 64_000_000
# The markers of JPEG that begin with a frame's size; the others of that range are tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def require_readable(data: bytes, *, images: bool, sounds: bool) -> None:
    """Raise InvalidValueError for a file that is neither, that is too large, or not for the model.

    images, sounds: what the model reads.
    """
    if len(data) > MOST_BYTES:
        raise InvalidValueError(
            f"a file of {format_bytes(len(data))} was given; images and sounds may have "
            f"{format_bytes(MOST_BYTES)}"
        )
    if is_sound(data):
        if not sounds:
            raise InvalidValueError("a sound was given, and this model hears nothing; give a text")
        return
    if not images:
        raise InvalidValueError("an image was given, and this model sees nothing; give a text")
    size = image_size(data)
    if size is None:
        kinds = "JPEG, PNG, GIF or BMP" + (", WAV, MP3 or FLAC" if sounds else "")
        raise InvalidValueError(f"a file was given that is no {kinds}; convert it to one of these")
    if not 0 < size[0] * size[1] <= MOST_PIXELS:
        raise InvalidValueError(
            f"an image of {size[0]} x {size[1]} pixels was given; make it smaller than "
            f"{MOST_PIXELS // 10**6} million"
        )


def image_size(data: bytes) -> tuple[int, int] | None:
    """The columns and rows that an image says it has; None if it is no image that can be read."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n"):
            return struct.unpack_from(">II", data, 16)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack_from("<HH", data, 6)
        if data.startswith(b"BM"):
            columns, rows = struct.unpack_from("<ii", data, 18)
            return columns, abs(rows)
        if data.startswith(b"\xff\xd8"):
            return _jpeg_size(data)
    except struct.error:
        pass
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at < len(data):
        if data[at] != 0xFF:
            return None
        if data[at + 1 : at + 2] == b"\xff":  # padding
            at += 1
            continue
        marker, length = struct.unpack_from(">xBH", data, at)
        if marker in _JPEG_FRAMES:
            rows, columns = struct.unpack_from(">HH", data, at + 5)
            return columns, rows
        at += 2 + length
    return None


def is_sound(data: bytes) -> bool:
    """Whether a file is WAV, MP3 or FLAC, by its beginning."""
    if data.startswith((b"ID3", b"fLaC")) or (data[:4] == b"RIFF" and data[8:12] == b"WAVE"):
        return True
    # A frame of MP3: eleven bits that are set; those of JPEG's first marker are another number.
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] != 0xD8
