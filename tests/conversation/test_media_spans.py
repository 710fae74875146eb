"""Chips: what people read of images, and what is put in their place for the model."""

from itertools import pairwise
from typing import Any

import pytest
from fakes.projectors import picture, sound
from hypothesis import given
from hypothesis import strategies as st

from localspec.conversation.media_spans import chip, media_part, replaced
from localspec.conversation.message import as_turn
from localspec.engine.media_marks import join_parts, media_mark

FILES = {"cat.png": picture(64, 48), "a/b c.png": picture(9, 7), "d.wav": sound(2.0), "": b"odd"}
TEXTS = st.text(alphabet="ab .,([\n`)é", max_size=8).map(
    lambda text: {"type": "text", "text": text}
)
PARTS = st.one_of(TEXTS, st.sampled_from([media_part(*each) for each in FILES.items()]))


@given(st.lists(PARTS, min_size=1, max_size=8))
def test_the_model_reads_what_it_reads_of_the_same_parts_elsewhere(
    parts: list[dict[str, Any]],
) -> None:
    if not any(part.get("text") for part in parts) and all("text" in part for part in parts):
        return  # an empty message
    turn = as_turn(parts, "user")
    files = [part.get("image") or part.get("audio") for part in parts]
    assert [span.data for span in turn.media] == [data for data in files if data]
    for span in turn.media:
        assert turn.content[span.start : span.end].strip() == chip(span.name, span.data)
    assert all(one.end <= other.start for one, other in pairwise(turn.media))
    marks = ((span.start, span.end, media_mark(span.data)) for span in turn.media)
    expected = [
        media_mark(data) if data else part["text"] for part, data in zip(parts, files, strict=True)
    ]
    assert replaced(turn.content, marks) == join_parts(expected)


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("a/cat.png", picture(64, 48), "[cat.png 64 x 48]"),
        ("", picture(64, 48), "[image 64 x 48]"),
        ("d.wav", sound(2.0), "[d.wav 2 s]"),
        ("", sound(200.0, rate=4000), "[sound 3 min]"),
        ("d.mp3", b"\xff\xfb" + bytes(2000), "[d.mp3 2.0 kB]"),
        ("\x1b]0;x\x07.png", picture(64, 48), "[?]0;x?.png 64 x 48]"),
        ("a.png", b"odd", "[a.png 3 bytes]"),
    ],
)
def test_chips(name: str, data: bytes, shown: str) -> None:
    assert chip(name, data) == shown
