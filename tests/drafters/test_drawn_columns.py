"""DrawnFrom: what it keeps of distributions, in memory and in a file, against a plain dict."""

from random import Random

import numpy as np
import pytest
from fakes.drawn_copies import drawn_at, either
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.drawn_copy import Drawing
from localspec.drafters.drawn_from import PARTS, DrawnFrom
from localspec.errors import InvalidValueError
from localspec.sampling.distribution import SHORTLIST, Distribution
from localspec.sampling.noise import Noise

Known = dict[int, Distribution]
SEEDS = st.integers(0, 2**32)


def drawn(random: Random) -> Distribution:
    """A distribution of up to 20 tokens, at one of several temperatures or of adaptive-p."""
    count = random.choice([1, 1, 2, 3, 9, 20])
    adaptive = random.random() < 0.2
    temperature = 1.0 if adaptive else random.choice([0.01, 0.8, 0.8, 1.5, 1e30, 1e31])
    logits = [random.uniform(-3, 3) * temperature for _ in range(count)]
    ids = np.array(random.sample(range(2**31 - 50, 2**31), count))
    return Distribution(np.array(logits, np.float32), ids, temperature, adaptive=adaptive)


def added(random: Random, count: int) -> tuple[DrawnFrom, Known]:
    """Some places, and the same as a dict."""
    known, expected, place = DrawnFrom(), Known(), 0
    for _ in range(count):
        place += random.choice([0, 0, 0, 1, 5])
        expected[place] = drawn(random)
        known.add(place, expected[place])
        place += 1
    return known, expected


def require(known: DrawnFrom, expected: Known) -> None:
    """It holds the shortlists of these distributions, to half a 64th, and nothing else."""
    for place in range(max(expected, default=0) + 10):
        exact = expected[place].shortlist() if place in expected else None
        choice = known.choice_at(place)
        assert known.was_sure(place) == (exact is not None and len(exact) == 1)
        if exact is None or len(exact) == 1:
            assert choice is None
            continue
        assert choice and exact.ids is not None
        assert len(exact) <= SHORTLIST and choice.ids == exact.ids.tolist()
        assert choice.temperature == (0 if exact.adaptive else min(exact.temperature, 1e30))
        scores = -np.array([*choice.below]) / PARTS
        # A score of -4 is kept as the least one.
        assert np.abs(scores - exact.scores()).max() <= 1 / 64
        inside = exact.scores() > -3.99
        assert np.abs((scores - exact.scores())[inside]).max() <= 0.5 / 64 + 1e-6


@given(SEEDS, st.integers(0, 30))
def test_what_is_known_of_places(seed: int, count: int) -> None:
    known, expected = added(Random(seed), count)
    require(known, expected)
    assert len(known) == max(expected, default=-1) + 1
    assert bool(known) == any(len(each.shortlist()) > 1 for each in expected.values())


@given(SEEDS, st.integers(0, 20), st.integers(0, 40), st.integers(0, 40), st.integers(0, 9))
def test_parts_are_added_elsewhere(seed: int, count: int, first: int, after: int, gap: int) -> None:
    random = Random(seed)
    known, expected = added(random, count)
    other, theirs = added(random, 20)
    part = other.part(first, after)
    inside = {place - first: each for place, each in theirs.items() if first <= place < after}
    require(part, inside)
    require(DrawnFrom.of_columns(b"".join(part.columns())), inside)
    start = len(known) + gap
    known.extend(start, part)
    inside = {start + place: each for place, each in inside.items()} if other else {}
    require(known, expected | inside)
    # What was added is as before.
    require(other, theirs)


@given(SEEDS, st.integers(0, 30))
def test_a_file_has_all_of_it(seed: int, count: int) -> None:
    random = Random(seed)
    known, expected = added(random, count)
    data = b"".join(known.columns())
    read = DrawnFrom.of_columns(data)
    require(read, expected)
    assert b"".join(read.columns()) == data
    assert len(data) == len(b"".join(DrawnFrom().columns())) + known.size + len(known)
    # It grows, as any other does.
    if read:
        expected[len(read) + 2] = each = drawn(random)
        read.add(len(read) + 2, each)
        require(read, expected)


