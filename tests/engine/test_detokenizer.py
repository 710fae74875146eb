"""Detokenizer against a reference that sees the whole text at once."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localspec.engine.detokenizer import Detokenizer

# A small alphabet, so that stops do occur; one letter for each length of a UTF-8 character.
LETTERS = "abé€𝄞\n"
texts = st.text(LETTERS, max_size=30)
stops = st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=3)
cuts = st.lists(st.integers(0, 120), max_size=40)


def pieces(data: bytes, places: Sequence[int]) -> list[bytes]:
    """The bytes, cut at these places; some pieces may be empty, as those of control tokens are."""
    ends = [*sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def streamed(parts: Sequence[bytes], stop: Sequence[str]) -> tuple[list[str], Detokenizer]:
    stream = Detokenizer(stop)
    return [*(stream.push(part) for part in parts), stream.flush()], stream


def cut_at_stop(text: str, stop: Sequence[str], *, standing: int = 0) -> tuple[str, bool]:
    """The text before the stop that is complete first (of several, the longest).

    standing: none may be complete within so many characters.
    """
    for end in range(standing + 1, len(text) + 1):
        begins = [end - len(each) for each in stop if text[:end].endswith(each)]
        if begins:
            return text[: min(begins)], True
    return text, False


@given(text=texts, stop=stops, places=cuts)
@example(text="abab", stop=["ab"], places=[1, 2, 3])
@example(text="aab", stop=["ab"], places=[1, 2])
@example(text="abcdef", stop=["abcdef", "cd"], places=[])
@example(text="abcdef", stop=["abcdef", "cd"], places=[1, 2, 3, 4, 5])
@example(text="€€", stop=["€"], places=[1, 2])
def test_the_text_up_to_the_first_stop_however_it_was_cut(
    text: str, stop: list[str], places: list[int]
) -> None:
    got, stream = streamed(pieces(text.encode(), places), stop)
    assert ("".join(got), stream.stopped) == cut_at_stop(text, stop)


@given(text=texts, places=cuts)
def test_whole_characters_only(text: str, places: list[int]) -> None:
    """After each piece, exactly the characters that are complete."""
    stream, data, shown = Detokenizer(), b"", ""
    for part in pieces(text.encode(), places):
        data += part
        shown += stream.push(part)
        assert shown == data.decode("utf-8", "ignore")
    assert stream.flush() == ""


@given(text=texts, stop=stops, places=cuts)
def test_nothing_is_held_back_that_cannot_begin_a_stop(
    text: str, stop: list[str], places: list[int]
) -> None:
    stream, data, shown = Detokenizer(stop), b"", ""
    for part in pieces(text.encode(), places):
        data += part
        shown += stream.push(part)
        complete = data.decode("utf-8", "ignore")
        if stream.stopped:
            break
        held = complete.removeprefix(shown)
        assert shown + held == complete
        assert not held or any(each.startswith(held) and each != held for each in stop)


@given(data=st.binary(max_size=40), places=cuts)
def test_bytes_that_are_no_text_are_replaced_the_same_way_however_cut(
    data: bytes, places: list[int]
) -> None:
    got, _ = streamed(pieces(data, places), [])
    assert "".join(got) == data.decode("utf-8", "replace")


def test_half_a_character_at_the_end_is_marked() -> None:
    got, stream = streamed(["é".encode()[:1]], [])
    assert got == ["", "\ufffd"]
    assert not stream.stopped


@pytest.mark.parametrize("stop", [[], ["x"]])
def test_a_byte_order_mark_is_text(stop: list[str]) -> None:
    got, _ = streamed(["\ufeffa".encode()], stop)
    assert "".join(got) == "\ufeffa"


def test_after_a_stop_nothing_comes() -> None:
    stream = Detokenizer(["end"])
    assert [stream.push(part) for part in (b"the e", b"nd", b" more")] == ["the ", "", ""]
    assert stream.stopped
    assert stream.flush() == ""


@given(first=texts, more=texts, stop=stops, places=cuts)
@example(first="€ab", more="c", stop=["ab", "€abc"], places=[])
@example(first="€ab", more="b", stop=["ab", "€abc"], places=[])
def test_what_stands_is_not_ended(
    first: str, more: str, stop: list[str], places: list[int]
) -> None:
    """A stop string that is in it is text; one that ends behind it counts, wherever it begins."""
    stream = Detokenizer(stop)
    stood = [stream.push_standing(part) for part in pieces(first.encode(), places)]
    assert "".join(stood) + stream.held == first and not stream.stopped
    got = [*stood, *(stream.push(part) for part in pieces(more.encode(), places)), stream.flush()]
    expected = cut_at_stop(first + more, stop, standing=len(first))
    assert ("".join(got), stream.stopped) == expected


def test_what_looked_like_a_stop_comes_late() -> None:
    stream = Detokenizer(["\n\ndef"])
    assert [stream.push(part) for part in (b"a\n", b"\nde", b"g")] == ["a", "", "\n\ndeg"]
    stream.push(b"\n\n")
    assert stream.flush() == "\n\n"
