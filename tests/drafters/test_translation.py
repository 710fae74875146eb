"""Spelling and translation: which tokens of two vocabularies stand for each other."""

from typing import Any

import numpy as np
import pytest
from fakes.letters import AddsSpace, Letters

from localspec.drafters import translation as translation_module
from localspec.drafters.spelling import Spelling
from localspec.drafters.translation import NONE, Translation


class LettersAlone(Letters):
    """A tokenizer that merges nothing, and counts what it is asked."""

    asked = 0

    def tokenize_after(self, text: str, *, parse_special: bool) -> list[int]:
        self.asked += 1
        if parse_special:
            return super().tokenize_after(text, parse_special=True)
        return [
            token
            for each in text
            for token in super(LettersAlone, self).tokenize_after(each, parse_special=False)
        ]


def changed(letters: Letters, **attributes: Any) -> Letters:
    for name, value in attributes.items():
        setattr(letters, name, value)
    return letters


def test_the_token_of_bytes() -> None:
    spelling = Spelling(Letters("é", None, "z", "é", "z", b"\xff"))
    # An ASCII character has the token that its tokenizer gives it, other bytes the first one.
    found = [spelling.token_of(each) for each in ("é".encode(), b"z", b"\xff", b"", b"y")]
    assert found == [0, 4, 5, None, None]
    assert not spelling.adds_space and Spelling(AddsSpace("a", " ")).adds_space


@pytest.mark.parametrize(
    ("data", "first", "tokens"),
    [
        (b"a\xffa", True, [0, 2, 1]),
        (b"a\xffa", False, [1, 2, 1]),
        (b"\xffa\xff", True, [2, 1, 2]),
        # Bytes that no token spells are left out: the text still begins behind them.
        (b"\xfea", True, [0]),
        (b"\xfea\xfea", True, [0, 1]),
        # The beginning of a character, and the longest tokens of its bytes.
        (b"a\xf0\x9f\x98", False, [1, 4, 5]),
        (b"\xf0\x9f\x98\x80", False, [6]),
        (b"\xe6\x97", False, [8, 9]),
        (b"", True, []),
    ],
)
def test_the_tokens_of_bytes(data: bytes, first: bool, tokens: list[int]) -> None:
    own = AddsSpace(" a", "a", b"\xff", b"\xf0", b"\xf0\x9f", b"\x98", "😀", " ", b"\xe6", b"\x97")
    assert Spelling(own).tokens(data, first=first) == tokens


# "w z " has a w and a z in front of a space: no border is behind those, nor behind a space.
SPACED = Spelling(Letters("a", "b", " ", " a", " b", "w", "z", "w z "))


@pytest.mark.parametrize(
    ("pieces", "border"),
    [
        (["a", "b", " a", " b"], (3, 4)),
        (["a", " b"], (1, 1)),
        (["b", "a", " "], (2, 2)),
        (["a", "w", " b"], (0, 0)),
        (["a", "z", " b"], (0, 0)),
        (["a", " ", " b"], (1, 1)),
        (["a", " b", "z", " b"], (1, 1)),
        ([" ", "a", "b"], (0, 0)),
        ([" a", "b"], (0, 0)),
        ([], (0, 0)),
    ],
)
def test_a_border_is_where_no_token_reaches_across(
    pieces: list[str], border: tuple[int, int]
) -> None:
    """In front of the last space behind a byte that no token has in front of one."""
    tokens = [SPACED.pieces.index(each.encode()) for each in pieces]
    assert SPACED.last_border(tokens, "".join(pieces).encode()) == border


def test_a_border_has_tokens_of_the_text() -> None:
    own = Spelling(Letters("a", " b", " a", "  a", " "))
    assert own.last_border([0, 1], b"a b") == (1, 1)
    # A tokenizer may have put one space in front, and may have changed the text.
    assert own.last_border([2, 1], b"a b") == (1, 1)
    assert own.last_border([4, 1], b" b") == (0, 0)
    assert own.last_border([3, 1], b"a b") == (0, 0)
    assert own.last_border([2, 1], b"x b") == (0, 0)
    assert own.last_border([0], b"a b") == (0, 0)


