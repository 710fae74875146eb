"""The sampler: what the token after each prefix depends on."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler

TOKENS = st.lists(st.integers(0, 5), max_size=12)
READS = [
    SamplingParams(),
    SamplingParams(repeat_penalty=1.3, penalty_window=1),
    SamplingParams(presence_penalty=0.3, penalty_window=4),
    SamplingParams(frequency_penalty=0.3, penalty_window=-1),
    SamplingParams(repeat_penalty=1.3, penalty_window=2, dry_multiplier=1, dry_penalty_last_n=5),
]
N_VOCAB = 6


@dataclass(frozen=True)
class Followed:
    """Allows what the last token says, and the token after it."""

    text: tuple[int, ...] = field(default=(0,))

    def allowed(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(N_VOCAB), (self.text[-1], self.text[-1] + 1))

    def then(self, token: int) -> "Followed":
        return Followed((*self.text, token))


@pytest.mark.parametrize("params", READS)
@given(TOKENS, TOKENS)
def test_prefix_of_text_and_drafted_tokens_is_that_of_the_whole(
    params: SamplingParams, text: list[int], drafted: list[int]
) -> None:
    sampler = Sampler(params, Noise(0))
    prefix = sampler.prefix(text)
    for token in drafted:
        prefix = prefix.then(token)
    whole = [*text, *drafted]
    read = {-1: len(whole), 0: 0}.get(params.window, params.window)
    assert prefix == sampler.prefix(whole)
    assert prefix.position == len(whole)
    assert prefix.recent == tuple(whole[len(whole) - read :] if read < len(whole) else whole)


def test_prefix_keeps_the_constraint_of_each_drafted_token() -> None:
    first = Sampler(SamplingParams(), Noise(0), constraint=Followed()).prefix([7, 7])
    second = first.then(3)
    assert first.constraint == Followed()
    assert second.then(4).constraint == Followed((0, 3, 4))
    assert second.constraint == Followed((0, 3))


@pytest.mark.parametrize("size", [N_VOCAB, N_VOCAB - 2])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("once", [False, True])
def test_ends_are_forbidden_before_their_earliest_place_and_no_other_token(
    constrained: bool, once: bool, size: int
) -> None:
    """Tokens 1 and 2 end the text; a drafter may have fewer tokens than are constrained."""
    sampler = Sampler(
        SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0),
        Noise(0),
        ends=(1, 2, size),
        earliest_end=3,
        constraint=Followed() if constrained else None,
    )
    logits = np.zeros(size, np.float32)
    law = sampler.sampled_once if once else sampler.distribution
    allowed = {0, 1} if constrained else set(range(size))
    for length in range(6):
        left = law(logits, sampler.prefix([0] * length)).dense(N_VOCAB)
        assert set(left.nonzero()[0]) == (allowed - {1, 2} if length < 3 else allowed)
        assert (logits == 0).all(), "a model's logits were changed"
