"""EarlierTexts: what several drafters copy from, while texts end in any thread."""

import gc
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from fakes.indexed import indexed
from fakes.past_texts import loaded
from fakes.served import wait_for
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.drawn_from import DrawnText
from localspec.drafters.earlier_texts import CONTEXT, KEPT_TOKENS, EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.drafters.suffix_automaton import NOWHERE, Match, SuffixAutomaton
from localspec.drafters.suffix_store import PastTexts
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

SAMPLER = Sampler(SamplingParams(temperature=0.0), Noise(0))
PREFIX = SAMPLER.prefix([])
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=6)


def shared(texts: Sequence[Sequence[int]] = (), **options: int) -> tuple[EarlierTexts, Suffix]:
    """Texts that two drafters copy from, and one of the drafters."""
    earlier = EarlierTexts(texts, **options)
    readers = [Suffix(earlier=earlier) for _ in range(2)]
    # The other one lives as long.
    earlier.other = readers[1]  # type: ignore[attr-defined]
    return earlier, readers[0]


def require_real(index: SuffixAutomaton, match: Match | None, text: Sequence[int]) -> None:
    """A match is an occurrence of the text's end, with a token after it."""
    if match is None:
        return
    start, after = match.end + 1 - match.length, match.end + 1
    assert 1 <= match.length <= len(text)
    assert index.tokens[start:after].tolist() == [*text[-match.length :]]
    assert index.tokens[after] >= 0


def found_in(index: SuffixAutomaton, text: Sequence[int]) -> Match | None:
    """What is found for a text that begins now."""
    position = NOWHERE
    for token in text:
        position = index.advance(position, token)
    return index.occurrence(position)


def longest(texts: Sequence[Sequence[int]], text: Sequence[int]) -> int:
    """The length of the longest end of a text that occurs in others with a token after it."""
    for length in range(len(text), 0, -1):
        end = [*text[-length:]]
        for other in texts:
            places = range(len(other) - length)
            if any([*other[place : place + length]] == end for place in places):
                return length
    return 0


@given(TEXTS, st.lists(st.integers(0, 2), min_size=1, max_size=40), st.randoms())
def test_a_position_stays_right_while_the_index_grows(
    texts: list[list[int]], text: list[int], random: Random
) -> None:
    index, position, added, waiting = SuffixAutomaton(), NOWHERE, list[list[int]](), [*texts]
    for end, token in enumerate(text, 1):
        while waiting and random.random() < 0.3:
            index.extend(waiting[-1])
            index.end_text()
            added.append(waiting.pop())
        require_real(index, index.occurrence(position), text[: end - 1])
        position = index.advance(position, token)
        require_real(index, index.occurrence(position), text[:end])
    # Who begins now finds what an index finds that was made at once.
    other = SuffixAutomaton()
    for each in added:
        other.extend(each)
        other.end_text()
    assert found_in(index, text) == found_in(other, text)
    match = found_in(index, text)
    assert (match.length if match else 0) <= longest(added, text)


def test_a_position_whose_state_is_split_keeps_its_length() -> None:
    index, text = SuffixAutomaton(), [2, 3, 7, 8]
    for each in ([0, 1, 2, 3, 4], [9, 3, 9]):
        index.extend(each)
        index.end_text()
    position = NOWHERE
    for token in text[:2]:
        position = index.advance(position, token)
    index.extend([5, 1, 2, 3, 7, 8, 6])  # 1, 2, 3 has an end of its own now
    index.end_text()
    for end in (3, 4):
        position = index.advance(position, text[end - 1])
        require_real(index, index.occurrence(position), text[:end])
    assert index.occurrence(position) is not None
    assert position.length == 4


def test_what_is_found_is_no_longer_than_the_position() -> None:
    index, position = SuffixAutomaton(), NOWHERE
    index.extend([0, 1, 2, 3])
    index.end_text()
    for token in (2, 3):
        position = index.advance(position, token)
    index.extend([5, 1, 2, 3, 7])
    index.end_text()
    assert index.occurrence(position) == Match(2, 8)


@given(TEXTS, TEXTS, st.lists(st.integers(0, 2), max_size=20))
def test_what_is_added_is_copied_as_what_was_given(
    first: list[list[int]], then: list[list[int]], text: list[int]
) -> None:
    earlier, _ = shared(first)
    for each in then:
        earlier.add(each)
    assert longest([*first, *then], text) == longest(indexed(earlier), text)


def test_a_text_that_goes_on_from_one_is_added_behind_it() -> None:
    earlier, _ = shared()
    random = Random(1)
    text = [random.randrange(1000) for _ in range(600)]
    earlier.add(text[:300])
    earlier.add(text[:500])
    earlier.add(text[:400])
    earlier.add(text)
    turns = [text[:300], text[300 - CONTEXT : 500], text[500 - CONTEXT :]]
    assert indexed(earlier) == turns


