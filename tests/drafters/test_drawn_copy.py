"""Drawn copies: what `suffix` proposes where it copies what the target wrote with noise."""

from collections.abc import Iterator, Sequence
from math import prod
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from fakes.drawn_copies import PARAMS, drawn_at, either, law, limit_of
from fakes.mutants import Code, Edit
from fakes.toy import ToyModel, ToyTarget, fixed
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.copy_rates import BINS, CopyRates
from localspec.drafters.drawn_copy import LEADS, DrawnCopy
from localspec.drafters.drawn_from import DrawnFrom
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.sampling.distribution import SHORTLIST, Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.rules import RULES
from localspec.stats import Stats


@pytest.fixture(autouse=True)
def drawn_to_the_end() -> Iterator[None]:
    """Unlikely tokens are drawn, too, and what comes behind them."""
    with patch.multiple(DrawnCopy, least_survival=0.0, hopeless=0.0):
        yield


# Against a search.


def places_after(text: Sequence[int], draft: Sequence[int]) -> set[int]:
    """The places in the text behind the longest end of text and draft that occurs there."""
    whole = [*text, *draft]
    for length in range(len(whole) - (not draft), 0, -1):
        found = {
            start + length
            for start in range(len(text) - length)
            if list(text[start : start + length]) == whole[-length:]
        }
        if found:
            return found
    return set()


def can_be(
    draft: Sequence[int], text: Sequence[int], laws: dict[int, Distribution], noise: Noise
) -> bool:
    """Whether the draft is a copy, drawn anew, after some of the places it may be copied from."""

    def goes_on(done: int, places: set[int]) -> bool:
        if done == len(draft):
            return True
        for place in places:
            if place >= len(text):
                return True  # it goes on with itself: the rest is another test's
            known = laws.get(place)
            unsure = known is not None and len(known) > 1
            token = drawn_at(known, noise, len(text) + done) if known and unsure else text[place]
            if token != draft[done]:
                continue
            same = token == text[place]
            later = {place + 1} if same else places_after(text, draft[: done + 1])
            if goes_on(done + 1, later):
                return True
        return False

    return goes_on(0, places_after(text, []))


def written(
    seed: int, suffix: type[Suffix] = Suffix
) -> tuple[Suffix, list[int], dict[int, Distribution], Noise]:
    """A drafter behind a prompt and some steps of a target whose distributions are random."""
    random, noise = Random(seed), Noise(seed)
    text = [random.randrange(4) for _ in range(random.randrange(1, 12))]
    drafter, laws = suffix(), dict[int, Distribution]()
    drafter.begin(text)
    for _ in range(random.randrange(2, 12)):
        drafter.chances(limit_of(noise))
        tokens: list[int] = []
        distributions = [law(random, 4) for _ in range(random.randrange(1, 4))]
        for each in distributions:
            laws[len(text) + len(tokens)] = each
            tokens.append(drawn_at(each, noise, len(text) + len(tokens)))
        drafter.observe(Outcome(tokens, 0, distributions))
        text += tokens
    return drafter, text, laws, noise


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 8))
def test_a_draft_against_a_search(seed: int, depth: int) -> None:
    drafter, text, laws, noise = written(seed)
    other = Noise(seed + 1)
    for each in (noise, other):
        limit = limit_of(each, depth)
        draft = list(drafter.propose(limit).tokens)
        assert can_be(draft, text, laws, each)
        assert len(drafter.chances(limit)) == len(draft) <= depth
        assert list(drafter.propose(limit.to(1)).tokens) == draft[:1]


def test_another_text_with_the_same_noise_is_drawn_for_anew() -> None:
    for seed in range(100):
        drafter, text, laws, noise = written(seed)
        for more in ([seed % 4], [2, 1]):
            drafter.propose(limit_of(noise))
            text = [*text, *more]
            drafter.begin(text)
            assert can_be(list(drafter.propose(limit_of(noise)).tokens), text, laws, noise)


def test_a_copy_of_the_past_is_not_drawn() -> None:
    past, noise = [*range(100, 160), 7], Noise(1)
    drafter = Suffix(earlier=EarlierTexts([past]))
    drafter.begin([1, 159])
    drafter.observe(Outcome([5], 0, [either(5, 6)]))
    drafter.begin([1, 159, 5, *past[:-1]])
    assert drafter._match and drafter._drawn_from.choice_at(drafter._match.end + 1)
    assert list(drafter.propose(limit_of(noise)).tokens) == [7]


