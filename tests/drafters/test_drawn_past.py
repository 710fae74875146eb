"""Copies from texts that others wrote, drawn anew: what is known of them goes along with them."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from fakes.drawn_copies import PARAMS, drawn_at, either, kept, told
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
from fakes.toy import ToyModel, ToyTarget, fixed
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.copy_rates import MatchTable
from localspec.drafters.drawn_copy import LEADS, Drawing, DrawnCopy
from localspec.drafters.drawn_from import DrawnFrom
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.rules import RULES
from localspec.stats import Stats


@pytest.fixture(autouse=True)
def drawn_to_the_end() -> Iterator[None]:
    """Unlikely tokens are drawn, too, and what comes behind them."""
    with patch.multiple(DrawnCopy, least_survival=0.0, hopeless=0.0):
        yield


def read(seed: int, classes: Classes = REAL) -> Read:
    """The draft of a text that repeats nothing but the texts of two other drafters, and these."""
    random, noise = Random(seed), Noise(seed)
    earlier = classes.earlier()
    drafters = [classes.suffix(earlier=earlier) for _ in range(3)]
    pasts, last = list[Past](), dict[int, Past]()
    for _ in range(random.randrange(1, 4)):
        number = random.randrange(2)
        begun = begun_after(last.get(number), random)
        last[number] = past = write(drafters[number], begun, random, Noise(random.randrange(9**9)))
        earlier.add(past.text, drafters[number].drawn_from(past.text))
        pasts.append(past)
    return *drafted(drafters[2], random, noise), pasts, noise


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_a_draft_from_texts_of_others_against_a_search(seed: int) -> None:
    draft, text, pasts, noise = read(seed)
    assert can_be(draft, text, pasts, noise)


def test_the_search_tells_drawn_tokens_from_copied_ones() -> None:
    """Most drafts with the noise of one seed cannot be those of another, nor plain copies."""
    apart, copied = told_apart(read, 200)
    assert apart > 80 and copied > 80


MISTAKES = {
    "distributions of the token before": Edit(
        EarlierTexts._with, "extend(len(index.tokens), part)", "extend(len(index.tokens) + 1, part)"
    ),
    "distributions of one place further on in the drafter": Edit(
        Suffix.drawn_from, "part(behind + start,", "part(behind + start + 1,"
    ),
    "the places of the text in its index for those in the text": Edit(
        Suffix.drawn_from, "known.extend(start, ", "known.extend(start + 1, "
    ),
    "the places in the drafter's index where it has kept other texts": Edit(
        Suffix.drawn_from, "len(self._automaton.tokens) - len(own)", "0"
    ),
    "nothing of what the texts were drawn from": Edit(
        EarlierTexts._with, "indexed.drawn_from.extend(len(index.tokens), part)", "pass"
    ),
    "where the drafter's own text repeats itself, for where it is in the past": Edit(
        Suffix._draws, "self._past_match, self._in_past,", "self._past_match, own.repeat,"
    ),
    "what the drafter's own text was drawn from": Edit(
        Suffix._draws, "self._past_drawn_from, rates", "self._drawn_from, rates"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake: str) -> None:
    code = Code(MISTAKES[mistake])
    classes = Classes(code.of(Suffix), code.of(EarlierTexts))
    code.of(DrawnCopy).least_survival = code.of(DrawnCopy).hopeless = 0.0
    assert not all(can_be(*read(seed, classes)) for seed in range(100))


# What the reader makes of it.


def followed(drawn_from: Distribution, temperature: float, seed: int) -> tuple[Suffix, Limit]:
    """A drafter whose text is copied from another one, where the next token was drawn from this."""
    both, noise = told(), Noise(seed)
    writer, reader = both.writers
    writer.begin([10, 11])
    writer.observe(Outcome([12, 13], 0, [drawn_from, either(13)]))
    both.end(0, [10, 11, 12, 13])
    reader.begin([20, 10, 11])
    params = SamplingParams(temperature=temperature, top_k=0, top_p=1.0, min_p=0.0)
    sampler = Sampler(params, noise)
    return reader, Limit(4, sampler.prefix([]), sampler)


UNEVEN = Distribution(np.array([0.0, 0.5, 1.0], np.float32), np.array([12, 14, 15]), 0.8)


@pytest.mark.parametrize("temperature", [0.2, 0.8, 1.5])
def test_a_text_draws_at_its_own_temperature(temperature: float) -> None:
    drawn = set[int]()
    for seed in range(40):
        reader, limit = followed(UNEVEN, temperature, seed)
        token = reader.propose(limit).tokens[0]
        own = Distribution(UNEVEN.logits, UNEVEN.ids, temperature)
        assert token == drawn_at(own, Noise(seed), 3)
        drawn.add(token)
    assert len(drawn) > 1


def test_a_text_at_temperature_0_copies_the_likeliest_tokens() -> None:
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        uneven = Distribution(UNEVEN.logits[order], np.array([12, 14, 15])[order], 0.5)
        reader, limit = followed(uneven, 0.0, 1)
        assert reader.propose(limit).tokens[0] == 15
        # Its score is 1 above that of the next.
        assert reader.chances(limit)[0] == reader.rates.past_drawn[2].chance(2)


def test_where_the_temperature_depends_on_the_distribution_it_is_the_old_one() -> None:
    sampler = Sampler(SamplingParams(temperature=0.3, dynatemp_range=0.2), Noise(1))
    drawing = Drawing.of(sampler)
    token, lead = Noise(1).leader([0.0, 0.5, 1.0], [12, 14, 15], 0.8, 7)
    assert drawing and drawing.leader(kept(UNEVEN), 7) == (token, lead)


ADAPTIVE = SamplingParams(temperature=0.3, top_k=0, top_p=1.0, min_p=0.0, adaptive_target=0.3)


def adapted(position: int) -> tuple[Sampler, Distribution, int]:
    """Of a text with adaptive-p: a distribution at a position, and the token that is drawn."""
    sampler = Sampler(ADAPTIVE, Noise(3))
    prefix = replace(sampler.prefix([]), position=position)
    found = sampler.sampled_once(np.array([0.0, 0.4, 0.3, 0.5], np.float32), prefix)
    return sampler, found.shortlist(), sampler.sample(found, prefix)


def test_a_text_with_adaptive_p_draws_from_what_that_makes_of_the_logits() -> None:
    drawn = set[int]()
    for position in range(40):
        sampler, choice, token = adapted(position)
        drawing = Drawing.of(sampler)
        assert drawing and drawing.suits(kept(choice)) and not drawing.suits(kept(UNEVEN))
        assert drawing.leader(kept(choice), position)[0] == token
        drawn.add(token)
    assert len(drawn) > 2


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_adaptive_p_made_of_the_logits_is_not_drawn_from_without_it(
    temperature: float,
) -> None:
    """The token is copied as it is, and nothing is learnt of drawn ones."""
    for seed in range(20):
        _, choice, _ = adapted(seed)
        assert len(choice) > 1
        reader, limit = followed(choice, temperature, seed)
        assert reader.propose(limit).tokens[:1] == [12]
        before = [each.state for each in reader.rates.past_drawn]
        reader.observe(Outcome([12], 1))
        assert [each.state for each in reader.rates.past_drawn] == before


def test_copies_of_others_have_chances_of_their_own() -> None:
    ended = 0
    for seed in range(20):
        reader, limit = followed(UNEVEN, 0.8, seed)
        assert UNEVEN.ids is not None
        sums = np.sort(UNEVEN.logits / 0.8 + Noise(seed).gumbel(3, UNEVEN.ids))
        lead, rates = sums[-1] - sums[-2], reader.rates
        table = rates.past_drawn[sum(each <= lead for each in LEADS)]
        draft = list(reader.propose(limit).tokens)
        expected = [table.chance(2), rates.past_sure.chance(3)][: len(draft)]
        assert reader.chances(limit) == expected
        ended += draft == [12, 13]
        before = [each.state for each in rates.past_drawn]
        reader.observe(Outcome([draft[0]], 1))
        changed = [each for each, old in zip(rates.past_drawn, before, strict=True)
                   if each.state != old]  # fmt: skip
        assert changed == [table] and table.chance(2) > expected[0]
        assert all(each.state == MatchTable().state for each in rates.drawn)
    assert 0 < ended < 20


def toy_text(drafter: Suffix, seed: int, count: int) -> tuple[list[int], Stats]:
    toy, prompt = ToyModel.random(12, seed=3, spread=1.5), [1, 2, 3]
    decoder = Decoder(
        ToyTarget(toy, prompt),
        fixed(drafter, 3),
        RULES["coupled"],
        Sampler(PARAMS, RULES["coupled"].randomness(seed)),
        prompt,
        Stats(),
    )
    assert len(list(decoder.run(count))) == count
    return decoder.text, decoder.stats


def test_the_text_does_not_change_and_more_is_accepted() -> None:
    """The target knows no more than the last two tokens, and another drafter wrote them all."""

    def second(*, drawn: bool, shared: bool = True) -> tuple[list[int], Stats]:
        both = told()
        writer, reader = both.writers
        text, _ = toy_text(writer, 5, 600)
        if shared:
            both.earlier.add(text, writer.drawn_from(text) if drawn else DrawnFrom())
        return toy_text(reader, 6, 200)

    text, stats = second(drawn=True)
    same, copied = second(drawn=False)
    alone, own = second(drawn=False, shared=False)
    assert text == same == alone
    assert 0 < stats.accepted < stats.drafted
    assert stats.accepted > 1.2 * max(copied.accepted, own.accepted)