def require_drawable(data: bytes, first: int) -> None:
    """Either it is refused, or tokens can be drawn from all that is read of it, as of two texts."""
    try:
        read = DrawnFrom.of_columns(data)
    except InvalidValueError:
        return
    index = DrawnFrom()
    index.extend(7, read)
    parts = [read.part(0, first), read.part(first, len(read))]
    for part in parts:
        index.extend(len(index) + 1, part)
    for known in (read, index, *parts):
        for place in range(len(known) + 1):
            if choice := known.choice_at(place):
                for temperature in (0.0, 0.8, None):
                    drawing = Drawing(Noise(1), temperature, choice.temperature == 0)
                    if drawing.suits(choice) and not (temperature and drawing.adaptive):
                        token, lead = drawing.leader(choice, place)
                        assert token >= 0 and lead >= 0


@given(SEEDS, st.integers(1, 20), st.data())
def test_of_a_damaged_file_nothing_impossible_is_drawn(
    seed: int, count: int, data: st.DataObject
) -> None:
    known, _ = added(Random(seed), count)
    damaged = bytearray(b"".join(known.columns()))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    require_drawable(bytes(damaged), data.draw(st.integers(0, len(known))))


@settings(max_examples=400, deadline=None)
@given(SEEDS)
def test_of_impossible_columns_nothing_is_drawn(seed: int) -> None:
    """Of any columns of the lengths that they say, some of which fit together."""
    random = Random(seed)
    counts = random.choices([0, 1, 2, 3], k=random.randrange(1, 6))
    likely = sum(count for count in counts if count > 1) + random.choice([0, 0, 0, 1])
    least = random.choice([5, 5, 2**31 - 20, -1])
    temperatures = random.choices([0.8, 0.8, 0.0, 1e30, np.nan], k=random.randrange(3))
    columns = [
        np.array([len(temperatures), likely, len(counts)], "<u4"),
        np.array(temperatures, "<f8"),
        np.array(sorted(random.choices(range(6), k=len(temperatures))), "<u4"),
        np.arange(least, least + likely, dtype="<i4"),
        np.arange(likely, dtype="u1"),
        np.array(counts, "u1"),
    ]
    data = b"".join(column.tobytes() for column in columns)
    require_drawable(data, random.randrange(len(counts) + 1))


def broken(name: str) -> bytes:
    known = DrawnFrom()
    known.add(0, either(5))
    known.add(1, either(6, 7))
    known.add(2, Distribution(np.zeros(2, np.float32), np.array([8, 9]), 1.5))
    numbers = np.frombuffer(b"".join(known.columns()), "u1").copy()
    temperatures, places, ids, counts = slice(12, 28), slice(28, 36), slice(36, 52), slice(56, 59)
    assert numbers[counts].tolist() == [1, 2, 2]
    assert numbers[temperatures].view("<f8").tolist() == [0.8, 1.5]
    assert numbers[places].view("<u4").tolist() == [1, 2]
    assert numbers[ids].view("<i4").tolist() == [6, 7, 8, 9]
    if name == "counts":
        numbers[counts] = 2
    elif name == "negative":
        numbers[ids].view("<i4")[1] = -1
    elif name == "order":
        numbers[places].view("<u4")[0] = 2
    elif name == "place":
        numbers[places].view("<u4")[1] = 3
    elif name != "whole":
        numbers[temperatures].view("<f8")[0] = float(name)
    return numbers.tobytes()


@pytest.mark.parametrize(
    "name", ["counts", "negative", "order", "place", "nan", "inf", "-0.5", "1e31"]
)
def test_impossible_numbers_are_refused(name: str) -> None:
    require(
        DrawnFrom.of_columns(broken("whole")),
        {
            0: either(5),
            1: either(6, 7),
            2: Distribution(np.zeros(2, np.float32), np.array([8, 9]), 1.5),
        },
    )
    with pytest.raises(InvalidValueError, match="holds impossible distributions"):
        DrawnFrom.of_columns(broken(name))


