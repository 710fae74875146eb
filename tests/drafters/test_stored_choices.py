"""What the tokens of past texts were drawn from, on the disk."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np
import pytest
from fakes.drawn_copies import either
from fakes.past_texts import add, loaded
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.drawn_from import DrawnFrom, DrawnText
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix_store import PastTexts, clear_all
from localspec.sampling.distribution import Distribution


def choice(token: int) -> Distribution:
    """What only this token can have been drawn from."""
    return either(token, token + 1_000_000)


def drawn(tokens: Sequence[int], known: Sequence[int] | None = None) -> DrawnText:
    """A text. known: the places of which it is known what their tokens were drawn from."""
    drawn_from = DrawnFrom()
    for place in range(len(tokens)) if known is None else known:
        drawn_from.add(place, choice(tokens[place]))
    return DrawnText(tokens, drawn_from)


def known_of(text: DrawnText) -> list[int]:
    """The tokens of which it is known what they were drawn from."""
    found = []
    for place in range(len(text.tokens) + 5):
        if kept := text.drawn_from.choice_at(place):
            token = text.tokens[place]
            assert kept.ids == [token, token + 1_000_000]
            found.append(token)
    return found


def test_it_is_read_with_the_texts(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path)
    store.add(drawn([1, 2, 3]), drawn([4, 5], []), drawn([6, 7, 8, 9], [1, 3]))
    again = PastTexts("v", tmp_path)
    again.add(drawn([10, 11], [0]))
    assert [known_of(text) for text in store.load()] == [[1, 2, 3], [], [7, 9], [10]]
    assert loaded(store) == [[1, 2, 3], [4, 5], [6, 7, 8, 9], [10, 11]]
    assert store.problem is None and again.problem is None


def test_where_the_target_was_sure_is_kept_too(tmp_path: Path) -> None:
    store, known = PastTexts("v", tmp_path), DrawnFrom()
    for place, tokens in enumerate([(5,), (6, 7), (8,)]):
        known.add(place, either(*tokens))
    greedy = DrawnFrom()
    greedy.add(0, either(9))
    store.add(DrawnText([5, 6, 8], known), DrawnText([9], greedy))
    first, second = store.load()
    assert [place for place in range(9) if first.drawn_from.was_sure(place)] == [0, 2]
    # At temperature 0 one token is likely everywhere.
    assert not second.drawn_from.was_sure(0)


def old_file(store: PastTexts, *texts: Sequence[int]) -> None:
    """A file of version 1."""
    store.folder.mkdir(exist_ok=True)
    body = np.array([entry for text in texts for entry in (*text, -1)], "<i4").tobytes()
    store.path.write_bytes(b"localspec past texts 1\n" + crc32(body).to_bytes(4, "little") + body)


def test_texts_of_an_older_version_are_read_and_kept(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path)
    old_file(store)
    assert store.load() == []
    old_file(store, [1, 2], [3])
    assert [(text.tokens, known_of(text)) for text in store.load()] == [([1, 2], []), ([3], [])]
    store.add(drawn([1, 2, 7, 8], [2, 3]))
    assert [(text.tokens, known_of(text)) for text in PastTexts("v", tmp_path).load()] == [
        ([3], []),
        ([1, 2, 7, 8], [7, 8]),
    ]
    assert store.problem is None and not list(tmp_path.glob("*.broken"))


def test_of_a_text_that_goes_on_all_answers_are_known(tmp_path: Path) -> None:
    """Also where another process wrote the beginning, which knows what that was drawn from."""
    store, text = PastTexts("v", tmp_path), [*range(10)]
    store.add(drawn(text, range(4, 10)))
    for turn in range(1, 4):
        text = [*text, *range(100 * turn, 100 * turn + 8)]
        store.add(drawn(text, range(len(text) - 3, len(text))))
    answers = [*range(4, 10), 105, 106, 107, 205, 206, 207, 305, 306, 307]
    [kept] = store.load()
    assert kept.tokens == text and known_of(kept) == answers
    # It is read, and not written: nothing new is known.
    add(store, [*text, 5])
    assert [known_of(each) for each in store.load()] == [answers]


@pytest.mark.parametrize("at_once", [False, True])
def test_of_turns_that_slots_wrote_all_answers_are_known(tmp_path: Path, at_once: bool) -> None:
    """Each slot knows its own answers alone, and others lie between them."""
    store, text, turns = PastTexts("v", tmp_path), [50, 51], list[DrawnText]()
    own = {slot: list[int]() for slot in "ABC"}
    for turn, slot in enumerate("ABACBA"):
        text = [*text, *range(100 * turn, 100 * turn + 8)]
        own[slot] += range(len(text) - 3, len(text))
        turns.append(drawn(text, own[slot]))
    for added in [turns] if at_once else [[turn] for turn in turns]:
        store.add(*added)
    [kept] = store.load()
    assert known_of(kept) == [token for token in text if token % 100 in (5, 6, 7)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(60, 800), st.integers(1, 60))
def test_the_file_has_no_more_than_fits(seed: int, max_bytes: int, max_tokens: int) -> None:
    """The latest texts as without distributions, and the latest of those that fit beside them."""
    random, texts = Random(seed), list[DrawnText]()
    for number in range(random.randrange(1, 12)):
        tokens = [*range(100 * number, 100 * number + random.randrange(1, 40))]
        places = [place for place in range(len(tokens)) if random.random() < 0.7]
        texts.append(drawn(tokens, places))
    with tempfile.TemporaryDirectory() as folder:
        at_once, one_by_one, plain = (
            PastTexts(name, Path(folder), max_bytes=max_bytes, max_tokens=max_tokens)
            for name in ("at once", "one by one", "plain")
        )
        at_once.add(*texts)
        for text in texts:
            one_by_one.add(text)
            assert one_by_one.path.stat().st_size <= max_bytes
        add(plain, *(text.tokens for text in texts))
        assert at_once.path.stat().st_size <= max_bytes
        kept, added = at_once.load(), one_by_one.load()
        assert [text.tokens for text in kept] == [text.tokens for text in added] == loaded(plain)
        assert kept
    # 12 bytes for the temperature of a text, and 10 for each choice between two tokens.
    room = max_bytes - 43 - 5 * sum(len(text.tokens) + 1 for text in kept)
    choices = {token for text in texts for token in known_of(text)}
    for text, other in zip(reversed(kept), reversed(added), strict=True):
        own = [token for token in text.tokens if token in choices]
        fit = min(len(own), max(0, room - 12) // 10)
        assert known_of(text) == own[len(own) - fit :]
        room -= 12 + 10 * fit if fit else 0
        assert known_of(other) == own[len(own) - len(known_of(other)) :]


def test_what_the_oldest_were_drawn_from_is_dropped_first(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path, max_bytes=43 + 5 * 33 + 12 * 2 + 10 * 15)
    for number in range(3):
        store.add(drawn([*range(100 * number, 100 * number + 10)]))
    assert [len(known_of(text)) for text in store.load()] == [0, 5, 10]
    assert [len(text.tokens) for text in store.load()] == [10, 10, 10]


def test_a_damaged_distribution_is_set_aside_with_the_file(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path)
    store.add(drawn([1, 2, 3]))
    data = store.path.read_bytes()
    body = bytearray(data[27:])
    body[-1] ^= 1  # how many tokens were likely at the last place
    store.path.write_bytes(data[:23] + crc32(body).to_bytes(4, "little") + body)
    assert store.load() == []
    assert store.problem and "holds impossible distributions; it was renamed" in store.problem
    assert store.path.with_suffix(".broken").exists()


@pytest.mark.parametrize("count", [0, 1, 2, 5, 2**31])
def test_a_wrong_number_of_entries_is_no_file(tmp_path: Path, count: int) -> None:
    store = PastTexts("v", tmp_path)
    store.add(drawn([1, 2, 3]))
    data = store.path.read_bytes()
    body = count.to_bytes(4, "little") + data[31:]
    store.path.write_bytes(data[:23] + crc32(body).to_bytes(4, "little") + body)
    assert store.load() == [] and store.problem


def test_nothing_of_it_is_left_behind(tmp_path: Path) -> None:
    store = PastTexts("v", tmp_path)
    store.add(drawn([1, 2, 3]))
    clear_all(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] in ([".lock"], [])


def test_the_index_knows_what_stored_texts_were_drawn_from(tmp_path: Path) -> None:
    """Behind texts that were given, of which nothing is known; and after a forget, too."""
    store = PastTexts("v", tmp_path)
    store.add(drawn([*range(10, 20)]), drawn([*range(30, 40)], [3, 4]))
    earlier = EarlierTexts([[1, 2, 3], [4]], store)
    for _ in range(2):
        texts, known = earlier.up_to_date()
        whole = DrawnText([max(0, token) for token in texts.tokens], known)
        assert known_of(whole) == [*range(10, 20), 33, 34]
        earlier.forget()
    earlier.end()


def test_texts_that_end_are_stored_with_it(tmp_path: Path) -> None:
    earlier = EarlierTexts(store=PastTexts("v", tmp_path))
    for text in (drawn([1, 2, 3], [1, 2]), drawn([4, 5])):
        earlier.add(*text)
    earlier.add([6])
    earlier.write()
    assert [known_of(text) for text in PastTexts("v", tmp_path).load()] == [[2, 3], [4, 5], []]
    earlier.end()
