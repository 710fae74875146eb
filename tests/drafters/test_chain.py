"""A chain of drafted tokens, and what ends it."""

import numpy as np
import pytest

from localspec.drafters.chain import Chain
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Limit

SAMPLERS = [Sampler(SamplingParams(temperature=each), Noise(1)) for each in (0, 1)]
N_VOCAB = 100


@pytest.fixture(params=SAMPLERS, ids=["greedy", "warm"])
def chain(request: pytest.FixtureRequest) -> Chain:
    limit = Limit(4, request.param.prefix([1]), request.param, needs_probs=True)
    return Chain(limit, 4, N_VOCAB)


@pytest.fixture
def logits() -> np.ndarray:
    """Those of a model with a few tokens more than the target."""
    return np.random.default_rng(0).standard_normal(N_VOCAB + 5).astype(np.float32)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 57, N_VOCAB - 1])
def test_logits_that_are_no_numbers_end_it(
    chain: Chain, logits: np.ndarray, bad: float, place: int
) -> None:
    assert chain.draw(logits)
    logits[place] = bad
    assert not chain.draw(logits)
    assert len(chain.draft) == len(chain.draft.probs or ()) == 1


def test_forbidden_tokens_and_tokens_of_the_drafter_alone_do_not(
    chain: Chain, logits: np.ndarray
) -> None:
    logits[:N_VOCAB:2] = -np.inf
    logits[N_VOCAB:] = np.nan
    assert chain.draw(logits)
    assert chain.tokens[0] % 2


def test_logits_without_a_token_end_it(chain: Chain) -> None:
    assert not chain.draw(np.full(N_VOCAB, -np.inf, np.float32))
    assert not chain.draft


def test_it_ends_where_the_policy_says_so_or_is_as_long_as_it_may_be(
    logits: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is told how far each token's score is from the next best; the token stays."""
    best, second = np.sort(logits[:N_VOCAB])[::-1][:2]
    told: list[float] = []

    def go_on(confidence: float) -> bool:
        told.append(confidence)
        return len(told) < 2

    limit = Limit(4, SAMPLERS[0].prefix([1]), SAMPLERS[0], go_on=go_on)
    chain = Chain(limit, 4, N_VOCAB)
    assert chain.draw(logits) and not chain.draw(logits)
    assert told == chain.confidences == pytest.approx([best - second] * 2)
    # A lead takes a look at the whole row: nobody asks for it here.
    monkeypatch.setattr("localspec.drafters.chain.margin", None)
    unasked = Chain(limit.to(2), 2, N_VOCAB)
    assert unasked.draw(logits) and not unasked.draw(logits)
    assert unasked.drawn == [(int(logits[:N_VOCAB].argmax()), None, None)] * 2


def test_the_policy_is_told_of_the_drawn_token_be_it_the_likeliest_or_not() -> None:
    """Its lead over the next best one, with the noise of its place."""
    row = np.random.default_rng(0).standard_normal(9).astype(np.float32)
    params = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
    likeliest = 0
    for seed in range(20):
        sampler, told = Sampler(params, Noise(seed)), list[float]()
        limit = Limit(
            2, sampler.prefix([1]), sampler, go_on=lambda each, told=told: not told.append(each)
        )
        chain = Chain(limit, 2, 9)
        for place in (1, 2):
            chain.draw(row)
            scores = row + Noise(seed).gumbel(place, np.arange(9))
            best, second = np.sort(scores)[:-3:-1]
            assert chain.tokens[-1] == scores.argmax()
            assert told[-1] == pytest.approx(best - second, abs=1e-5)
            likeliest += chain.tokens[-1] == row.argmax()
    assert 0 < likeliest < 40


def test_each_drawn_token_has_the_samplers_state_behind_it() -> None:
    params = SamplingParams(temperature=1, adaptive_target=0.4, adaptive_decay=0.5)
    sampler = Sampler(params, Noise(1))
    prefix = sampler.prefix([1])
    chain = Chain(Limit(3, prefix, sampler), 3, 4)
    for row in np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32):
        law = sampler.distribution(row, prefix)
        chain.draw(row)
        prefix = prefix.then(chain.tokens[-1], law.state_after(chain.tokens[-1]))
        assert chain.drawn[-1].state == prefix.state is not None
    assert len({each.state for each in chain.drawn}) == 3
