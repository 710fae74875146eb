"""Prediction: an answer is drafted from what it is expected to be, which leaves nothing behind."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.copy_rates import CopyRates, MatchTable
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.passage import LONGEST, PASSAGE, REACH
from localspec.drafters.suffix import Suffix
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

SAMPLER = Sampler(SamplingParams(), Noise(0))
PROMPT = [9001, 9002, 9003]
# Tokens without repeats: nothing but the prediction can be copied from.
KNOWN = [*range(1000, 1200)]
DEPTH = 9
TEXTS = st.lists(st.integers(0, 3), max_size=40)


def to(depth: int) -> Limit:
    return Limit(depth, SAMPLER.prefix([]), SAMPLER)


def begun(prediction: Sequence[int], prompt: Sequence[int] = PROMPT, **options: object) -> Suffix:
    drafter = Suffix(**options)  # type: ignore[arg-type]
    drafter.predict(prediction)
    drafter.begin(prompt)
    return drafter


def proposed(drafter: Suffix, depth: int) -> list[int]:
    return list(drafter.propose(to(depth)).tokens)


def steps(drafter: Suffix, answer: Sequence[int], depth: int = DEPTH) -> int:
    """In how many steps a target that writes this answer would have written it."""
    place = count = 0
    while place < len(answer):
        draft, right = drafter.propose(to(min(depth, len(answer) - place - 1) or 1)).tokens, 0
        while right < len(draft) and place + right < len(answer) - 1:
            if draft[right] != answer[place + right]:
                break
            right += 1
        drafter.observe(Outcome(answer[place : place + right + 1], right))
        place, count = place + right + 1, count + 1
    return count


def learnt(rates: CopyRates) -> list[object]:
    values = [getattr(rates, each.name) for each in fields(rates)]
    return [
        each.state if isinstance(each, MatchTable) else [t.state for t in each] for each in values
    ]


@pytest.mark.parametrize("depth", [1, 2, 5, 15])
@pytest.mark.parametrize("length", [1, 2, 17, 200])
def test_an_answer_as_predicted_takes_as_few_steps_as_the_depth_allows(
    depth: int, length: int
) -> None:
    answer = KNOWN[:length]
    assert steps(begun(KNOWN), answer, depth) == ceil(length / (depth + 1))


def test_it_is_proposed_before_anything_has_matched_and_with_a_good_chance() -> None:
    drafter = begun(KNOWN, prompt=[7])
    draft = drafter.propose(to(5))
    assert draft.tokens == KNOWN[:5]
    assert draft.predicted
    chances = drafter.chances(to(5))
    assert len(chances) == 5
    assert min(chances) > 0.9


def test_drafts_of_other_copies_are_not_of_the_prediction() -> None:
    drafter = begun(KNOWN, prompt=[1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3])
    drafter.observe(Outcome([4, 1, 2, 3, 4, 1, 2, 3], 0))
    draft = drafter.propose(to(3))
    assert (draft.tokens, draft.predicted) == ([4, 1, 2], False)
    drafter.observe(Outcome(KNOWN[:8], 0))
    assert proposed(drafter, 3) == KNOWN[8:11]
    assert drafter.propose(to(3)).first(2).predicted


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        (1, 1, 0),  # only the rest of the draft is lost in which it is
        (3, 0, 0),
        (REACH - 1, 0, 0),
        (0, 1, 1),  # it goes on where a token was taken to be replaced
        (0, 5, 4),  # each further new token is a step
        (5, 5, 5),
    ],
)
def test_an_edit_costs_few_steps(old: int, new: int, lost: int) -> None:
    place = 100
    answer = [*KNOWN[:place], *range(5000, 5000 + new), *KNOWN[place + old :]]
    before, behind = place + 1, len(answer) - place - 1
    apart = ceil(before / (DEPTH + 1)) + ceil(behind / (DEPTH + 1))
    assert steps(begun(KNOWN), answer) == apart + lost
    assert steps(begun([]), answer) == len(answer)


def test_behind_much_that_is_new_its_place_is_found_again() -> None:
    new = [*range(5000, 5000 + 2 * LONGEST)]
    drafter = begun(KNOWN)
    drafter.observe(Outcome([*KNOWN[:50], *new], 0))
    assert proposed(drafter, 3) == []
    drafter.observe(Outcome(KNOWN[120 : 120 + PASSAGE], 0))
    assert proposed(drafter, 3) == KNOWN[144:147]
    drafter.observe(Outcome([6000], 0))
    assert proposed(drafter, 3) == KNOWN[145:148]


def test_a_replacement_that_comes_again_is_drafted() -> None:
    prediction = [t for i in range(30) for t in (7, *range(2000 + 10 * i, 2010 + 10 * i))]
    answer = [8 if token == 7 else token for token in prediction]
    few = ceil(len(answer) / (DEPTH + 1))
    assert few <= steps(begun(prediction), answer) <= few + 3


def test_an_answer_that_is_continued_goes_on_within_the_prediction() -> None:
    drafter = begun(KNOWN, prompt=[*PROMPT, *KNOWN[:90]])
    assert proposed(drafter, 4) == KNOWN[90:94]
    # A few equal words at the end of the prompt are no beginning of the answer.
    drafter = begun(KNOWN, prompt=[*PROMPT, *KNOWN[80:90]])
    assert proposed(drafter, 4) == KNOWN[:4]


def test_it_ends_with_its_text() -> None:
    drafter = begun(KNOWN)
    drafter.begin(PROMPT)
    assert proposed(drafter, 4) == []
    drafter.predict(KNOWN)
    drafter.predict([])
    drafter.begin([*PROMPT, 1])
    assert proposed(drafter, 4) == []
    drafter.predict(KNOWN)
    drafter.forget()
    drafter.begin(PROMPT)
    assert proposed(drafter, 4) == []


def test_a_wrong_one_is_soon_unlikely() -> None:
    drafter = begun(KNOWN)
    drafter.observe(Outcome([*range(5000, 5006)], 0))
    assert all(chance < 0.2 for chance in drafter.chances(to(1)))


def test_the_next_text_is_judged_anew() -> None:
    drafter = begun(KNOWN)
    drafter.observe(Outcome([*range(5000, 5200)], 0))
    drafter.predict(KNOWN)
    drafter.begin(PROMPT)
    assert drafter.chances(to(3)) == begun(KNOWN).chances(to(3))


@given(TEXTS, TEXTS, TEXTS, TEXTS, st.booleans())
def test_it_leaves_nothing_behind(
    prompt: list[int], prediction: list[int], answer: list[int], after: list[int], again: bool
) -> None:
    """Neither in what is copied in the next text, nor in what was learnt of other copies."""
    past = [[0, 1, 2, 3, 0, 1, 1, 2]]
    predicted, plain = (
        begun(prediction, prompt, earlier=EarlierTexts(past)),
        begun([], prompt, earlier=EarlierTexts(past)),
    )
    for token in answer:
        for each in (predicted, plain):
            draft, chances = each.propose(to(4)), each.chances(to(4))
            assert len(draft) == len(chances)
            assert all(0 < chance < 1 for chance in chances)
            each.observe(Outcome([token], 0))
    assert learnt(predicted.rates) == learnt(plain.rates)
    following = [*prompt, *after] if again else [*prompt, *answer, *after]
    for each in (predicted, plain):
        each.begin(following)
    assert predicted.propose(to(6)) == plain.propose(to(6))
    assert predicted.chances(to(6)) == plain.chances(to(6))
    assert list(predicted._automaton.tokens) == list(plain._automaton.tokens)


@st.composite
def edits(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Places in KNOWN, at least 20 tokens apart, with how many tokens are old and new there."""
    places = draw(st.lists(st.sampled_from(range(10, 190, 20)), unique=True, max_size=9))
    sizes = st.integers(0, 5)
    return [(place, draw(sizes), draw(sizes)) for place in sorted(places)]


