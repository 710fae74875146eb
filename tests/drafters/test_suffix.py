"""Suffix: its proposals after any change of text, and the chances that it estimates."""

import math
import subprocess
import sys
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.copy_rates import BINS, FORGETTING, CopyRates, MatchTable
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import CONTEXT, Suffix
from localspec.drafters.suffix_automaton import SuffixAutomaton
from localspec.errors import InvalidValueError
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Drafter, Limit, Outcome

SAMPLER = Sampler(SamplingParams(), Noise(0))
TEXTS = st.lists(st.integers(0, 2), max_size=30)
STATE = tuple[tuple[float, float], ...]


def to(depth: int) -> Limit:
    return Limit(depth, SAMPLER.prefix([]), SAMPLER)


def proposed(drafter: Suffix, depth: int = 6) -> list[int]:
    return list(drafter.propose(to(depth)).tokens)


def begun(text: list[int], **options: object) -> Suffix:
    drafter = Suffix(**options)  # type: ignore[arg-type]
    drafter.begin(text)
    return drafter


def mixed(count: int) -> list[int]:
    """Random tokens, without long repeats."""
    random = Random(1)
    return [random.randrange(1000) for _ in range(count)]


def test_it_is_a_drafter() -> None:
    assert isinstance(Suffix(), Drafter)
    assert Suffix().name == "suffix"
    assert proposed(Suffix()) == proposed(begun([])) == proposed(begun([1, 2, 3])) == []


@given(TEXTS, TEXTS, TEXTS)
def test_a_text_that_was_forgotten_is_not_copied(
    past: list[int], old: list[int], new: list[int]
) -> None:
    drafter, fresh = begun(old, earlier=EarlierTexts([past])), Suffix(earlier=EarlierTexts([past]))
    drafter.forget()
    assert proposed(drafter) == []
    for each in (drafter, fresh):
        each.begin(new)
    assert proposed(drafter) == proposed(fresh)


@given(TEXTS, TEXTS, st.integers(1, 4), st.integers(1, 8))
def test_it_copies_after_the_longest_repeat(
    text: list[int], more: list[int], shortest: int, depth: int
) -> None:
    # A passage that is followed behind a difference may be likelier.
    drafter = begun(text, shortest=shortest, differences=False)
    drafter.observe(Outcome(more, 0))
    fed = SuffixAutomaton()
    fed.extend([*text, *more])
    match = fed.match()
    enough = match is not None and match.length >= shortest
    assert proposed(drafter, depth) == (fed.copy(match, depth) if match and enough else [])


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6), st.sampled_from([0, 20, 1000]))
def test_any_change_of_text_leaves_it_at_the_end_of_the_new_one(
    steps: list[tuple[list[int], list[int]]], max_replaced: int
) -> None:
    drafter = Suffix(max_replaced=max_replaced, earlier=EarlierTexts([[0, 1], [2]]))
    for text, more in steps:
        drafter.begin(text)
        held = list(drafter._automaton.tokens)
        assert len(held) <= len(text) + max_replaced
        drafter.observe(Outcome(more, 0))
        whole = [*text, *more]
        fed = list(drafter._automaton.tokens)
        # The current text, or its end with enough tokens before it, is the last text.
        own = len(fed) - 1 - next((i for i, t in enumerate(fed[::-1]) if t < 0), len(fed))
        current = fed[own + 1 :]
        assert current == whole[len(whole) - len(current) :]
        assert min(proposed(drafter, 9), default=0) >= 0
        assert len(drafter.chances(to(9))) == len(proposed(drafter, 9))


@given(TEXTS, TEXTS, TEXTS)
def test_no_token_of_a_growing_text_is_pushed_twice(
    first: list[int], second: list[int], third: list[int]
) -> None:
    drafter = begun(first)
    drafter.observe(Outcome(second, 1))
    for text in (
        [*first, *second, *third],
        [*first, *second, *third],
        [*first, *second, *third, 1],
    ):
        drafter.begin(text)
        assert list(drafter._automaton.tokens) == text


def test_an_answer_generated_again_is_drafted_from_the_old_one() -> None:
    text = mixed(300)
    drafter = begun(text)
    drafter.begin(text[:200])
    assert proposed(drafter) == text[200:206]
    drafter.observe(Outcome([5000, *text[210:212]], 0))
    assert proposed(drafter) == text[212:218]
    # Only CONTEXT tokens before the cut were pushed again.
    assert len(drafter._automaton.tokens) == 300 + 1 + CONTEXT + 3


