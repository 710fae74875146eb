"""A drafter whose machine goes away, at any call: the text is the same, and goes on without it."""

from collections.abc import Callable, Sequence
from itertools import count

import pytest
from fakes.toy import Scripted, ToyCache, ToyModel, ToyTarget

from localspec.control.adaptive import AdaptivePolicy
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.fixed_depth import FixedDepth
from localspec.control.pass_costs import PassCosts
from localspec.drafters.draft_model import DraftModel
from localspec.errors import WorkerError
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Evaluated, Limit, Outcome
from localspec.speculation.passes import Passes
from localspec.speculation.policy import Policy
from localspec.speculation.rules import RULES
from localspec.stats import Stats

N_VOCAB, SEEDS, LENGTH = 16, 10, 30
TARGET = ToyModel.random(N_VOCAB, seed=11, spread=2.0)
SMALL = TARGET.like(seed=12, noise=1.0)
PROMPT = [3, 1, 4, 1, 5]
# What a decoder calls; each may ask another machine for something.
CALLS = ("held", "begin", "passes", "observe", "read")


class Leaving:
    """A draft model that is told of hidden rows too. Its machine is gone from one call on.

    method, calls: which, after how many of it. asked: how often it was called since.
    """

    def __init__(self, method: str, calls: int) -> None:
        self.inner = DraftModel(ToyCache(SMALL), name="leaving", n_vocab=N_VOCAB)
        self.name, self.traits = self.inner.name, self.inner.traits
        self.asked = 0
        self._method, self._left = method, calls

    def _call(self, method: str) -> None:
        self._left -= method == self._method
        if self._left < 0:
            self.asked += 1
            raise WorkerError("the worker is gone")

    def held(self, tokens: Sequence[int]) -> int:
        self._call("held")
        return len(tokens)

    def begin(self, tokens: Sequence[int]) -> None:
        self._call("begin")
        self.inner.begin(tokens)

    def passes(self, limit: Limit) -> Passes[Draft]:
        draft = yield from self.inner.passes(limit)
        self._call("passes")
        return draft

    def observe(self, outcome: Outcome) -> None:
        self._call("observe")
        self.inner.observe(outcome)

    def read(self, evaluated: Evaluated) -> Passes[None]:
        yield from ()
        self._call("read")


def fixed(drafters: Sequence[Drafter]) -> Policy:
    return FixedDepth(drafters, 3)


def adaptive(drafters: Sequence[Drafter]) -> Policy:
    costs = CostModel(PassCosts({1: 9.0, 2: 9.0, 32: 9.0}), {"leaving": DrafterCost(0.1, 0.1, 0.1)})
    return AdaptivePolicy(drafters, costs, clock=count().__next__)


def text_of(policy: Policy, seed: int) -> list[tuple[int, str]]:
    """The tokens of a text, with their origins."""
    text = list(PROMPT)
    sampler = Sampler(SamplingParams(), Noise(seed))
    target = ToyTarget(TARGET, text)
    clock = count().__next__
    loop = Decoder(target, policy, RULES["coupled"], sampler, text, Stats(), clock=clock)
    found = [(token.id, token.origin) for token in loop.run(LENGTH)]
    assert text == [*PROMPT, *(token for token, _ in found)]
    assert target.cache == text[:-1]
    return found


@pytest.mark.parametrize("policy", [fixed, adaptive])
@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("calls", [0, 1, 4])
def test_the_text_goes_on_without_it(
    policy: Callable[[Sequence[Drafter]], Policy], method: str, calls: int
) -> None:
    lost_in = 0
    for seed in range(SEEDS):
        plain = [token for token, _ in text_of(fixed([]), seed)]
        leaving = Leaving(method, calls)
        used = policy([leaving, Scripted(lambda _text, limit: Draft([1] * limit.depth))])
        found = text_of(used, seed)
        assert [token for token, _ in found] == plain
        assert leaving.asked <= 1, "it is asked again"
        assert leaving not in used.drafters or not leaving.asked
        lost_in += leaving.asked
    # A text calls `held` and `begin` once.
    if calls == 0 or method in ("observe", "read"):
        assert lost_in


@pytest.mark.parametrize("method", ["held", "begin"])
def test_a_later_text_may_find_it_gone(method: str) -> None:
    leaving = Leaving(method, 1)
    policy = fixed([leaving])
    for seed in range(3):
        found = text_of(policy, seed)
        assert [token for token, _ in found] == [token for token, _ in text_of(fixed([]), seed)]
        drafted = "leaving" in [origin for _, origin in found]
        assert drafted == (seed == 0)
    assert leaving.asked == 1