def test_the_chance_of_each_token_by_what_is_known_where_it_is_copied_from() -> None:
    """Nothing of the first two; a choice, drawn anew; one token alone, and a choice after it."""
    ended = 0
    for seed in range(20):
        noise, drafter = Noise(seed), Suffix()
        drafter.begin([8, 10, 11, 15])
        laws = [either(12, 20), either(13), either(14, 21), either(8), either(10)]
        drafter.observe(Outcome([12, 13, 14, 8, 10], 0, laws))
        limit, rates = limit_of(noise, 4), drafter.rates
        low, high = np.sort(noise.gumbel(11, np.array([12, 20])))
        by_lead = rates.drawn[sum(lead <= high - low for lead in LEADS)]
        expected = [rates.once.chance(2), rates.match.chance(3), by_lead.chance(4)]
        token = drawn_at(laws[0], noise, 11)
        if token == 12:
            expected.append(rates.sure.chance(5))
        # Behind another token than the copied one nothing is known.
        ended += token != 12
        assert list(drafter.propose(limit).tokens) == [11, 15, token, 13][: len(expected)]
        assert drafter.chances(limit) == expected
    assert 0 < ended < 20


def test_a_drawn_copy_ends_with_its_text() -> None:
    drafter = Suffix()
    drafter.begin([10])
    drafter.observe(Outcome([11, 12, 13], 0, [either(11), either(12, 20), either(13)]))
    drafter.begin([7, 12])
    assert list(drafter.propose(limit_of(Noise(1))).tokens) == [13]


def test_what_was_certain_where_it_is_copied_from_is_learnt_apart() -> None:
    drafter, limit = Suffix(), limit_of(Noise(1))
    drafter.begin([10])
    drafter.observe(Outcome([11, 12, 10], 0, [either(11), either(12, 20), either(10)]))
    for right in (1, 0):
        assert drafter.propose(limit).tokens[0] == 11
        assert not any(tried for _, tried in drafter.rates.sure.state[1:])
        before, tried = drafter.rates.sure.state[0]
        token = 11 if right else 30
        drafter.observe(Outcome([token, 10], 0, [either(token), either(10)]))
        assert drafter.rates.sure.state[0][0] - before == pytest.approx(right, abs=0.05)
        assert drafter.rates.sure.state[0][1] > tried


def test_the_search_tells_drawn_tokens_from_copied_ones() -> None:
    """Most drafts with the noise of one seed cannot be those of another, nor plain copies."""
    apart = copied = 0
    for seed in range(200):
        drafter, text, laws, noise = written(seed)
        draft = list(drafter.propose(limit_of(noise)).tokens)
        apart += not can_be(draft, text, laws, Noise(seed + 1))
        copied += not can_be(draft, text, {}, noise)
    assert apart > 80 and copied > 80


# With a target whose distribution depends on two tokens alone.


