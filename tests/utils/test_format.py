"""Byte counts, parameter counts, times and foreign text in one line of output."""

import time

import pytest

from localspec.utils.format import ago, counted, format_bytes, format_count, printable


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (812, "812 bytes"),
        (1_000, "1.0 kB"),
        (81_500_000, "81.5 MB"),
        (4_700_000_000, "4.70 GB"),
        (10_000_000_000_000, "10.00 TB"),
    ],
)
def test_bytes(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (12, "12"),
        (1_500, "1.5K"),
        (4_260_000, "4.3M"),
        (135_000_000, "135M"),
        (7_600_000_000, "7.6B"),
    ],
)
def test_parameters(number: int, text: str) -> None:
    assert format_count(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (90, "1 minute ago"),
        (3 * 86400, "3 days ago"),
        (8 * 86400, "1 week ago"),
        (800 * 86400, "2 years ago"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert ago(time.time() - seconds) == text


def test_foreign_text_cannot_move_the_cursor() -> None:
    assert printable("é\x1b[2J\n") == "é?[2J?"
    assert printable("a\r\n\tb", also="\n\t", instead="_") == "a_\n\tb"


@pytest.mark.parametrize(("number", "said"), [(0, "0 users"), (1, "1 user"), (2, "2 users")])
def test_a_number_has_its_noun(number: int, said: str) -> None:
    assert counted(number, "user") == said
