"""Passage: copies behind differences, against a slow oracle, and in edits as people make them."""

from collections.abc import Callable
from random import Random

import pytest
from fakes.slow_copies import SlowPassage, SlowSuffix
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import passage, suffix
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.passage import Passage
from localspec.drafters.suffix import PASSAGE, Suffix
from localspec.drafters.suffix_automaton import SuffixAutomaton
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

SAMPLER = Sampler(SamplingParams(), Noise(0))
SOURCES = st.lists(st.integers(0, 4), min_size=6, max_size=40)
# Texts that follow a source: how many of its tokens come next, how many of them are left out
# behind, and what is written instead.
STEPS = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 3), st.lists(st.integers(0, 6), max_size=3)),
    max_size=14,
)


def edited(source: list[int], steps: list[tuple[int, int, list[int]]]) -> list[int]:
    """The source with the steps' differences."""
    text, place = list[int](), 0
    for same, left_out, instead in steps:
        text += [*source[place : place + same], *instead]
        place += same + left_out
    return text


def to(depth: int) -> Limit:
    return Limit(depth, SAMPLER.prefix([]), SAMPLER)


def proposed(drafter: Suffix, depth: int = 6) -> list[int]:
    return list(drafter.propose(to(depth)).tokens)


@given(SOURCES, STEPS, st.sampled_from([2, 16]), st.sampled_from([3, 48]), st.integers(1, 9))
def test_a_passage_against_its_definition(
    source: list[int],
    steps: list[tuple[int, int, list[int]]],
    reach: int,
    longest: int,
    depth: int,
) -> None:
    """With an ended text before the one that copies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passage, "REACH", reach)
        patch.setattr(passage, "LONGEST", longest)
        tokens = [*source, -1, 7]
        fast, slow = Passage(tokens, 0, 0), SlowPassage(list(tokens), 0, 0)
        for token in edited(source, steps):
            assert fast.copy(depth) == slow.copy(depth)
            assert (fast.length, fast.differs) == (slow.equal + 1, slow.differs)
            alive = fast.observe(token)
            assert alive == slow.observe(token)
            for each in (tokens, slow.source):
                each.append(token)
            if not alive:
                return


@given(SOURCES, STEPS, st.lists(SOURCES, max_size=2), st.integers(2, 5), st.integers(1, 9))
def test_proposals_and_their_chances_against_a_search(
    source: list[int],
    steps: list[tuple[int, int, list[int]]],
    past: list[list[int]],
    long: int,
    depth: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix, "PASSAGE", long)
        fast, slow = Suffix(earlier=EarlierTexts(past)), SlowSuffix(long, SuffixAutomaton())
        for text in past:
            slow.past.extend(text)
            slow.past.end_text()
        for each in (fast, slow):
            each.begin([*source, *source[:3]])
        for token in edited(source[3:] * 2, steps):
            fast.observe(Outcome([token], 0))
            slow.observe(token)
            tokens, chances = slow.proposal(depth)
            assert proposed(fast, depth) == tokens
            assert list(fast.chances(to(depth))) == chances


def mixed(count: int) -> list[int]:
    """Random tokens, without long repeats."""
    random = Random(1)
    return [random.randrange(100, 1000) for _ in range(count)]


SOURCE = mixed(120)
# A name of two tokens, which occurs three times.
NAMED = [*SOURCE[:30], 7, 8, *SOURCE[30:60], 7, 8, *SOURCE[60:90], 7, 8, *SOURCE[90:]]


def followed(source: list[int], text: list[int], *, differences: bool = True) -> Suffix:
    """A drafter that has seen a source, and a text after it."""
    drafter = Suffix(differences=differences)
    drafter.begin(source)
    drafter.observe(Outcome(text, 0))
    return drafter


@pytest.mark.parametrize(
    "text, rest",
    [
        ([*SOURCE[:40], 5], SOURCE[41:]),
        ([*SOURCE[:40], 5, 6, *SOURCE[40:41]], SOURCE[41:]),
        ([*SOURCE[:40], SOURCE[43]], SOURCE[44:]),
        ([*SOURCE[:40], 5, 6, SOURCE[45]], SOURCE[46:]),
    ],
    ids=["another token", "tokens more", "tokens less", "other tokens"],
)
def test_copying_goes_on_behind_a_difference(text: list[int], rest: list[int]) -> None:
    drafter = followed(SOURCE, text)
    assert proposed(drafter) == rest[:6]


def test_copying_goes_on_behind_a_difference_in_a_past_text() -> None:
    text = [*SOURCE[:40], 5]
    drafter = Suffix(earlier=EarlierTexts([mixed(3), SOURCE, [6]]))
    drafter.begin([9])
    drafter.observe(Outcome(text, 0))
    assert proposed(drafter) == SOURCE[41:47]
    # It ends with its text, as any copy does.
    drafter.observe(Outcome([*SOURCE[41:-2], 5], 0))
    assert proposed(drafter) == SOURCE[-1:]
    drafter.observe(Outcome([SOURCE[-1], 4], 0))
    assert proposed(drafter) == []
    plain = Suffix(earlier=EarlierTexts([SOURCE]), differences=False)
    plain.begin([9])
    plain.observe(Outcome(text, 0))
    assert proposed(plain) == []


def test_a_name_that_was_changed_in_a_past_text_is_changed_again() -> None:
    drafter = Suffix(earlier=EarlierTexts([NAMED]))
    drafter.begin([9])
    drafter.observe(Outcome([*NAMED[:30], 1, 2, 3, *NAMED[32:62]], 0))
    assert proposed(drafter) == [1, 2, 3, *NAMED[64:67]]


def test_the_longer_match_is_followed_be_it_of_the_past_or_the_text() -> None:
    """Behind the difference each goes on with other tokens."""
    rest = [*range(1000, 1009)]
    for text, past, expected in (
        ([*SOURCE[:40], *rest], SOURCE[2:60], rest[1:7]),
        ([*SOURCE[2:40], *rest], SOURCE[:60], SOURCE[41:47]),
        ([*SOURCE[:40], *rest], SOURCE[:60], rest[1:7]),
    ):
        drafter = Suffix(earlier=EarlierTexts([past]))
        drafter.begin([*text, 9])
        drafter.observe(Outcome([*SOURCE[:40], 5], 0))
        assert proposed(drafter) == expected


def test_without_differences_copying_waits_for_a_match() -> None:
    assert proposed(followed(SOURCE, [*SOURCE[:40], 5], differences=False)) == []
    again = followed(SOURCE, [*SOURCE[:40], 5, SOURCE[41]], differences=False)
    assert proposed(again) == SOURCE[42:48]


def test_a_name_that_was_changed_is_changed_again() -> None:
    changed = [*NAMED[:30], 1, 2, 3, *NAMED[32:62]]
    assert proposed(followed(NAMED, changed)) == [1, 2, 3, *NAMED[64:67]]
    # Also in the middle of it, and further on in a long draft.
    assert proposed(followed(NAMED, [*changed, 1, 2])) == [3, *NAMED[64:69]]
    assert proposed(followed(NAMED, changed[:50]), 20)[13:18] == [1, 2, 3, *NAMED[64:66]]
    # Where it is not changed, the old one is expected from then on.
    assert proposed(followed(NAMED, [*changed, 7])) == [8, *NAMED[64:69]]
    assert proposed(followed(NAMED, [*changed, 7, 8, *NAMED[64:94]])) == NAMED[94:100]


def test_a_difference_right_before_a_changed_name() -> None:
    """Both stay open while the name is unfinished: it may be another one."""
    changed = [*NAMED[:30], 1, 2, 3, *NAMED[32:59], 5, *NAMED[60:62], 1]
    assert proposed(followed(NAMED, changed)) == [2, 3, *NAMED[64:68]]
    assert proposed(followed(NAMED, [*changed, 9])) == NAMED[60:66]
    assert proposed(followed(NAMED, [*changed, 2, 3])) == NAMED[64:70]


def test_a_name_that_was_changed_is_changed_again_in_another_passage() -> None:
    before = [*range(2000, 2030), 7, 8, *range(2030, 2060)]
    source = [*before, 9000, *NAMED[:62]]
    text = [*NAMED[:30], 1, 2, 3, *NAMED[32:62], 9001, *before[:27], 5, *before[28:30]]
    assert proposed(followed(source, text)) == [1, 2, 3, *before[32:35]]


def test_what_a_name_becomes_may_begin_as_it_did_before() -> None:
    changed = [*NAMED[:30], 1, 2, 3, *NAMED[32:62]]
    text = [*changed, 1, 2, 9, *NAMED[64:94]]
    assert proposed(followed(NAMED, text)) == [1, 2, 9, *NAMED[96:99]]
    # Where another place is followed meanwhile, none of it stands there yet.
    alone = Passage(NAMED, 0, 0)
    for token in [*changed, 1]:
        alone.observe(token)
    alone.go_on(NAMED, 62, PASSAGE)
    assert alone.copy(4) == ([1, 2, 3, NAMED[64]], [0, 1, 2])


@pytest.mark.parametrize("count", [passage.REPLACED, passage.REPLACED + 1])
def test_only_a_short_replacement_is_expected_again(count: int) -> None:
    new = [*range(50, 50 + count)]
    found = proposed(followed(NAMED, [*NAMED[:30], *new, *NAMED[32:62]]), 12)
    again = count <= passage.REPLACED
    assert found == ([*new, *NAMED[64:]] if again else NAMED[62:])[:12]


def test_a_passage_that_is_not_found_again_is_left() -> None:
    lost = [*SOURCE[:40], *range(1000, 1000 + passage.LONGEST)]
    assert proposed(followed(SOURCE, lost)) == SOURCE[41:47]
    assert proposed(followed(SOURCE, [*lost, 5])) == []


def test_it_ends_with_its_text() -> None:
    """The source is an answer that is generated again."""
    drafter = Suffix()
    drafter.begin([5, *SOURCE])
    drafter.begin([5])
    drafter.observe(Outcome([*SOURCE[:-3], 6], 0))
    assert proposed(drafter) == SOURCE[-2:]
    assert len(drafter.chances(to(9))) == 2
    drafter.observe(Outcome([*SOURCE[-2:], 9], 0))
    assert proposed(drafter) == []


def test_a_short_match_begins_no_passage() -> None:
    short, long = ([*SOURCE[:length], 5] for length in (PASSAGE - 1, PASSAGE))
    assert proposed(followed(SOURCE, short)) == []
    assert proposed(followed(SOURCE, long)) == SOURCE[PASSAGE + 1 : PASSAGE + 7]


def test_another_text_is_no_longer_followed() -> None:
    begun, forgotten = (followed(SOURCE, [*SOURCE[:40], 5]) for _ in range(2))
    assert proposed(begun) == proposed(forgotten) == SOURCE[41:47]
    begun.begin([5])
    forgotten.forget()
    for each in (begun, forgotten):
        assert proposed(each) == []
        each.observe(Outcome([4], 0))
        assert proposed(each) == []


def numbers(source: list[int], random: Random) -> list[int]:
    """Every tenth token is another one."""
    return [random.randrange(2000, 9000) if random.random() < 0.1 else each for each in source]


def names(source: list[int], _random: Random) -> list[int]:
    """Two tokens become others, everywhere."""
    return [{300: 20, 301: 21}.get(each, each) for each in source]


@pytest.mark.parametrize("edit", [numbers, names])
def test_chances_are_those_of_what_is_proposed(edit: Callable[..., list[int]]) -> None:
    """Over edited texts, as many tokens are right as the chances say."""
    random = Random(3)
    expected = right = 0.0
    drafter = Suffix()
    for _ in range(6):
        source = [random.randrange(200, 320) for _ in range(300)]
        drafter.begin(source)
        text = edit(source, random)
        for place, token in enumerate(text[:-8]):
            tokens, chances = proposed(drafter, 8), drafter.chances(to(8))
            product = 1.0
            for at, chance in enumerate(chances):
                product *= chance
                expected += product
                right += tokens[: at + 1] == text[place : place + at + 1]
            drafter.observe(Outcome([token], 0))
    assert right > 2500
    assert 0.9 < expected / right < 1.1