def test_the_middle_is_between_tokens_and_characters() -> None:
    own = Spelling(Letters("a", "b", "\xc3".encode("latin-1"), "\xa9".encode("latin-1"), " a"))
    assert own.middle([0, 1, 0, 1], b"abab") == (2, 2)
    assert own.middle([0, 1, 0], b"aba") == (2, 2)
    assert own.middle([0, 2, 3, 1], "aéb".encode()) == (3, 3)
    assert own.middle([4, 1, 0, 1], b"abab") == (2, 2)
    assert own.middle([0], b"a") == (1, 1)
    assert own.middle([2, 3], "é".encode()) == (2, 2)
    assert own.middle([0, 0], b"ab") == (2, 2)


# <0> begins a text, <1> and <5> end one, <6> is another control token.
TARGET = Letters(None, None, "a", "b", "ab", None, None, bos=0, ends=[1, 5])


@pytest.mark.parametrize(
    ("own", "begins"),
    [
        (Letters("a", None, bos=1), [1]),
        (changed(Letters("a", None, bos=1), adds_bos=False), []),
        (changed(Letters("a", None), adds_bos=True), []),
    ],
)
def test_what_a_text_begins_with(own: Letters, begins: list[int]) -> None:
    assert Translation(TARGET, own).begins == begins


@pytest.mark.parametrize(
    ("target", "eos", "ends"),
    [
        # One that is written alike ends it alike; the usual end is the usual one.
        (TARGET, 4, {4: 1, 5: 5, 6: 1}),
        (TARGET, 5, {4: 1, 5: 1, 6: 1}),
        (changed(Letters(None, None, "a", None, ends=[1, 3]), eos=3), 4, {4: 3, 5: 3, 6: 3}),
        (changed(Letters(None, None, "a", None, ends=[3, 1]), eos=0), 4, {4: 1, 5: 1, 6: 1}),
        (Letters("a"), 4, {}),
    ],
)
def test_what_ends_a_text(target: Letters, eos: int, ends: dict[int, int]) -> None:
    own = changed(Letters("a", "b", None, "x", None, None, None, ends=[4, 5, 6]), eos=eos)
    translation = Translation(target, own)
    assert {token: translation.end(token) for token in range(7)} == {
        token: ends.get(token) for token in range(7)
    }
    firsts = translation.firsts(np.arange(7))
    assert {token: firsts[token] for token in (2, 4, 5, 6)} == {
        token: ends.get(token, NONE) for token in (2, 4, 5, 6)
    }


def test_the_target_s_token_that_one_begins_with() -> None:
    target = LettersAlone("a", "b", "ab", "é")
    own = Letters("abb", "ab", "ba", "x", "éa", None, "xb")
    translation, before = Translation(target, own), target.asked
    for _ in range(2):
        found = translation.firsts(np.array([4, 0, 1, 2, 3, 5, 6]))
        assert found.tolist() == [3, 0, 2, 1, NONE, NONE, 1]
    # A token of the same bytes is known without it, and the others are asked about once.
    assert target.asked - before == 5
    assert translation.firsts(np.array([0, 0])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("own", "controls"),
    [
        # What begins a text, what ends it, and another one.
        (Letters("a", None, bos=1), {0: [1], 1: [1], 6: []}),
        (Letters("a", "<", "6", ">"), {0: [], 1: [1, 3], 6: [1, 2, 3]}),
        (Letters("<", "a", None, ends=[2]), {0: [], 1: [2], 5: [2], 6: [0]}),
        (
            Letters(None, None, "a", None, None, None, None, bos=3, ends=[4]),
            {0: [3], 5: [5], 6: [6]},
        ),
    ],
)
def test_control_tokens(own: Letters, controls: dict[int, list[int]]) -> None:
    translation = Translation(TARGET, own)
    for _ in range(2):
        assert {token: translation.control(token) for token in controls} == controls


def test_a_control_token_is_looked_up_once() -> None:
    own = LettersAlone("<", "6", ">")
    translation = Translation(TARGET, own)
    before = own.asked
    assert [translation.control(6) for _ in range(3)] == [[0, 1, 2]] * 3
    assert own.asked - before == 2


def test_how_many_tokens_one_of_the_target_is() -> None:
    sample = translation_module._SAMPLE
    every, letter = Letters(*map(chr, range(128))), Letters("e")
    share = sample.count(b"e") / len(sample)
    assert Translation(every, letter).lengthening == share
    assert Translation(letter, every).lengthening == 1 / share
    assert Translation(every, Letters("ü")).lengthening == 1 / len(sample)
    assert Translation(Letters("ü"), every).lengthening == len(sample)
