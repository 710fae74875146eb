"""Model-free drafters: their proposals, also after the text was cut."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters.history import History
from localspec.drafters.ngram import Evidence, Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.errors import InvalidValueError
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit, Outcome

SAMPLER = Sampler(SamplingParams(), Noise(0))
TEXTS = st.lists(st.integers(0, 3), max_size=24)


def proposed(drafter: PromptLookup | Ngram, text: list[int], depth: int = 6) -> list[int]:
    drafter.begin(text)
    return list(drafter.propose(Limit(depth, SAMPLER.prefix(text), SAMPLER)).tokens)


def looked_up(text: list[int], depth: int, longest: int = 3) -> list[int]:
    """By definition: copy after the latest earlier occurrence of the longest n-gram."""
    for size in range(min(longest, len(text)), 0, -1):
        for end in range(len(text) - 1, size - 1, -1):
            if text[end - size : end] == text[-size:]:
                grown = list(text)
                for i in range(depth):
                    grown.append(grown[end + i])
                return grown[len(text) :]
    return []


@given(TEXTS, st.integers(1, 8))
def test_lookup_copies_from_the_latest_longest_match(text: list[int], depth: int) -> None:
    assert proposed(PromptLookup(), text, depth) == looked_up(text, depth)


def counted(text: list[int], depth: int, evidence: dict[int, Evidence]) -> list[int]:
    """By definition: the most frequent successor of the longest n-gram with enough evidence."""
    grown = list(text)
    while len(grown) < len(text) + depth:
        for size, asked in sorted(evidence.items(), reverse=True):
            gram = grown[-size:]
            seen = Counter(
                text[i + size] for i in range(len(text) - size) if text[i : i + size] == gram
            )
            if len(gram) == size and seen:
                count = max(seen.values())
                token = min(t for t in seen if seen[t] == count)
                if count >= asked.count and count >= asked.share * seen.total():
                    grown.append(token)
                    break
        else:
            break
    return grown[len(text) :]


# Shares that counts of small texts reach exactly, and miss by one; and little that is too little.
EVIDENCE = [
    {3: Evidence(1, 0.6), 2: Evidence(2, 0.5), 1: Evidence(2, 0.4)},
    {4: Evidence(2, 0.0), 2: Evidence(1, 0.5), 1: Evidence(1, 0.0)},
    {1: Evidence(1, 0.5)},
]


@given(TEXTS, st.integers(1, 5))
@pytest.mark.parametrize("evidence", EVIDENCE)
def test_ngram_counts_with_back_off(
    evidence: dict[int, Evidence], text: list[int], depth: int
) -> None:
    assert proposed(Ngram(evidence), text, depth) == counted(text, depth, evidence)


@given(TEXTS, st.lists(st.tuples(st.integers(0, 8), TEXTS), max_size=6))
@pytest.mark.parametrize("evidence", EVIDENCE)
def test_ngram_counts_what_is_left_of_a_text_that_was_cut(
    evidence: dict[int, Evidence], text: list[int], changes: list[tuple[int, list[int]]]
) -> None:
    drafter = Ngram(evidence)
    drafter.begin(text)
    for cut, added in changes:
        text = [*text[: max(0, len(text) - cut)], *added[:4]]
        assert proposed(drafter, text) == counted(text, 6, evidence)


@given(st.lists(TEXTS, min_size=1, max_size=6))
@pytest.mark.parametrize("kind", [PromptLookup, Ngram])
def test_after_any_change_of_text_it_equals_a_new_drafter(
    kind: type[PromptLookup | Ngram], texts: list[list[int]]
) -> None:
    drafter = kind()
    for text in texts:
        assert proposed(drafter, text) == proposed(kind(), text)
        drafter.observe(Outcome([2, 2], 0))
        assert list(drafter.propose(Limit(6, SAMPLER.prefix([]), SAMPLER)).tokens) == proposed(
            kind(), [*text, 2, 2]
        )


def test_of_another_text_only_what_differs_is_indexed_anew() -> None:
    done: list[str] = []

    class Noted:
        def push(self, text: list[int]) -> None:
            done.append(f"+{text[-1]}")

        def pop(self, text: list[int]) -> None:
            done.append(f"-{text[-1]}")

    history = History(Noted())
    history.set_text([1, 2, 3, 4])
    done.clear()
    history.set_text([1, 2, 5])
    history.set_text([1, 2, 5, 6])
    assert done == ["-4", "-3", "+5", "+6"]


@given(TEXTS)
def test_after_a_cut_to_nothing_the_index_is_empty(text: list[int]) -> None:
    lookup, ngram = PromptLookup(), Ngram()
    for drafter in (lookup, ngram):
        drafter.begin(text)
        drafter.begin([])
    assert lookup._index._ends == {}
    assert lookup.traits.cheap and ngram.traits.cheap
    assert ngram._counts._counts == ngram._counts._totals == ngram._counts._favourites == {}


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(InvalidValueError, match="shortest is 4"):
        PromptLookup(longest=3, shortest=4)
    with pytest.raises(InvalidValueError, match="evidence is"):
        Ngram({})
    with pytest.raises(InvalidValueError, match="evidence is"):
        Ngram({0: Evidence(1, 0.5), 2: Evidence(1, 0.5)})
