"""SuffixAutomaton: every match and every copy against a search of the whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.suffix_automaton import NOWHERE, Match, SuffixAutomaton
from localspec.errors import InvalidValueError

# None ends the text.
FED = st.lists(st.one_of(st.integers(0, 2), st.integers(0, 2), st.none()), max_size=40)
TEXTS = st.lists(st.integers(0, 3), max_size=60)


def automaton(fed: list[int | None]) -> SuffixAutomaton:
    made = SuffixAutomaton()
    for token in fed:
        if token is None:
            made.end_text()
        else:
            made.push(token)
    return made


def separated(fed: list[int | None]) -> list[int]:
    """The `tokens` of an automaton, computed independently."""
    closed = iter(range(-1, -1 - len(fed), -1))
    return [next(closed) if token is None else token for token in fed]


def ends(tokens: list[int], length: int) -> list[int]:
    """Where the last `length` tokens ended before, with a token of the same text after them."""
    suffix = tokens[len(tokens) - length :]
    return [
        end
        for end in range(length - 1, len(tokens) - 1)
        if tokens[end - length + 1 : end + 1] == suffix and tokens[end + 1] >= 0
    ]


def repeat(tokens: list[int]) -> list[int]:
    """The longest suffix that occurred before, with or without a token after it."""
    for length in range(len(tokens) - 1, 0, -1):
        suffix = tokens[-length:]
        if any(
            tokens[end - length + 1 : end + 1] == suffix
            for end in range(length - 1, len(tokens) - 1)
        ):
            return suffix
    return []


@given(FED)
def test_each_row_of_an_image_ends_the_text(fed: list[int | None]) -> None:
    made = SuffixAutomaton()
    made.read([-7 if token is None else token for token in fed])
    assert list(made.tokens) == separated(fed)


@given(TEXTS)
def test_in_one_text_the_match_is_the_longest_repeat(text: list[int]) -> None:
    made = SuffixAutomaton()
    for i, token in enumerate(text):
        made.push(token)
        so_far = text[: i + 1]
        match, longest = made.match(), repeat(so_far)
        assert (match.length if match else 0) == made.repeat.length == len(longest)
        assert match is None or match.end in ends(so_far, match.length)


@given(FED)
def test_the_match_is_where_the_suffix_was_last_the_longest_repeat(fed: list[int | None]) -> None:
    tokens = separated(fed)
    repeats = [repeat(tokens[: i + 1]) for i in range(len(tokens))]
    match = automaton(fed).match()
    now = repeats[-1] if repeats else []
    same = [i for i in range(len(tokens) - 1) if repeats[i] == now and tokens[i + 1] >= 0]
    if now and same:
        assert match is not None and match[:2] == (len(now), same[-1])
    if now and len(same) > 1:
        last, before = (tokens[end + 1] for end in same[:-3:-1])
        assert match is not None and match.agreed == (last == before)


@pytest.mark.parametrize(
    ("fed", "agreed"),
    [
        ([1, 2, 5, 1, 2], None),
        ([1, 2, 5, 7, 1, 2, 5, 8, 1, 2], True),
        ([1, 2, 5, 7, 1, 2, 6, 8, 1, 2], False),
        ([1, 2, 5, 7, 1, 2, 6, 8, 1, 2, 6, 9, 1, 2], True),
        ([1, 2, 5, 7, 1, 2, 5, 8, 1, 2, 6, 9, 1, 2], False),
        # What is known of a longer suffix, which is always preceded by a 3.
        ([3, 1, 2, 5, 3, 1, 2, 5, 4, 1, 2], True),
        # A token of the next text does not follow the end of a text.
        ([1, 2, None, 1, 2, 5, 1, 2], None),
    ],
)
def test_whether_the_last_two_occurrences_went_on_alike(
    fed: list[int | None], agreed: bool | None
) -> None:
    match = automaton(fed).match()
    assert match is not None and match.length == 2
    assert match.agreed is agreed


@given(FED)
def test_matches_stay_within_texts_and_a_token_follows_them(fed: list[int | None]) -> None:
    tokens, match = separated(fed), automaton(fed).match()
    assert list(automaton(fed).tokens) == tokens
    possible = [length for length in range(1, len(tokens)) if ends(tokens, length)]
    if match is None:
        # The end of a text is an occurrence of every string that ends there.
        ended = possible and tokens[-max(possible) :]
        assert (
            not possible
            or len(repeat(tokens)) > max(possible)
            or any(
                tokens[i - len(ended) : i] == ended for i, token in enumerate(tokens) if token < 0
            )
        )
    else:
        assert match.length <= max(possible)
        assert min(tokens[len(tokens) - match.length :]) >= 0
        assert match.end in ends(tokens, match.length)


@given(FED, st.integers(1, 9))
def test_a_copy_continues_with_itself_at_the_end_of_the_text(
    fed: list[int | None], count: int
) -> None:
    made, tokens = automaton(fed), separated(fed)
    match = made.match()
    if match is None:
        return
    grown = list(tokens)
    for i in range(count):
        token = grown[match.end + 1 + i]
        if token < 0:
            break
        grown.append(token)
    copied = made.copy(match, count)
    assert copied == grown[len(tokens) :]
    assert made.copy_length(match, count) == len(copied) > 0


def test_a_period_is_continued_for_ever() -> None:
    made = automaton([7, 1, 2, 3, 1, 2, 3, 1])
    match = made.match()
    assert match == Match(4, 4, None)
    assert made.copy(match, 10) == [2, 3, 1, 2, 3, 1, 2, 3, 1, 2]


def test_of_two_occurrences_the_later_one_is_copied() -> None:
    made = automaton([1, 2, 5, 1, 2, 6, 1, 2])
    match = made.match()
    assert match is not None and made.copy(match, 3) == [6, 1, 2]


def test_nothing_is_copied_from_the_end_of_a_text() -> None:
    """A shorter match with a token after it is used instead."""
    made = automaton([2, 9, 1, 2, None, 1, 2])
    match = made.match()
    assert match == Match(1, 0, None)
    assert made.copy(match, 9) == [9, 1, 2]


@given(TEXTS)
def test_there_is_one_state_for_all_strings_that_end_at_the_same_places(text: list[int]) -> None:
    """Blumer et al.: it is the smallest possible automaton, so it takes the least memory."""
    places: dict[tuple[int, ...], list[int]] = {}
    for end in range(1, len(text) + 1):
        for start in range(end):
            places.setdefault(tuple(text[start:end]), []).append(end)
    made = SuffixAutomaton()
    made.extend(text)
    assert len(made._length) == 1 + len({tuple(ends) for ends in places.values()})


def test_separators_cannot_be_pushed() -> None:
    made = automaton([1])
    with pytest.raises(InvalidValueError, match="token is -1"):
        made.push(-1)
    assert list(made.tokens) == [1]


@given(FED, TEXTS)
def test_where_another_text_stands_in_the_index(fed: list[int | None], text: list[int]) -> None:
    made, tokens, position = automaton([*fed, None]), separated([*fed, None]), NOWHERE
    for count in range(1, len(text) + 1):
        position = made.advance(position, text[count - 1])
        known = [
            length
            for length in range(1, count + 1)
            if text[count - length : count]
            in [tokens[start : start + length] for start in range(len(tokens))]
        ]
        assert position.length == max(known, default=0)
        match = made.occurrence(position)
        if match:
            assert match.length <= position.length
            end = match.end + 1
            assert tokens[end - match.length : end] == text[count - match.length : count]
            assert tokens[end] >= 0
        else:
            # The end of a text is an occurrence of every string that ends there.
            ended = text[count - position.length : count]
            ends_at = [end for end, token in enumerate(tokens) if token < 0]
            assert not ended or any(tokens[end - 1] == ended[-1] for end in ends_at)