def test_one_drafter_alone_knows_its_own_texts() -> None:
    earlier = EarlierTexts([[1, 2]])
    alone = Suffix(earlier=earlier)
    earlier.add([3, 4])
    assert indexed(earlier) == [[1, 2]]
    others = [Suffix(earlier=earlier)]
    earlier.add([5, 6])
    assert indexed(earlier) == [[1, 2], [5, 6]]
    others.clear()
    gc.collect()
    earlier.add([7, 8])
    assert indexed(earlier) == [[1, 2], [5, 6]]
    alone.begin([])


def test_the_latest_texts_are_kept() -> None:
    earlier, drafter = shared([[1, 2, 3]], kept=60)
    first = earlier.up_to_date().texts
    for text in range(10):
        earlier.add([1000 + 10 * text + place for place in range(10)])
        kept = sum(map(len, indexed(earlier)))
        assert kept <= 3 + 90
    assert earlier.up_to_date().texts is not first
    texts = indexed(earlier)
    assert texts[0] == [1, 2, 3]
    assert texts[-1] == [*range(1090, 1100)] and len(texts) >= 5
    # A drafter goes over to the other index with its next text.
    drafter.begin([1090, 1091])
    assert drafter._past is earlier.up_to_date().texts and drafter._past_match


def pushed_by(earlier: EarlierTexts, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many entries are made by the next call that brings the index up to date."""
    count, append = 0, SuffixAutomaton._append

    def counted(index: SuffixAutomaton, token: int) -> None:
        nonlocal count
        count += 1
        append(index, token)

    with monkeypatch.context() as patched:
        patched.setattr(SuffixAutomaton, "_append", counted)
        earlier.up_to_date()
    return count


@pytest.mark.parametrize("staying", [0, 500])
def test_the_latest_texts_are_indexed_again_some_for_each_text(
    staying: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step waits for all of them."""
    given_texts = [[*range(staying)]] if staying else []
    kept, size = 1000, 20
    earlier, drafter = shared(given_texts, kept=kept)
    indexes, most, added = list[SuffixAutomaton](), 0, list[list[int]]()
    for number in range(400):
        added.append([*range(1000 * (number + 1), 1000 * (number + 1) + size - 1)])
        earlier.add(added[-1])
        most = max(most, pushed_by(earlier, monkeypatch))
        if (index := earlier.up_to_date().texts) not in indexes:
            indexes.append(index)
        # The texts that stay, and the latest others.
        found = indexed(earlier)
        assert found[: len(given_texts)] == given_texts
        others = found[len(given_texts) :]
        assert others == added[-len(others) :]
        assert min(number + 1, kept // size) <= len(others) <= 1.5 * kept / size + 1
    assert len(indexes) > 10 and drafter
    # A text, and what is left of it and of the others for each token until there are too many.
    assert most <= size * (1 + (staying + kept) / (kept / 2)) + 2 * size


def test_what_is_forgotten_while_texts_are_indexed_again_does_not_come_back() -> None:
    earlier, drafter = shared([[1, 2, 3]], kept=80)
    texts = [[*range(100 * number, 100 * number + 19)] for number in range(1, 20)]
    for text in texts[:5]:
        earlier.add(text)
        earlier.up_to_date()
    drafter.forget()
    for number, text in enumerate(texts[5:], start=6):
        earlier.add(text)
        found = indexed(earlier)
        assert found[0] == [1, 2, 3] and found[1:] == texts[number - len(found) + 1 : number]
        assert len(found) - 1 >= min(number - 5, 4)


@pytest.mark.parametrize("allowed", range(4))
def test_an_interrupt_while_they_are_indexed_again_loses_nothing(
    allowed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier, drafter = shared([[1, 2, 3]], kept=60)
    texts = [[*range(100 * number, 100 * number + 19)] for number in range(1, 9)]
    for text in texts[:4]:
        earlier.add(text)
        earlier.up_to_date()
    left, read = allowed, SuffixAutomaton.read

    def interrupted(index: SuffixAutomaton, tokens: Sequence[int]) -> None:
        nonlocal left
        for token in tokens:
            left -= 1
            if left < 0:
                index._length.append(0)  # half of a new state
                raise KeyboardInterrupt
            read(index, [token])

    with monkeypatch.context() as patched:
        patched.setattr(SuffixAutomaton, "read", interrupted)
        earlier.add(texts[4])
        with pytest.raises(KeyboardInterrupt):
            earlier.up_to_date()
    assert indexed(earlier)[-2:] == texts[3:5]
    for text in texts[5:]:
        earlier.add(text)
        assert indexed(earlier)[-2:] == texts[texts.index(text) - 1 : texts.index(text) + 1]
        drafter.begin(text[:5])
        assert drafter._past_match and drafter._past_match.length == 5


def test_what_is_forgotten_is_what_has_ended() -> None:
    earlier, drafter = shared([[1, 2, 3]])
    earlier.add([4, 5, 6])
    drafter.begin([4, 5])
    assert drafter._past_match
    drafter.forget()
    drafter.begin([4, 5])
    assert not drafter._past_match and indexed(earlier) == [[1, 2, 3]]


@pytest.mark.parametrize("allowed", range(3))
def test_an_interrupt_leaves_an_index(allowed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier, drafter = shared([[1, 2, 3]])
    earlier.add([4, 5, 6])
    assert len(indexed(earlier)) == 2
    left, append = allowed, SuffixAutomaton._new_state

    def interrupted(index: SuffixAutomaton, *state: int) -> int:
        nonlocal left
        left -= 1
        if left == -1:
            index._length.append(0)  # half of a new state
            raise KeyboardInterrupt
        return append(index, *state)

    monkeypatch.setattr(SuffixAutomaton, "_new_state", interrupted)
    earlier.add([7, 8, 9])
    with pytest.raises(KeyboardInterrupt):
        drafter.begin([7, 8])
    assert indexed(earlier) == [[1, 2, 3]]
    earlier.add([7, 8, 9])
    drafter.begin([7, 8])
    assert drafter._past_match and indexed(earlier) == [[1, 2, 3], [7, 8, 9]]


def test_a_text_that_is_written_meets_whole_texts_only() -> None:
    """While it copies from a text, others end: they wait until a text begins."""
    earlier, drafter = shared()
    text = [*range(40)]
    earlier.add(text)
    drafter.begin(text[:10])
    for place in range(10, 40):
        earlier.add([*text[: place + 1], 100 + place])
        [copied] = drafter.propose(Limit(1, PREFIX, SAMPLER)).tokens
        assert copied == place
        drafter.observe(Outcome([place], 1))
        assert len(drafter._past.tokens) == len(text) + 1
    assert not drafter.propose(Limit(4, PREFIX, SAMPLER)).tokens
    drafter.begin([1000])
    assert len(drafter._past.tokens) > len(text) + 1


def test_texts_may_end_in_many_threads() -> None:
    earlier, drafter = shared()
    count, size = 8, 25
    stop = threading.Event()

    def text(writer: int, number: int) -> list[int]:
        first = 1000 * writer + 20 * number
        return [*range(first, first + 20)]

    def read() -> None:
        random = Random(2)
        while not stop.is_set():
            known = text(random.randrange(count), random.randrange(size))
            drafter.begin(known[:5])
            match = drafter._past_match
            if match:
                assert match.length <= 5

    def write(writer: int) -> None:
        for number in range(size):
            earlier.add(text(writer, number))

    with ThreadPoolExecutor(count + 1) as pool:
        reading = pool.submit(read)
        for done in [pool.submit(write, writer) for writer in range(count)]:
            done.result()
        stop.set()
        reading.result()
    assert sorted(indexed(earlier)) == [
        text(writer, number) for writer in range(count) for number in range(size)
    ]


def test_texts_are_stored_in_order_by_another_thread(tmp_path: Path) -> None:
    written: list[tuple[str, list[list[int]]]] = []

    class Watched(PastTexts):
        def add(self, *texts: DrawnText) -> None:
            written.append((threading.current_thread().name, [[*text.tokens] for text in texts]))
            super().add(*texts)

    store = Watched("v", tmp_path)
    earlier = EarlierTexts(store=store)
    earlier.write()
    assert not written
    earlier.add([1])
    wait_for(lambda: written)  # the first one at once
    for text in range(2, 6):
        earlier.add([text])
    earlier.write()
    assert loaded(store) == [[1], [2], [3], [4], [5]]
    assert written == [("past texts", [[1]]), ("past texts", [[2], [3], [4], [5]])]
    earlier.add([6])
    earlier.end()
    earlier.add([7])
    wait_for(lambda: loaded(store)[-1] == [6])


@pytest.mark.parametrize("end", ["", "earlier.end()", "del earlier"])
def test_a_process_that_ends_has_stored_its_texts(tmp_path: Path, end: str) -> None:
    """Also where nothing was closed."""
    code = f"""
import sys
from pathlib import Path
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix_store import PastTexts
earlier = EarlierTexts(store=PastTexts("v", Path(sys.argv[1])))
for text in range(1, 4):
    earlier.add([text])
{end}
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert loaded(PastTexts("v", tmp_path)) == [[1], [2], [3]]


def test_an_idle_process_has_stored_its_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.drafters.past_writer._SECONDS_BETWEEN", 0.5)
    store = PastTexts("v", tmp_path)
    earlier = EarlierTexts(store=store)
    earlier.add([1])
    wait_for(lambda: loaded(store) == [[1]])
    earlier.add([2])
    earlier.add([3])
    wait_for(lambda: loaded(store) == [[1], [2], [3]])
    earlier.end()


def test_agents_with_long_prompts_add_their_new_turns_only() -> None:
    earlier, _ = shared()
    random = Random(3)
    prompts = [[random.randrange(30_000) for _ in range(40_000)] for _ in range(4)]
    for prompt in prompts:
        earlier.add([*prompt])
    # Of each its end; the first of them are gone already.
    before = earlier.up_to_date().texts
    size = len(before.tokens)
    assert size <= 1.5 * KEPT_TOKENS + 4
    for turn in range(8):
        prompts[turn % 4] += [random.randrange(30_000) for _ in range(300)]
        earlier.add([*prompts[turn % 4]])
    assert len(earlier.up_to_date().texts.tokens) == size + 8 * (300 + CONTEXT + 1)
