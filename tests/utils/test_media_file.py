"""What kind of file an image or a sound is, by its first bytes."""

import contextlib
import struct

import pytest
from fakes.projectors import picture
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import InvalidValueError
from localspec.utils.media_file import MOST_PIXELS, image_size, require_readable

FRAME = struct.pack(">BBHBHHB", 0xFF, 0xC2, 17, 8, 300, 400, 3)
TABLE = b"\xff\xe1" + struct.pack(">H", 2 + 5) + b"EXIF\0"


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (picture(7, 5), (7, 5)),
        (b"GIF89a" + struct.pack("<HH", 31, 9), (31, 9)),
        (b"BM" + bytes(16) + struct.pack("<ii", 64, -48), (64, 48)),
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


@given(st.binary(max_size=40), st.sampled_from([b"", picture()[:8], b"GIF89a", b"BM", b"\xff\xd8"]))
def test_any_bytes_are_no_error(data: bytes, first: bytes) -> None:
    size = image_size(first + data)
    assert size is None or len(size) == 2
    with contextlib.suppress(InvalidValueError):
        require_readable(first + data, images=True, sounds=True)


@pytest.mark.parametrize(
    "sound", [b"ID3\4", b"fLaC", b"RIFF\0\0\0\0WAVEfmt ", b"\xff\xfb\x90", b"\xff\xf3\x90"]
)
def test_sounds_and_images_are_told_apart(sound: bytes) -> None:
    require_readable(sound, images=False, sounds=True)
    with pytest.raises(InvalidValueError, match="hears nothing"):
        require_readable(sound, images=True, sounds=False)
    require_readable(picture(), images=True, sounds=False)
    with pytest.raises(InvalidValueError, match="sees nothing"):
        require_readable(picture(), images=False, sounds=True)


def test_too_many_pixels() -> None:
    def image(columns: int, rows: int) -> bytes:
        return b"BM" + bytes(16) + struct.pack("<ii", columns, rows)

    require_readable(image(MOST_PIXELS // 8, 8), images=True, sounds=False)
    for columns, rows in ((MOST_PIXELS, 2), (0, 9), (-3, 9)):
        with pytest.raises(InvalidValueError, match="pixels was given"):
            require_readable(image(columns, rows), images=True, sounds=False)
