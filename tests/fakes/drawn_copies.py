"""Distributions, and what is drawn from them, for tests of drawn copies."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from localspec.drafters.drawn_from import Choice, DrawnFrom
from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.suffix import Suffix
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit

PARAMS = SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0)


def law(random: Random, tokens: int) -> Distribution:
    """A random distribution of a few of so many tokens; of one token in a third of all cases.

    Scores are such that none is rounded where it is kept.
    """
    count = random.choice([1, 2, 3])
    ids = np.array(sorted(random.sample(range(tokens), count)))
    logits = np.array([0.8 / 64 * random.randint(-120, 120) for _ in range(count)], np.float32)
    return Distribution(logits, ids, 0.8)


def drawn_at(distribution: Distribution, noise: Noise, position: int) -> int:
    """From its definition: the largest sum of score and noise."""
    assert distribution.ids is not None
    scores = distribution.logits / distribution.temperature
    sums = scores + noise.gumbel(position, distribution.ids)
    return int(distribution.ids[sums.argmax()])


def kept(distribution: Distribution) -> Choice:
    """What is kept of a distribution with a choice."""
    known = DrawnFrom()
    known.add(0, distribution)
    choice = known.choice_at(0)
    assert choice
    return choice


def limit_of(noise: Noise, depth: int = 8, *, needs_probs: bool = False) -> Limit:
    sampler = Sampler(PARAMS, noise)
    return Limit(depth, sampler.prefix([]), sampler, needs_probs)


def either(*tokens: int) -> Distribution:
    return Distribution(np.zeros(len(tokens), np.float32), np.array(tokens), 0.8)


class Told(NamedTuple):
    """Texts that all drafters copy from, and two drafters."""

    earlier: EarlierTexts
    writers: Sequence[Suffix]

    def end(self, number: int, text: Sequence[int]) -> None:
        """A text of a drafter has ended."""
        self.earlier.add(text, self.writers[number].drawn_from(text))

    def known(self) -> dict[int, Choice]:
        """By the token, what it was drawn from, of all places in the index."""
        texts, drawn_from = self.earlier.up_to_date()
        found = ((token, drawn_from.choice_at(place)) for place, token in enumerate(texts.tokens))
        return {token: choice for token, choice in found if choice}


def told(**options: int) -> Told:
    earlier = EarlierTexts(**options)
    return Told(earlier, [Suffix(earlier=earlier) for _ in range(2)])
