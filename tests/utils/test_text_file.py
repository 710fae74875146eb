"""Text files that a user names: one line says what is wrong with a file, and what to do instead."""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.generate_runs import posix

from localspec.errors import InvalidValueError
from localspec.utils.bounded_file import MOST_TEXT_BYTES
from localspec.utils.text_file import read_text_file

REMEDY = "name another"
SAVE_IT = "; save it as UTF-8, or name another"


def larger(file: Path) -> None:
    """A file without blocks on the disk."""
    with file.open("wb") as opened:
        opened.truncate(MOST_TEXT_BYTES + 1)


def bytes_of(data: bytes) -> Callable[[Path], Any]:
    return lambda file: file.write_bytes(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        ("\ufeffé\r\nb\n".encode(), "é\nb\n"),
        ("a\ufeff\r".encode(), "a\ufeff\r"),
        ("\ufeffé😀\r\nb\n".encode("utf-16-le"), "é😀\nb\n"),
        ("\ufeff\ufeffé".encode("utf-16-be"), "\ufeffé"),
    ],
)
def test_what_is_read(tmp_path: Path, data: bytes, text: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    for only_regular in (True, False):
        assert read_text_file("--x", file, REMEDY, only_regular=only_regular) == text


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda _: None, "No such file or directory; name another"),
        (bytes_of(b"\xef\xbb\xbfab\xff"), f"it is not UTF-8, byte 5 is 0xff{SAVE_IT}"),
        (bytes_of(b"caf\xe9"), f"it is not UTF-8, byte 3 is 0xe9{SAVE_IT}"),
        (bytes_of(b"\xff\xfea\x00b"), f"it is not UTF-16, byte 4 is 0x62{SAVE_IT}"),
        (bytes_of("\ufeffa".encode("utf-32-le")), "it is no text; name another"),
        (bytes_of("ab".encode("utf-16-le")), "it is no text; name another"),
        (larger, "it is larger than 67.1 MB; name another"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, make: Callable[[Path], Any], problem: str) -> None:
    file = tmp_path / "a\x7fb.txt"
    make(file)
    for only_regular in (True, False):
        with pytest.raises(InvalidValueError) as raised:
            read_text_file("--x", file, REMEDY, only_regular=only_regular)
        message = str(raised.value)
        assert message.startswith(f"--x {tmp_path}{os.sep}a?b.txt: {problem}")
        assert message.endswith(REMEDY)


def test_a_reader_may_take_less_than_others(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("abc")
    assert read_text_file("--x", file, REMEDY, most=3) == "abc"
    with pytest.raises(InvalidValueError, match="it is larger than 2 bytes; name another"):
        read_text_file("--x", file, REMEDY, most=2)


def test_a_folder(tmp_path: Path) -> None:
    for only_regular in (True, False):
        with pytest.raises(InvalidValueError, match=f"^--x {re.escape(str(tmp_path))}: .*another$"):
            read_text_file("--x", tmp_path, REMEDY, only_regular=only_regular)


@posix
@pytest.mark.skipif(os.name == "posix" and os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_is_not_for_this_user(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a")
    file.chmod(0)
    with pytest.raises(InvalidValueError, match=r"Permission denied; name another$"):
        read_text_file("--x", file, REMEDY)


@posix
def test_a_pipe_is_read_only_if_it_was_named(tmp_path: Path) -> None:
    """`--grammar <(command)`; in a folder nobody may ever write to it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidValueError, match="it is no regular file"):
        read_text_file("--x", pipe, REMEDY, only_regular=True)
    writer = threading.Thread(target=pipe.write_text, args=("text",))
    writer.start()
    assert read_text_file("--x", pipe, REMEDY) == "text"
    writer.join()