class Watched(Suffix):
    """Notes what it observes, and of its last draft the length of the match and the first token.

    asked: None where it copies from the prompt, of three tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.asked: tuple[int, int] | None = None
        self.drawn_from: list[Distribution] = []

    def observe(self, outcome: Outcome) -> None:
        self.drawn_from += [each.kept() for each in outcome.drawn_from]
        super().observe(outcome)

    def propose(self, limit: Limit) -> Draft:
        draft, match = super().propose(limit), self._match
        is_written = match is not None and match.end + 1 >= 3
        self.asked = (match.length, draft.tokens[0]) if match and is_written else None
        return draft


def toy_text(
    drafter: Watched, rule: str = "coupled", *, params: SamplingParams = PARAMS, seed: int = 5
) -> tuple[list[int], Stats, ToyModel]:
    toy, prompt = ToyModel.random(6, seed=3, spread=1.0), [1, 2, 3]
    decoder = Decoder(
        ToyTarget(toy, prompt),
        fixed(drafter, 3),
        RULES[rule],
        Sampler(params, RULES[rule].randomness(seed)),
        prompt,
        Stats(),
    )
    assert len(list(decoder.run(400))) == 400
    return decoder.text, decoder.stats, toy


@pytest.mark.parametrize("drawn", [True, False])
def test_drawn_copies_are_right_where_the_target_knows_no_more_than_the_match(
    monkeypatch: pytest.MonkeyPatch, *, drawn: bool
) -> None:
    if not drawn:
        monkeypatch.setattr(DrawnFrom, "__bool__", lambda self: False)
    drafter = Watched()
    text, stats, _ = toy_text(drafter)
    right = []
    replayed = Watched()
    replayed.begin(text[:3])
    limit = limit_of(Noise(5), 1)
    for place, distribution in enumerate(drafter.drawn_from, start=3):
        replayed.propose(limit)
        if replayed.asked and replayed.asked[0] >= 2:
            right.append(replayed.asked[1] == text[place])
        replayed.observe(Outcome([text[place]], 0, [distribution]))
    assert len(right) > 250
    # The text is the same either way; partial acceptance is forced by matches of one token.
    assert stats.accepted < stats.drafted
    share = np.mean(right)
    assert share > 0.99 if drawn else share < 0.6


def test_the_text_does_not_change_and_more_is_accepted() -> None:
    text, stats, _ = toy_text(Watched())
    with patch.object(DrawnFrom, "__bool__", lambda self: False):
        same, copied, _ = toy_text(Watched())
    assert text == same
    assert stats.accepted > 1.2 * copied.accepted


def test_a_drafter_is_told_what_each_token_was_drawn_from() -> None:
    drafter = Watched()
    text, stats, toy = toy_text(drafter)
    assert 0 < stats.accepted < stats.drafted
    assert len(drafter.drawn_from) == len(text) - 3
    for place, distribution in enumerate(drafter.drawn_from, start=3):
        weights = np.exp(toy.logits(text[:place]).astype(float) / 0.8)
        found = distribution.dense(6)
        assert np.abs(found - weights / weights.sum()).max() < 1e-6


@pytest.mark.parametrize("rule", ["token", "block"])
def test_under_a_rejection_rule_copies_are_copied(rule: str) -> None:
    """Their randomness is another one, and copies count as certain."""
    drafter = Watched()
    toy_text(drafter, rule)
    assert drafter.drawn_from == [] and not drafter._drawn_from


def test_copies_count_as_certain_where_probabilities_are_needed() -> None:
    for seed in range(40):
        drafter, text, _, noise = written(seed)
        draft = drafter.propose(limit_of(noise, needs_probs=True))
        assert draft.probs is None
        assert can_be(list(draft.tokens), text, {}, noise)


def test_greedy_texts_have_nothing_to_draw() -> None:
    drafter = Watched()
    toy_text(drafter, params=SamplingParams(temperature=0.0))
    assert len(drafter.drawn_from) == 400 and not drafter._drawn_from


def test_a_text_that_is_written_again_is_drawn_from_the_first_one() -> None:
    """Another seed: the copies of the old text are not those of the new one."""
    drafter = Watched()
    first, _, _ = toy_text(drafter)
    again, stats, _ = toy_text(drafter, seed=6)
    alone, fewer, _ = toy_text(Watched(), seed=6)
    assert again == alone != first
    assert stats.accepted > fewer.accepted
    drafter.forget()
    assert not drafter._drawn_from
    forgot, as_few, _ = toy_text(drafter, seed=6)
    assert forgot == alone and as_few.accepted <= stats.accepted


# What it rests on.


@pytest.mark.parametrize("count", [1, 2, 8, 9, 64])
def test_the_leader_is_the_sample_but_for_near_ties(count: int) -> None:
    random, noise, wrong = np.random.default_rng(count), Noise(7), 0
    for position in range(300):
        ids = random.choice(50_000, count, replace=False)
        logits = random.normal(size=count).astype(np.float32) * 3
        distribution = Distribution(logits, ids, 0.7)
        token, lead = noise.leader(logits.tolist(), ids.tolist(), 0.7, position)
        wrong += token != noise.sample(distribution, position)
        sums = np.sort(distribution.scores() + noise.gumbel(position, ids))
        expected = sums[-1] - sums[-2] if count > 1 else np.inf
        assert lead == pytest.approx(expected, abs=0.02)
    assert wrong <= 1


def shortlists() -> list[tuple[SamplingParams, int]]:
    return [
        (SamplingParams(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05), 20_000),
        (SamplingParams(temperature=0.6, top_k=20, top_p=0.95, min_p=0.0), 20_000),
        (SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.001), 20_000),
        (SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0), 20_000),
        (SamplingParams(temperature=1.0, top_k=0, top_p=0.9, min_p=0.0), 20_000),
        (SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=0.9), 500),
        (SamplingParams(temperature=0.0), 500),
    ]


@pytest.mark.parametrize(("params", "size"), shortlists())
def test_a_shortlist_has_the_likeliest_tokens_and_outlives_the_row(
    params: SamplingParams, size: int
) -> None:
    rng = np.random.default_rng(1)
    sampler = Sampler(params, Noise(1))
    for spread in (1.0, 4.0):
        row = (rng.normal(size=size) * spread).astype(np.float32)
        logits, prefix = row.copy(), sampler.prefix([])
        for make in (sampler.sampled_once, sampler.distribution):
            found = make(row, prefix).shortlist()
            exact = make(logits, prefix)
            row[:] = np.nan  # the next decode
            assert found.ids is not None and 1 <= len(found) <= SHORTLIST
            assert found.temperature == exact.temperature
            assert np.array_equal(found.logits, logits[found.ids])
            ids = np.arange(len(exact)) if exact.ids is None else exact.ids
            likely = ids[np.argsort(-exact.logits, kind="stable")[: len(found)]]
            scores = (logits[likely] - logits[likely[0]]) / exact.temperature
            assert {*likely[scores > -3.9]} <= {*found.ids}
            row[:] = logits


@pytest.mark.parametrize("size", [283, 1024, 1025, 20_000])
@pytest.mark.parametrize("params", [params for params, _size in shortlists()])
def test_a_shortlist_has_no_forbidden_tokens(params: SamplingParams, size: int) -> None:
    """A grammar or a bias may leave fewer tokens than it has room for."""
    rng, sampler = np.random.default_rng(2), Sampler(params, Noise(1))
    for possible in (1, 2, 5, 30):
        row = np.full(size, -np.inf, np.float32)
        row[rng.permutation(size)[:possible]] = rng.normal(size=possible)
        for make in (sampler.sampled_once, sampler.distribution):
            found = make(row, sampler.prefix([])).shortlist()
            assert 1 <= len(found) <= possible and np.isfinite(found.logits).all()
            DrawnFrom().add(0, found)


def test_what_is_known_of_a_place() -> None:
    known = DrawnFrom()
    for place, count in ((5, 1), (7, 2)):
        known.add(place, Distribution(np.zeros(count, np.float32), np.arange(count), 0.8))
    assert [place for place in range(10) if known.was_sure(place)] == [5]
    assert [place for place in range(10) if known.choice_at(place)] == [7]


def test_rates_by_lead() -> None:
    rates = CopyRates()
    assert len(rates.drawn) == len(LEADS) + 1
    for table, surer in zip(rates.drawn, rates.drawn[1:], strict=False):
        assert all(
            one <= other + 0.05
            for one, other in zip(table.chances(1, 60), surer.chances(1, 60), strict=True)
        )
    drafter, _, _, _ = written(11)
    assert any(each.state != ((0.0, 0.0),) * len(BINS) for each in drafter.rates.drawn)


MISTAKES = {
    "the noise of the first position for all tokens": Edit(
        DrawnCopy._grow, "self._position + len(self._tokens)", "self._position"
    ),
    "the noise of the position before": Edit(
        Suffix._draws, "position=len(self._text)", "position=len(self._text) - 1"
    ),
    "the distribution of the place before": Edit(
        DrawnCopy._grow, "choice_at(place)", "choice_at(place - 1)"
    ),
    "a token that differs, and the copy goes on as if it did not": Edit(
        DrawnCopy._grow, "if token != copied:", "if False:"
    ),
    "distributions of one place further on": Edit(
        Suffix.observe, "len(self._automaton.tokens), outcome", "len(self._text) + 1, outcome"
    ),
    "a draft of the token before": Edit(
        Suffix.observe, "self._drawn = self._found = None", "self._found = None"
    ),
    "a copy of the token before": Edit(
        Suffix.observe, "self._drawn = self._found = None", "self._drawn = None"
    ),
    "a copy that goes on elsewhere as if nothing were drafted": Edit(
        DrawnCopy._go_on_elsewhere, "for token in self._tokens:", "for token in ():"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake: str) -> None:
    code = Code(MISTAKES[mistake])
    suffix = code.of(Suffix)
    code.of(DrawnCopy).least_survival = code.of(DrawnCopy).hopeless = 0.0

    def is_right(seed: int) -> bool:
        drafter, text, laws, noise = written(seed, suffix)
        return can_be(list(drafter.propose(limit_of(noise)).tokens), text, laws, noise)

    assert not all(map(is_right, range(100)))


def test_hopeless_tokens_are_left_out() -> None:
    cut = 0
    for seed in range(40):
        limit = limit_of((made := written(seed))[3], 30)
        whole, chances = list(made[0].propose(limit).tokens), made[0].chances(limit)
        with patch.object(DrawnCopy, "hopeless", 0.3):
            shorter = written(seed)[0]
            tokens = list(shorter.propose(limit).tokens)
            assert shorter.chances(limit) == chances[: len(tokens)]
        assert tokens == whole[: len(tokens)]
        if 1 < len(tokens) < len(whole):
            cut += 1
            assert prod(chances[1 : len(tokens) - 1]) >= 0.3
    assert cut > 5


def test_unlikely_tokens_are_copied() -> None:
    with patch.object(DrawnCopy, "least_survival", 1.1):
        for seed in range(40):
            drafter, text, _, noise = written(seed)
            draft = list(drafter.propose(limit_of(noise)).tokens)
            assert can_be(draft, text, {}, noise)