def test_an_edit_further_up_keeps_the_rest_to_copy_from() -> None:
    text = mixed(300)
    drafter = begun(text)
    drafter.begin([*text[:100], 5000, *text[100:110]])
    assert proposed(drafter) == text[110:116]


def test_another_text_does_not_end_the_one_before() -> None:
    """No repeat may cross from one text into another."""
    drafter = begun([1, 2, 3, 4])
    drafter.begin([9, 3])
    assert proposed(drafter) == [4]
    drafter.begin([8, 4])
    assert proposed(drafter) == []


def test_without_room_for_the_replaced_text_only_the_new_one_is_kept() -> None:
    text, past = mixed(300), [*range(7000, 7300)]
    drafter = begun(text, max_replaced=150, earlier=EarlierTexts([past]))
    drafter.begin(text[:250])
    assert len(drafter._automaton.tokens) == 300 + 1 + CONTEXT
    drafter.begin([*text[:100], 7000])
    assert list(drafter._automaton.tokens) == [*text[:100], 7000]
    assert proposed(drafter) == past[1:7]


def test_past_texts_are_copied_from_the_latest_first() -> None:
    drafter = Suffix(earlier=EarlierTexts([[1, 2, 3], [1, 2, 4, 5], [6]]))
    drafter.begin([9, 1, 2])
    assert proposed(drafter) == [4, 5]
    drafter.observe(Outcome([7, 1, 2], 0))
    assert proposed(drafter, 4) == [7, 1, 2, 7]


def first_proposals(blocks: list[list[int]], past: list[int]) -> list[list[int]]:
    """The token proposed before the last one of each block but the first, in a text of blocks."""
    drafter = begun(blocks[0], earlier=EarlierTexts([past]))
    found = []
    for *before, last in blocks[1:]:
        drafter.observe(Outcome(before, 0))
        found.append(proposed(drafter)[:1])
        drafter.observe(Outcome([last], 0))
    return found


def test_past_texts_do_not_crowd_out_the_current_one() -> None:
    """A longer match in the past is copied where such copies were right, not where wrong."""
    beginnings = [[100 + 3 * i, 101 + 3 * i, 102 + 3 * i, 1, 2] for i in range(40)]
    past = [token for i, each in enumerate(beginnings) for token in (*each, 1000 + i)]
    same = [[*each, 3] for each in beginnings]
    assert first_proposals(same, past) == [[3]] * 39
    as_before = [[*each, 1000 + i] for i, each in enumerate(beginnings)]
    assert first_proposals(as_before, past)[9:] == [[1000 + i] for i in range(10, 40)]


@given(st.lists(TEXTS, max_size=3), st.lists(st.tuples(TEXTS, TEXTS), max_size=4))
def test_a_text_is_found_in_the_past_after_any_change(
    past: list[list[int]], steps: list[tuple[list[int], list[int]]]
) -> None:
    """As if it had been the only one: texts as short as these are found whole after a cut."""
    drafter = Suffix(earlier=EarlierTexts(past))
    for text, more in steps:
        drafter.begin(text)
        drafter.observe(Outcome(more, 0))
        fresh = Suffix(earlier=EarlierTexts(past))
        fresh.begin([*text, *more])
        assert drafter._in_past == fresh._in_past


