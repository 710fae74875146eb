"""What kind of file an image or a sound is, by its first bytes."""

import contextlib
import struct

import numpy as np
import pytest
from fakes.projectors import photo, picture, sound
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import InvalidValueError
from localspec.utils.media_file import (
    MOST_PIXELS,
    MOST_SECONDS,
    image_size,
    is_sound,
    orientation,
    other_image,
    require_readable,
    sound_seconds,
)

FRAME = struct.pack(">BBHBHHB", 0xFF, 0xC2, 17, 8, 300, 400, 3)
TABLE = b"\xff\xe1" + struct.pack(">H", 2 + 5) + b"EXIF\0"


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (picture(7, 5), (7, 5)),
        (b"GIF89a" + struct.pack("<HH", 31, 9), (31, 9)),
        (b"BM" + bytes(12) + struct.pack("<Iii", 40, 64, -48), (64, 48)),
        (b"BM" + bytes(12) + struct.pack("<IHH", 12, 4, 5), (4, 5)),
        (picture(7, 5)[:8] + b"\0\0\0\4CgBI" + picture(7, 5)[8:], None),
        (b"\xff\xd8" + TABLE + TABLE + FRAME, (400, 300)),
        (b"\xff\xd8" + TABLE + b"\xff\xff" + FRAME, (400, 300)),
        (b"\xff\xd8" + TABLE, None),
        (b"\xff\xd8" + TABLE + b"\0" + FRAME, None),
        (b"\xff\xd8\xff\xc4" + struct.pack(">H", 2) + FRAME, (400, 300)),
        (b"GIF88a" + struct.pack("<HH", 31, 9), None),
        (b"RIFF\0\0\0\0WEBPVP8 ", None),
        (b"", None),
    ],
)
def test_the_size_of_an_image(data: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(data) == size


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"RIFF\x0a\x0a\0\0WEBPVP8 ", "a WebP image"),
        (b"\0\0\0\x20ftypavif", "an AVIF image"),
        (b"\0\0\0\x0aftypheic", "a HEIC image"),
        (b"\0\0\0\x18ftypmif1", "a HEIC image"),
        (b"II*\0\x08\0\0\0", "a TIFF image"),
        (b"MM\0*\0\0\0\x08", "a TIFF image"),
        (b"\xff\x0a\xfa", "a JPEG XL image"),
        (b"\0\0\0\x0cJXL \x0d\x0a", "a JPEG XL image"),
        (b"\0\0\0\x20ftypM4A ", None),
        (b"WEBP", None),
        (picture(), None),
        (sound(0.1), None),
    ],
)
def test_images_of_other_kinds_are_named(data: bytes, kind: str | None) -> None:
    assert other_image(data) == kind
    if kind:
        with pytest.raises(InvalidValueError, match=f"{kind} was given; convert it to JPEG or PNG"):
            require_readable(data, images=True, sounds=True)


@pytest.mark.parametrize("turned", [None, 0, 1, 6, 8, 9, 65535])
@pytest.mark.parametrize("order", "<>")
def test_how_a_photo_is_turned(turned: int | None, order: str) -> None:
    file = photo(np.array([[1, 2]]), turned=turned, order=order)
    assert orientation(file) == (turned if turned in (6, 8) else 1)
    assert image_size(file) == ((8, 16) if turned in (6, 8) else (16, 8))


@given(st.integers(0, 60), st.integers(0, 255))
def test_damaged_words_about_a_photo_turn_it_otherwise_at_most(at: int, byte: int) -> None:
    file = bytearray(photo(np.array([[1, 2]]), turned=6))
    file[at] = byte
    for data in (bytes(file), bytes(file[:at])):
        assert 1 <= orientation(data) <= 8
        assert image_size(data) is None or max(image_size(data) or ()) > 0


@given(st.binary(max_size=40), st.sampled_from([b"", picture()[:8], b"GIF89a", b"BM", b"\xff\xd8"]))
def test_any_bytes_are_no_error(data: bytes, first: bytes) -> None:
    size = image_size(first + data)
    assert size is None or len(size) == 2
    with contextlib.suppress(InvalidValueError):
        require_readable(first + data, images=True, sounds=True)


def flac(rate: int, samples: int) -> bytes:
    packed = rate << 44 | 1 << 41 | 15 << 36 | samples
    return b"fLaC\x80\0\0\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(16)


def mp3(tag: bytes = b"", size: int = 400) -> bytes:
    return b"\xff\xfb\x90\x64" + bytes(32) + tag + bytes(size)


def wav(rate: int = 16000, kind: int = 1, claimed: int = 32000) -> bytes:
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, kind, 1, rate, 2 * rate, 2, 16)
    return b"RIFF\0\0\0\0WAVE" + form + struct.pack("<4sI", b"data", claimed) + bytes(32000)


TAG = b"ID3\4\0\0\0\0\0\5abcde"


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        (wav(), 1.0),
        (sound(0.25, 8000), 0.25),
        (flac(48000, 96000), 2.0),
        (mp3(), 0.0),
        (TAG + mp3(), 0.0),
        (mp3(b"Xing" + struct.pack(">II", 1, 1000)), 1000 * 1152 / 44100),
        (mp3(b"Info" + struct.pack(">II", 3, 2**31)), 2**31 * 1152 / 44100),
        (flac(44100, 2**36 - 1), (2**36 - 1) / 44100),
        # The library would make room for more than there is.
        (wav(claimed=2**32 - 1), None),
        (wav(rate=1), None),
        (wav(kind=17), None),
        (flac(1, 1000), None),
        (flac(44100, 0), None),
        (b"fLaC", None),
        (TAG + flac(44100, 2**36 - 1), None),
        (b"ID3", None),
        (mp3(b"Xing" + struct.pack(">II", 2, 1000)), None),
        (mp3(size=8_000_000), None),
    ],
)
def test_the_length_of_a_sound(data: bytes, seconds: float | None) -> None:
    assert is_sound(data)
    found = sound_seconds(data)
    assert found is seconds or found == pytest.approx(seconds)
    if seconds is not None and seconds <= MOST_SECONDS:
        require_readable(data, images=False, sounds=True)
        return
    told = "length cannot be trusted" if seconds is None else "seconds was given; cut it"
    with pytest.raises(InvalidValueError, match=told):
        require_readable(data, images=True, sounds=True)


@given(st.binary(max_size=60), st.sampled_from([b"ID3", b"fLaC", b"RIFF....WAVE", b"\xff\xfb"]))
def test_any_sound_is_no_error(data: bytes, first: bytes) -> None:
    seconds = sound_seconds(first + data)
    assert seconds is None or seconds >= 0


def test_sounds_and_images_are_told_apart() -> None:
    for each in (wav(), flac(48000, 96000), mp3(), TAG + mp3()):
        require_readable(each, images=False, sounds=True)
        with pytest.raises(InvalidValueError, match="hears nothing"):
            require_readable(each, images=True, sounds=False)
    require_readable(picture(), images=True, sounds=False)
    with pytest.raises(InvalidValueError, match="sees nothing"):
        require_readable(picture(), images=False, sounds=True)


def test_too_many_pixels() -> None:
    def image(columns: int, rows: int) -> bytes:
        return b"BM" + bytes(12) + struct.pack("<Iii", 40, columns, rows)

    require_readable(image(MOST_PIXELS // 8, 8), images=True, sounds=False)
    for columns, rows in ((MOST_PIXELS, 2), (0, 9), (-3, 9)):
        with pytest.raises(InvalidValueError, match="pixels was given"):
            require_readable(image(columns, rows), images=True, sounds=False)
