"""What is known of the tokens of a text goes along with it into the texts that all copy from."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from random import Random
from threading import Event
from typing import Any
from unittest.mock import patch

import pytest
from fakes.drawn_copies import Told, either, told
from fakes.indexed import indexed

from localspec.drafters import earlier_texts, suffix
from localspec.drafters.drawn_from import Choice, DrawnFrom
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.sampling.distribution import Distribution
from localspec.speculation.drafter import Outcome
from localspec.utils.tokens import common_prefix


def written_by(drafter: Suffix, first: int, count: int) -> list[int]:
    """Let a drafter observe tokens from `first` on, each drawn from itself and the one before."""
    tokens = [*range(first, first + count)]
    drafter.observe(Outcome(tokens, 0, [either(each - 1, each) for each in tokens]))
    return tokens


def require_own(known: dict[int, Choice]) -> None:
    for token, choice in known.items():
        assert choice.ids == [token - 1, token]


@pytest.mark.parametrize("cut", [1, 3, 20, 25, 100, 149])
def test_a_text_that_is_written_again_has_what_is_known_behind_the_cut(cut: int) -> None:
    """It is known of what the index has twice where the drafter wrote it, not where it read it."""
    both = told()
    [writer, _] = both.writers
    writer.begin(text := [*range(20)])
    text += written_by(writer, 20, 130)
    both.end(0, text)
    assert [*both.known()] == text[20:]
    writer.begin(again := [*text[:cut], 500])
    again += written_by(writer, 501, 10)
    known = writer.drawn_from(again)
    assert [place for place in range(999) if known.choice_at(place)] == [*range(cut + 1, cut + 11)]
    both.end(0, again)
    require_own(both.known())
    assert [*both.known()] == [*text[20:], *range(501, 511)]


def test_of_a_text_that_goes_on_all_of_its_answers_are_known() -> None:
    both = told()
    [writer, _] = both.writers
    text, answers = list[int](), list[int]()
    for turn in range(4):
        text += range(1000 * turn, 1000 * turn + 20)
        writer.begin(text)
        answer = written_by(writer, 1000 * turn + 100, 30)
        text, answers = [*text, *answer], [*answers, *answer]
        both.end(0, text)
        require_own(both.known())
        assert [*both.known()] == answers


def test_nothing_is_known_of_a_text_that_a_drafter_does_not_have() -> None:
    [writer, _] = told().writers
    writer.begin([1, 2])
    text = [1, 2, *written_by(writer, 10, 5)]

    def known(text: Sequence[int]) -> list[int]:
        drawn_from = writer.drawn_from(text)
        return [place for place in range(20) if drawn_from.choice_at(place)]

    assert known(text) == [2, 3, 4, 5, 6] and known([*text, 7]) == known(text)
    assert known(text[:4]) == [2, 3] and known([*text[:4], 7, 8]) == [2, 3]
    assert not known([3, *text[1:]])
    writer.begin([3, 4])
    assert not known(text) and not known([3, 4, 10, 11])
    writer.forget()
    assert not known([3, 4]) and not writer.drawn_from(text)


CHANGES: dict[str, Callable[[Suffix], object]] = {
    "begun": lambda drafter: drafter.begin([3, 4, 5, 6]),
    "written": lambda drafter: written_by(drafter, 30, 1),
    "forgotten": Suffix.forget,
}


@pytest.mark.parametrize("change", CHANGES)
def test_where_the_text_is_changed_meanwhile_nothing_is_known(change: str) -> None:
    """As by another thread, once it has been found out how much of the text is the drafter's."""
    [writer, _] = told().writers
    writer.begin([1, 2])
    text = [1, 2, *written_by(writer, 10, 5)]

    def changed_meanwhile(*texts: Sequence[int]) -> int:
        shared = common_prefix(*texts)
        with patch.object(suffix, "common_prefix", common_prefix):
            CHANGES[change](writer)
        return shared

    with patch.object(suffix, "common_prefix", changed_meanwhile):
        assert not writer.drawn_from(text)
    writer.begin(text)
    text += written_by(writer, 15, 5)
    assert writer.drawn_from(text)


def test_where_the_text_is_cut_off_while_it_is_compared_nothing_is_known() -> None:
    [writer, _] = told().writers
    writer.begin([1, 2])

    class Slow(list[int]):
        """Another thread begins a text while some tokens of this one are looked up."""

        def __getitem__(self, place: Any) -> Any:
            if isinstance(place, slice):
                writer.begin([1])
            return super().__getitem__(place)

    text = Slow([1, 2, *written_by(writer, 10, 5)[:-1], 99])
    assert not writer.drawn_from(text)