def test_the_past_is_looked_up_once_per_token(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = begun([1, 2], earlier=EarlierTexts([[1, 2, 3, 4, 5, 6]]))
    asked: list[object] = []
    found = drafter._past.occurrence
    monkeypatch.setattr(
        drafter._past, "occurrence", lambda place: asked.append(place) or found(place)
    )
    for token in (3, 4, 5):
        assert proposed(drafter, 1) == [token]
        assert len(drafter.chances(to(1))) == 1
        drafter.observe(Outcome([token], 0))
    assert len(asked) == 3


def test_an_interrupted_change_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(SuffixAutomaton):
        left = 5

        def _new_state(self, length: int, link: int, end: int) -> int:
            self.left -= 1
            if not self.left:
                # In the middle of a state.
                self._length.append(length)
                raise KeyboardInterrupt
            return super()._new_state(length, link, end)

    drafter = begun([1, 2])
    for change in (lambda: drafter.begin([1, 2, 3, 1, 2, 3, 1]), lambda: drafter.begin([4] * 9)):
        torn = Interrupted()
        torn.extend([1, 2])
        monkeypatch.setattr(drafter, "_automaton", torn)
        monkeypatch.setattr(drafter, "_text", [1, 2])
        with pytest.raises(KeyboardInterrupt):
            change()
        drafter.begin([1, 2, 3, 1, 2])
        assert list(drafter._automaton.tokens) == [1, 2, 3, 1, 2]
        assert proposed(drafter, 3) == [3, 1, 2]
    torn = Interrupted()
    torn.extend([1, 2])
    monkeypatch.setattr(drafter, "_automaton", torn)
    monkeypatch.setattr(drafter, "_match", torn.match())
    with pytest.raises(KeyboardInterrupt):
        drafter.observe(Outcome([1, 2, 3, 4], 0))
    drafter.begin([1, 2, 3, 1, 2])
    assert list(drafter._automaton.tokens) == [1, 2, 3, 1, 2]


def counts(text: list[int], start: int) -> STATE:
    """(right, tried) per bin from the definition, without forgetting."""
    found = [[0, 0] for _ in BINS]
    fed = SuffixAutomaton()
    for i, token in enumerate(text):
        match = fed.match()
        if i >= start and match:
            bin_ = max(b for b in range(len(BINS)) if BINS[b] <= match.length)
            found[bin_][0] += text[match.end + 1] == token
            found[bin_][1] += 1
        fed.push(token)
    return tuple((right, tried) for right, tried in found)


@given(TEXTS, st.lists(TEXTS, max_size=5))
def test_the_table_learns_from_every_committed_token(
    text: list[int], steps: list[list[int]]
) -> None:
    """Also if nothing is ever proposed, but not from the tokens of a prompt."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("localspec.drafters.copy_rates.FORGETTING", 1.0)
        drafter = begun(text, shortest=10**6)
        assert drafter.rates.match.state == MatchTable().state
        for step in steps:
            drafter.observe(Outcome(step, 0))
        whole = [*text, *(token for step in steps for token in step)]
        assert drafter.rates.match.state == counts(whole, len(text))


def test_a_table_is_kept_for_another_text_and_another_drafter() -> None:
    drafter = begun([1, 2, 3] * 5)
    drafter.observe(Outcome([1, 2, 3] * 5, 0))
    state = drafter.rates.match.state
    assert sum(tried for _right, tried in state) > 10
    drafter.begin([4, 5])
    assert drafter.rates.match.state == state
    text = [1, 2, 3] * 5
    again = begun(text, rates=CopyRates(MatchTable(state))).chances(to(4))
    assert list(again)[1:] == list(begun(text, rates=drafter.rates).chances(to(4)))[1:]
    assert list(again)[1:] != list(begun(text).chances(to(4)))[1:]


def test_chances_rise_with_the_match_where_longer_matches_are_right_more_often() -> None:
    """In copied passages of many lengths, a longer match continues with a higher probability."""
    random = Random(2)
    source = [random.randrange(60) for _ in range(400)]
    # Start from a table whose chances do not depend on the length.
    drafter = begun(source, rates=CopyRates(MatchTable([(50.0, 100.0)] * len(BINS))))
    for _ in range(600):
        start = random.randrange(300)
        passage = source[start : start + int(1.5 * random.paretovariate(0.7))]
        drafter.observe(Outcome([*passage[:200], random.randrange(60)], 0))
    chances = drafter.rates.match.chances(1, 60)
    by_bin = [chances[length - 1] for length in BINS]
    assert all(longer > shorter - 0.05 for shorter, longer in pairwise(by_bin))
    assert by_bin[-1] > 0.9 and by_bin[0] < 0.35


def test_the_chance_of_each_copied_token_by_the_match_before_it() -> None:
    table = MatchTable([(90 - 10 * i, 100) for i in range(len(BINS))])
    text = mixed(40)
    drafter = begun([*text, *text[:5]], rates=CopyRates(table, once=table))
    expected = [table.chances(length, 1)[0] for length in range(5, 11)]
    assert list(drafter.chances(to(6))) == expected
    assert expected[0] > expected[1] == expected[3] > expected[4]
    assert drafter.chances(to(0)) == []
    drafter.observe(Outcome([5000], 0))
    assert len(drafter.chances(to(6))) == 0
    # A copy stops at the end of an ended text; after the last bin the chance stays the same.
    drafter.begin([1, *text[30:38]])
    assert len(drafter.chances(to(20))) == len([*text[38:], *text[:5], 5000])
    long = table.chances(BINS[-1] + 5, 100)
    assert long == [table.chances(BINS[-1], 1)[0]] * 100
    assert (
        len(begun([3, 38], earlier=EarlierTexts([[38, 39]]), rates=CopyRates(table)).chances(to(6)))
        == 1
    )


def test_the_chance_of_the_first_token_by_whether_the_occurrences_agreed() -> None:
    """What followed in turns is seldom right, what followed each time as a rule."""
    random = Random(4)
    alike, in_turns = CopyRates(), CopyRates()
    for rates, ends in ((alike, (5, 5)), (in_turns, (5, 6))):
        drafter = begun([], rates=rates)
        for place in range(60):
            drafter.observe(Outcome([1, 2, 3, ends[place % 2], random.randrange(10, 999)], 0))
        drafter.observe(Outcome([1, 2, 3], 0))
        [first, *later] = drafter.chances(to(4))
        assert first == rates.after(ends[0] == ends[1]).chance(3)
        assert later == rates.match.chances(3, 4)[1:]
    assert alike.agreed_before.chance(3) > 0.9 and in_turns.differed_before.chance(3) < 0.1
    fresh = CopyRates()
    assert alike.differed_before.chance(3) == fresh.differed_before.chance(3)
    assert in_turns.agreed_before.chance(3) == fresh.agreed_before.chance(3)


def test_every_length_has_its_bin() -> None:
    for length in range(1, 60):
        table = MatchTable()
        table.learn(length, True)
        bin_ = max(b for b in range(len(BINS)) if BINS[b] <= length)
        assert [tried for _right, tried in table.state] == [b == bin_ for b in range(len(BINS))]
        changed = [
            one != other
            for one, other in zip(table.chances(1, 60), MatchTable().chances(1, 60), strict=True)
        ]
        assert table.chance(length) == table.chances(1, 60)[length - 1]
        last = BINS[bin_ + 1] if bin_ + 1 < len(BINS) else 61
        assert [i + 1 for i, was in enumerate(changed) if was] == [*range(BINS[bin_], last)]


def test_old_observations_are_forgotten_and_no_chance_becomes_certain() -> None:
    table = MatchTable()
    for _ in range(2000):
        table.learn(5, True)
    ((_right, tried),) = [counts for counts in table.state if counts[1]]
    assert math.isclose(tried, 1 / (1 - FORGETTING), rel_tol=1e-6)
    assert 0.97 < table.chances(5, 1)[0] < 1
    for _ in range(300):
        table.learn(5, False)
    assert 0 < table.chances(5, 1)[0] < 0.1


def test_at_first_longer_matches_have_higher_chances() -> None:
    chances = MatchTable().chances(1, 50)
    assert chances == sorted(chances) and 0.1 < chances[0] < 0.3 and 0.9 < chances[-1] < 1


@pytest.mark.parametrize(
    "state",
    [[], [(0.0, 1.0)] * 8, [(2.0, 1.0)] * 9, [(-1.0, 1.0)] * 9, [(math.nan, 1.0)] * 9],
)
def test_an_impossible_state_is_refused(state: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidValueError, match="state is"):
        MatchTable(state)


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(InvalidValueError, match="shortest is 0"):
        Suffix(shortest=0)
    with pytest.raises(InvalidValueError, match="max_replaced is -1"):
        Suffix(max_replaced=-1)
    with pytest.raises(InvalidValueError, match="token is -1"):
        Suffix(earlier=EarlierTexts([[1, -1]]))


def test_it_runs_without_llama_cpp() -> None:
    code = "import sys; sys.modules['llama_cpp'] = None; import localspec.drafters.suffix"
    code += ", localspec.drafters.suffix_store"
    subprocess.run([sys.executable, "-c", code], check=True)
