"""Media file: what an image or a sound is, how large it becomes, and how it is turned."""

import re
import struct
from collections.abc import Iterator
from contextlib import suppress

from localspec.errors import InvalidValueError
from localspec.utils.format import format_bytes

# The largest file, and the most pixels: a small file may hold an image that fills all memory.
MOST_BYTES, MOST_PIXELS = 64_000_000, 64_000_000
# The longest sound, and the least samples a second: a slow one would become very long.
MOST_SECONDS, _LEAST_RATE = 3600, 4000
# WAVs whose length follows from their bytes: integers, floats, and either with more about channels.
_PLAIN_WAVS = (1, 3, 0xFFFE)
# Behind what says how many frames an MP3 has; the largest one that need not say it. Samples a
# second, and how often they are halved, by the version.
_FRAMES, _MOST_MP3_BYTES = re.compile(rb"Xing|Info"), 8_000_000
_MP3_RATES, _MP3_HALVED = (44100, 48000, 32000), (2, 3, 1, 0)
# Images that the library does not read, by how they begin.
_OTHER_IMAGES = {
    "a WebP image": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "an AVIF image": re.compile(rb".{4}ftypavi[fs]", re.DOTALL),
    "a HEIC image": re.compile(rb".{4}ftyp(?:he[iv][cxms]|mif1|msf1)", re.DOTALL),
    "a TIFF image": re.compile(rb"II\*\0|MM\0\*"),
    "a JPEG XL image": re.compile(rb"\xff\x0a|\0\0\0\x0cJXL "),
}
CONVERT_IT = "convert it to JPEG or PNG"
# The markers of JPEG that begin with a frame's size; the others of that range are tables.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_EXIF, _JPEG_PIXELS = 0xE1, 0xDA
_TIFF_ORIENTATION = 0x0112
# Orientations of which rows become columns.
_ON_ITS_SIDE = range(5, 9)


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
        _require_short(data)
        return
    if not images:
        raise InvalidValueError("an image was given, and this model sees nothing; give a text")
    if other := other_image(data):
        raise InvalidValueError(f"{other} was given; {CONVERT_IT}")
    size = image_size(data)
    if size is None:
        kinds = "JPEG, PNG, GIF or BMP" + (", WAV, MP3 or FLAC" if sounds else "")
        raise InvalidValueError(f"a file was given that is no {kinds}; convert it to one of these")
    if not 0 < size[0] * size[1] <= MOST_PIXELS:
        raise InvalidValueError(
            f"an image of {size[0]} x {size[1]} pixels was given; make it smaller than "
            f"{MOST_PIXELS // 10**6} million"
        )


def _require_short(data: bytes) -> None:
    """Raise InvalidValueError for a sound that is longer than it may be, or no such sound."""
    seconds = sound_seconds(data)
    if seconds is None:
        raise InvalidValueError(
            "a sound was given whose length cannot be trusted: it is damaged, compressed in a "
            "rare way, or a large MP3 that does not say it; convert it to FLAC"
        )
    if seconds > MOST_SECONDS:
        raise InvalidValueError(
            f"a sound of {seconds:,.0f} seconds was given; cut it to {MOST_SECONDS:,} at most"
        )


def sound_seconds(data: bytes) -> float | None:
    """The seconds that a sound has by its header; None where that may be too little.

    The library makes room for as much as the header says, before it reads the rest.
    """
    try:
        if data[:4] == b"RIFF":
            return _wav_seconds(data)
        if data[:4] == b"fLaC":
            return _flac_seconds(data)
        if data[:3] == b"ID3":
            seven_bits = zip(data[6:10], (21, 14, 7, 0), strict=True)
            data = data[10 + sum((each & 0x7F) << shift for each, shift in seven_bits) :]
        # Another kind behind a tag would be read as what it is, whatever it says.
        return _mp3_seconds(data) if _is_mp3(data) else None
    except (struct.error, ZeroDivisionError, IndexError, ValueError):
        return None


def _wav_seconds(data: bytes) -> float | None:
    at, rate, frame = 12, 0, 0
    while at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        if name == b"fmt ":
            kind, rate, frame = struct.unpack_from("<HxxIxxxxH", data, at + 8)
            if kind not in _PLAIN_WAVS:
                return None
        if name == b"data":
            fits = size <= len(data) - at - 8 and rate >= _LEAST_RATE
            return size / frame / rate if fits else None
        at += 8 + size + size % 2
    return None