@pytest.mark.parametrize("since", [None, 1, 2])
def test_choices_without_a_temperature_are_refused(since: int | None) -> None:
    """since: the place from which on there is one."""
    known = DrawnFrom()
    known.add(0, either(6, 7))
    known.add(2, either(8))
    data = b"".join(known.columns())
    assert data[:12] == np.array([1, 2, 3], "<u4").tobytes() and data[20:24] == bytes(4)
    if since is None:
        data = np.array([0, 2, 3], "<u4").tobytes() + data[24:]
    else:
        data = data[:20] + np.array([since], "<u4").tobytes() + data[24:]
    with pytest.raises(InvalidValueError, match="holds impossible distributions"):
        DrawnFrom.of_columns(data)


@pytest.mark.parametrize("cut", [0, 3, 11, 12, -1])
def test_another_length_is_refused(cut: int) -> None:
    with pytest.raises(InvalidValueError, match="has another length than it says"):
        DrawnFrom.of_columns(broken("whole")[:cut])


@given(SEEDS, st.integers(0, 30), st.integers(0, 900))
def test_the_latest_places_of_a_size(seed: int, count: int, size: int) -> None:
    known, expected = added(Random(seed), count)
    latest = known.latest(size)
    assert latest.size <= size
    left = {place for place in expected if latest.choice_at(place)}
    choices = [place for place, each in expected.items() if len(each.shortlist()) > 1]
    assert left == {*choices[len(choices) - len(left) :]}
    # Of those without a choice it is known where others are kept, and from the first one on.
    first = min((place for place in expected if latest.was_sure(place)), default=len(known))
    require(latest, {place: expected[place] for place in expected if place >= min(left | {first})})
    # No more fit.
    if len(left) < len(choices):
        assert known.part(choices[len(choices) - len(left) - 1], len(known)).size > size


def test_what_is_known_of_the_beginning_comes_from_elsewhere() -> None:
    earlier, later = DrawnFrom(), DrawnFrom()
    for place in range(2, 6):
        earlier.add(place, either(place, 50))
    for place in range(4, 9):
        later.add(place, either(place, 60))
    whole = later.completed(earlier)
    found = {place: choice for place in range(12) if (choice := whole.choice_at(place))}
    ids = [(place, each.ids) for place, each in found.items()]
    expected = [*((place, 50) for place in (2, 3)), *((place, 60) for place in range(4, 9))]
    assert ids == [(place, [place, other]) for place, other in expected]
    greedy = DrawnFrom()
    greedy.add(0, either(1))
    for nothing in (DrawnFrom(), later.part(0, 3), greedy):
        assert b"".join(nothing.completed(earlier).columns()) == b"".join(earlier.columns())
        assert b"".join(later.completed(nothing).columns()) == b"".join(later.columns())


@given(SEEDS, st.integers(0, 20), st.integers(0, 20))
def test_where_nothing_is_known_it_comes_from_elsewhere(seed: int, count: int, others: int) -> None:
    random = Random(seed)
    (known, expected), (other, theirs) = added(random, count), added(random, others)
    expected_of_both = (theirs if other else {}) | expected if known else theirs
    require(known.completed(other), expected_of_both)
    # What they knew is as before.
    require(known, expected)
    require(other, theirs)


def test_a_rounded_score_hardly_changes_what_is_drawn() -> None:
    """Rounding decides where the lead is less than a 64th at most."""
    random, noise, others = Random(3), Noise(5), 0
    for position in range(3000):
        ids = np.array(random.sample(range(30_000), 8))
        logits = np.array([random.uniform(-3, 0) for _ in ids], np.float32)
        exact, known = Distribution(logits, ids, 0.8), DrawnFrom()
        known.add(0, exact)
        choice = known.choice_at(0)
        assert choice
        token = drawn_at(exact, noise, position)
        if Drawing(noise, 0.8).leader(choice, position)[0] != token:
            others += 1
            sums = np.sort(exact.scores() + noise.gumbel(position, ids))
            assert sums[-1] - sums[-2] < 1 / 64
    assert 0 < others < 45