def edited(changes: Sequence[tuple[int, int, int]]) -> list[int]:
    new, answer, place = iter(range(5000, 6000)), list[int](), 0
    for at, old, count in changes:
        answer += [*KNOWN[place:at], *(next(new) for _ in range(count))]
        place = at + old
    return [*answer, *KNOWN[place:]]


@given(edits(), st.integers(1, 15))
def test_steps_lost_by_edits_are_those_of_the_edits(
    changes: list[tuple[int, int, int]], depth: int
) -> None:
    """Of each edit: the rest of a draft, its new tokens, and a step to find the place."""
    answer = edited(changes)
    ends = [0, *(place for place, _, _ in changes), len(KNOWN)]
    apart = sum(ceil((end - start) / (depth + 1)) for start, end in pairwise(ends))
    lost = sum(new + 2 for _, old, new in changes if old or new)
    few = ceil(len(answer) / (depth + 1))
    assert few <= steps(begun(KNOWN), answer, depth) <= apart + lost


@pytest.mark.parametrize("seed", range(5))
def test_other_texts_are_copied_from_beside_it(seed: int) -> None:
    """An answer of two sources takes hardly more steps than its parts."""
    random = Random(seed)
    other = [random.randrange(7000, 8000) for _ in range(100)]
    drafter = begun(KNOWN, prompt=[*other, *PROMPT])
    taken = steps(drafter, [*KNOWN[:100], *other, *KNOWN[100:]])
    assert taken < 20 + 10 + 20