def _flac_seconds(data: bytes) -> float | None:
    packed = int.from_bytes(data[18:26], "big")  # rate, channels, bits, samples: 20, 3, 5, 36 bits
    rate, samples = packed >> 44, packed & (1 << 36) - 1
    return samples / rate if rate >= _LEAST_RATE and samples else None


def _mp3_seconds(data: bytes) -> float | None:
    frames = _FRAMES.search(data[:4096])
    if frames is None:
        # The library counts the frames; in a small file there are not too many.
        return 0.0 if len(data) <= _MOST_MP3_BYTES else None
    flags, count = struct.unpack_from(">II", data, frames.end())
    rate = _MP3_RATES[data[2] >> 2 & 3] >> _MP3_HALVED[data[1] >> 3 & 3]
    return count * 1152 / rate if flags & 1 else None


def _is_mp3(data: bytes) -> bool:
    """Whether it begins with a frame of MP3: eleven bits that are set."""
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0


def image_size(data: bytes) -> tuple[int, int] | None:
    """The columns and rows that an image says it has, as it is shown; None if it cannot be read."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return struct.unpack_from(">II", data, 16)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return struct.unpack_from("<HH", data, 6)
        if data.startswith(b"BM"):
            if data[14:18] == b"\x0c\0\0\0":  # the oldest header
                return struct.unpack_from("<HH", data, 18)
            columns, rows = struct.unpack_from("<ii", data, 18)
            return columns, abs(rows)
    except struct.error:
        return None
    size, turned = _jpeg(data)
    return size[::-1] if size and turned in _ON_ITS_SIDE else size


def orientation(data: bytes) -> int:
    """How the pixels of a photo are turned before they are shown, 1 to 8 (EXIF 2.32, 4.6.5.1.6).

    1: not at all; also of files that say nothing, and of those that are no JPEG.
    """
    return _jpeg(data)[1]


def other_image(data: bytes) -> str | None:
    """Which image a file is that is not read here, such as "a WebP image"; None for others."""
    return next((name for name, begins in _OTHER_IMAGES.items() if begins.match(data)), None)


def _jpeg(data: bytes) -> tuple[tuple[int, int] | None, int]:
    """The columns and rows of a JPEG's pixels, None if they cannot be read, and its orientation."""
    if not data.startswith(b"\xff\xd8"):
        return None, 1
    size: tuple[int, int] | None = None
    turned: int | None = None
    with suppress(struct.error):
        for marker, at in _jpeg_segments(data):
            if marker in _JPEG_FRAMES and size is None:
                rows, columns = struct.unpack_from(">HH", data, at + 1)
                size = columns, rows
            elif marker == _JPEG_EXIF and data[at : at + 6] == b"Exif\0\0" and turned is None:
                turned = _tiff_orientation(data[at + 6 :])
    return size, turned or 1


def _tiff_orientation(data: bytes) -> int:
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        return 1
    with suppress(struct.error):
        (first,) = struct.unpack_from(f"{order}I", data, 4)
        (count,) = struct.unpack_from(f"{order}H", data, first)
        for at in range(first + 2, first + 2 + 12 * count, 12):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", data, at)
            if tag == _TIFF_ORIENTATION:
                return value if 1 <= value <= 8 else 1
    return 1


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the marker of each segment before the pixels, and where its contents begin.

    Raises struct.error where the file ends within one.
    """
    at = 2
    while at < len(data) and data[at] == 0xFF:
        if data[at + 1 : at + 2] == b"\xff":  # padding
            at += 1
            continue
        marker, length = struct.unpack_from(">xBH", data, at)
        if marker == _JPEG_PIXELS:
            return
        yield marker, at + 4
        at += 2 + length


def is_sound(data: bytes) -> bool:
    """Whether it is a sound, by its first bytes."""
    if data.startswith((b"ID3", b"fLaC")) or (data[:4] == b"RIFF" and data[8:12] == b"WAVE"):
        return True
    return _is_mp3(data) and data[1] != 0xD8  # the second byte of a JPEG
