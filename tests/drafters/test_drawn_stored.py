"""Copies from texts of earlier runs, drawn anew: what is known of them is kept on the disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from fakes.drawn_pasts import (
    REAL,
    Classes,
    Past,
    Read,
    begun_after,
    can_be,
    drafted,
    told_apart,
    write,
)
from fakes.mutants import Code, Edit
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters import suffix_store
from localspec.drafters.drawn_copy import DrawnCopy
from localspec.drafters.drawn_from import DrawnFrom
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.drafters.suffix_store import PastTexts
from localspec.sampling.noise import Noise


@pytest.fixture(autouse=True)
def drawn_to_the_end() -> Iterator[None]:
    """Unlikely tokens are drawn, too, and what comes behind them."""
    with patch.multiple(DrawnCopy, least_survival=0.0, hopeless=0.0):
        yield


def read(seed: int, classes: Classes = REAL) -> Read:
    """The draft of a text that repeats nothing but the texts of other processes, and these."""
    random, noise = Random(seed), Noise(seed)
    with tempfile.TemporaryDirectory() as folder:
        pasts, last = list[Past](), None
        for _ in range(random.randrange(1, 4)):
            # Each process writes a text or two, which may go on from its last one or another's.
            earlier = classes.earlier(store=classes.store("v", Path(folder)))
            drafter = classes.suffix(earlier=earlier)
            for _ in range(random.randrange(1, 3)):
                begun = begun_after(last, random)
                last = past = write(drafter, begun, random, Noise(random.randrange(9**9)))
                pasts = [each for each in pasts if each.text != past.text[: len(each.text)]]
                pasts.append(past)
                earlier.add(past.text, drafter.drawn_from(past.text))
            earlier.write()
            earlier.end()
        store = classes.store("v", Path(folder))
        reader = classes.suffix(earlier=classes.earlier(store=store))
        assert store.problem is None
    return *drafted(reader, random, noise), pasts, noise


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
def test_a_draft_from_stored_texts_against_a_search(seed: int) -> None:
    draft, text, pasts, noise = read(seed)
    assert can_be(draft, text, pasts, noise)


def test_the_search_tells_drawn_tokens_from_copied_ones() -> None:
    """Most drafts with the noise of one seed cannot be those of another, nor plain copies."""
    apart, copied = told_apart(read, 100)
    assert apart > 40 and copied > 40


MISTAKES = {
    "nothing of what stored texts were drawn from": Edit(
        EarlierTexts._with_given, "known.extend(len(index.tokens), stored.drawn_from)", "pass"
    ),
    "the places of the text for those in the index": Edit(
        EarlierTexts._with_given, "known.extend(len(index.tokens),", "known.extend(len(known),"
    ),
    "distributions of the token before": Edit(
        PastTexts._write, "known.extend(len(entries),", "known.extend(len(entries) + 1,"
    ),
    "distributions of the token behind": Edit(
        suffix_store._texts, "known.part(first, after)", "known.part(first + 1, after)"
    ),
    "nothing of the beginning of a text that goes on": Edit(
        suffix_store._with, "known = known.completed(text.drawn_from)", "pass"
    ),
    "all of the text that goes on, and nothing of its end": Edit(
        suffix_store._with, "known = known.completed(text.drawn_from)", "known = text.drawn_from"
    ),
    "tokens of the place before": Edit(
        DrawnFrom.choice_at, "first = self._before[place]", "first = self._before[place - 1]"
    ),
    "scores of the place before": Edit(
        DrawnFrom.choice_at, "self._below[first:after]", "self._below[first - 1 : after - 1]"
    ),
    "scores the other way round": Edit(DrawnFrom._add_choice, "(top - each)", "(each - top + 3)"),
    "a part with the tokens of the whole": Edit(
        DrawnFrom.part, "_moved(before, -before[0])", "_moved(before, 0)"
    ),
    "a file whose choices begin one place later": Edit(
        DrawnFrom.of_columns, "np.where(counts > 1, counts, 0)", "np.where(counts > 0, counts, 0)"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake: str) -> None:
    code = Code(MISTAKES[mistake])
    classes = Classes(code.of(Suffix), code.of(EarlierTexts), code.of(PastTexts))
    code.of(DrawnCopy).least_survival = code.of(DrawnCopy).hopeless = 0.0

    def is_right(seed: int) -> bool:
        try:
            return can_be(*read(seed, classes))
        except (AssertionError, IndexError, ValueError):
            return False

    assert not all(is_right(seed) for seed in range(100))