def test_while_another_text_is_being_begun_nothing_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends when that has been begun."""
    [writer, _] = told().writers
    writer.begin(prompt := [*range(1000, 1100)])
    text = prompt + written_by(writer, 2000, 50)
    asked, begun = Event(), Event()

    def slow(*texts: Sequence[int]) -> int:
        shared = common_prefix(*texts)
        asked.set()
        assert begun.wait(60)
        return shared

    def ask() -> DrawnFrom:
        try:
            return writer.drawn_from(text)
        finally:
            asked.set()

    with ThreadPoolExecutor(1) as other:
        find_matches, known = writer._find_matches, list[Future[DrawnFrom]]()

        def halfway(tokens: Sequence[int]) -> None:
            monkeypatch.setattr(suffix, "common_prefix", slow)
            known.append(other.submit(ask))
            assert asked.wait(60)
            find_matches(tokens)

        monkeypatch.setattr(writer, "_find_matches", halfway)
        writer.begin([*prompt[:80], *[7] * 40])
        begun.set()
        assert not known[0].result()


def test_after_an_interrupt_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    [writer, _] = told().writers
    writer.begin([1, 2])
    text = [1, 2, *written_by(writer, 10, 5)]
    assert writer.drawn_from(text)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer._automaton, "push", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written_by(writer, 15, 1)
    assert not writer.drawn_from(text)
    writer.begin(text)
    text += written_by(writer, 15, 1)
    known = writer.drawn_from(text)
    assert [place for place in range(20) if known.choice_at(place)] == [7]


def test_what_is_written_after_a_forget_is_known_from_its_beginning() -> None:
    [writer, _] = told().writers
    writer.begin(text := [*range(1000)])
    written_by(writer, 5000, 10)
    writer.begin([*text, 7])
    writer.forget()
    writer.begin([1, 2, 3])
    known = writer.drawn_from([1, 2, 3, *written_by(writer, 7000, 20)])
    assert [place for place in range(30) if known.choice_at(place)] == [*range(3, 23)]


@pytest.mark.parametrize("context", [0, 3, 64])
@pytest.mark.parametrize("most", [30, 16_384])
def test_what_is_known_is_trimmed_with_the_texts(
    context: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where of a text only its end is indexed, or what does not repeat the latest ones."""
    monkeypatch.setattr(earlier_texts, "CONTEXT", context)
    monkeypatch.setattr(earlier_texts, "_MOST_ADDED", most)
    earlier = EarlierTexts([[1, 2, 3]], kept=200)
    both = Told(earlier, [Suffix(earlier=earlier) for _ in range(2)])
    random, texts, seen = Random(context + most), [list[int](), list[int]()], set[int]()
    trimmed = 0
    for turn in range(1, 60):
        number = random.randrange(2)
        prompt = [*range(1000 * turn, 1000 * turn + random.randrange(1, 30))]
        texts[number] = [*(texts[number] if random.random() < 0.7 else ()), *prompt]
        both.writers[number].begin(texts[number])
        count = random.randrange(1, 30)
        texts[number] = texts[number] + written_by(both.writers[number], 1000 * turn + 100, count)
        current = earlier.up_to_date()
        assert both.writers[number]._past is current.texts
        assert both.writers[number]._past_drawn_from is current.drawn_from
        both.end(number, texts[number])
        known = both.known()
        require_own(known)
        inside = {token for text in indexed(earlier) for token in text}
        # Each answer in the index is known, if its drafter wrote it with the text as it is.
        assert {*known} == {token for token in inside if token % 1000 >= 100}
        trimmed += bool(seen - inside)
        seen |= inside
        assert len(earlier.up_to_date().drawn_from) <= 4 + 300
    assert trimmed > 20


def test_of_a_text_without_any_choice_it_is_not_known_that_the_target_was_sure() -> None:
    """At temperature 0 one token is likely everywhere."""

    def part(*choices: Distribution) -> DrawnFrom:
        known = DrawnFrom()
        for place, choice in enumerate(choices):
            known.add(place, choice)
        return known

    index = DrawnFrom()
    index.extend(2, part(either(5), either(6)))
    index.extend(6, part(either(5), either(1, 2)))
    assert [place for place in range(9) if index.was_sure(place)] == [6]
    assert [place for place in range(9) if index.choice_at(place)] == [7]
