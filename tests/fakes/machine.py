"""A simulated machine for tests of policies: the seconds of passes and drafts are given."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from localspec.control.adaptive import AdaptivePolicy
from localspec.control.base_costs import WIDEST
from localspec.control.cost_model import CostModel
from localspec.control.drafter_cost import DrafterCost
from localspec.control.pass_costs import PassCosts
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.policy import Step

# Seconds of a pass by width, relative to a plain pass; entry 0 is unused. On a CPU the cost rises
# with each row or in steps, on a GPU hardly, with a mixture of experts (MoE) fast.
CURVES = {
    "cpu": [0.0, *(0.7 + 0.3 * n for n in range(1, WIDEST + 1))],
    "stairs": [0.0, 1.0, 1.8, 2.5, 1.7, 2.5, 3.2, 3.9, 3.0, *(0.4 * n for n in range(9, 33))],
    "gpu": [0.0, *(1 + 0.02 * (n - 1) + 0.45 * (n > 8) for n in range(1, WIDEST + 1))],
    "moe": [0.0, 1.0, 1.59, 1.85, 2.1, *(0.5 * n for n in range(5, WIDEST + 1))],
}
MARGIN_OF = {True: 3.5, False: 0.2}
SAMPLER = Sampler(SamplingParams(), Noise(0))


@dataclass
class CostlyDrafter:
    """A drafter whose tokens each cost time, and which reports its confidence in each.

    right: called for each token; whether the token is right. A right token is 1, a wrong one 0; the
        target's token is always 1.
    margin: the confidence that it reports, by whether the token is right.
    backlog: the number of text tokens that it has not read.
    each: seconds to read a token of the backlog; None: reading takes no time.
    deepest: see Traits; only `Limit.go_on` keeps it from drafting more.
    parallel: see Traits; all tokens take the time of one pass.
    reading: the seconds to read the hidden rows of a token; 0 for a drafter that reads none.
    only_last_row: see Traits. missed: whether it lacks hidden rows.
    """

    clock: "FakeClock"
    right: Callable[[], bool]
    first: float = 0.15
    further: float = 0.1
    margin: Callable[[bool], float] = lambda right: MARGIN_OF[True]
    backlog: int = 1
    each: float | None = None
    name: str = "costly"
    deepest: int | None = None
    parallel: bool = False
    reading: float = 0.0
    only_last_row: bool = False
    missed: bool = False

    @property
    def traits(self) -> Traits:
        return Traits(
            backlog=lambda: self.backlog,
            deepest=self.deepest,
            parallel=self.parallel,
            reads_hidden=(1,) if self.reading else (),
            only_last_row=self.only_last_row,
        )

    def begin(self, tokens: Sequence[int]) -> None: ...

    def propose(self, limit: Limit) -> Draft:
        assert not self.missed
        tokens: list[int] = []
        self.clock.now += max(0, self.backlog - 2) * (self.each or 0.0)
        if self.parallel:
            self.clock.now += self.first + (limit.depth - 1) * self.further
        while len(tokens) < limit.depth:
            if not self.parallel:
                self.clock.now += self.further if tokens else self.first
            right = self.right()
            tokens.append(int(right))
            if limit.go_on and not limit.go_on(self.margin(right)):
                break
        self.backlog = 1 if self.each is None else 0
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        if self.each is not None:
            # After its own draft only the last token is unread; else all committed tokens are.
            self.backlog = self.backlog + len(outcome.tokens) if self.backlog else 1


class OfTraits(CostlyDrafter):
    """A drafter with other traits than usual."""

    def __init__(self, clock: "FakeClock", **traits: Any) -> None:
        super().__init__(clock, lambda: True)
        self._changed = traits

    @property
    def traits(self) -> Traits:
        return replace(super().traits, **self._changed)


@dataclass
class CheapDrafter:
    """A cheap drafter. lengths: the tokens of each draft. right: whether each token is right."""

    lengths: Callable[[], int]
    right: Callable[[], bool]
    name: str = "cheap"
    _next: Draft | None = None

    @property
    def traits(self) -> Traits:
        return Traits(cheap=True)

    def begin(self, tokens: Sequence[int]) -> None: ...

    def propose(self, limit: Limit) -> Draft:
        if self._next is None:
            self._next = Draft([int(self.right()) for _ in range(self.lengths())])
        return self._next.first(limit.depth)

    def observe(self, outcome: Outcome) -> None:
        self._next = None


@dataclass
class FakeClock:
    """A clock that the simulated machine advances."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Machine:
    """Runs a policy. plain: seconds of a plain pass. noise: a factor on the pass of each step.

    takes_back: as in Limit; behind a rejected draft that is longer, a pass has further rows.
    """

    clock: FakeClock
    curve: str = "cpu"
    plain: float = 1.0
    noise: Iterable[float] = field(default_factory=lambda: iter(lambda: 1.0, None))
    takes_back: int | None = None

    def policy(self, *drafters: object, **options: object) -> AdaptivePolicy:
        options = {"clock": self.clock, **options}
        return AdaptivePolicy(drafters, self.costs(*drafters), **options)  # type: ignore[arg-type]

    def costs(self, *drafters: object) -> CostModel:
        """What passes and drafts take, as measured."""
        curve = CURVES[self.curve]
        profile = {n: self.plain * curve[n] for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32)}
        passes = PassCosts(profile, unequal_apart=self.takes_back is not None)
        costs = {
            drafter.name: DrafterCost(
                drafter.first, drafter.further, 0.05 if drafter.each is None else drafter.each
            )
            for drafter in drafters
            if isinstance(drafter, CostlyDrafter)
        }
        return CostModel(passes, costs)

    def write(
        self, policy: AdaptivePolicy, tokens: int, most: int = 10**9, lacking: int = 0
    ) -> None:
        """Generate a text that ends after `tokens` tokens, though the limit is `most`.

        lacking: the tokens of the prompt whose hidden rows heads have missed.
        """
        policy.begin()
        for drafter in policy.drafters:
            if drafter.traits.reads_hidden:
                drafter.missed = not policy.reads(drafter, lacking)  # type: ignore[attr-defined]
        written = 0
        for step, _ in self.steps(policy, max(tokens, most)):
            written += len(step.tokens)
            if written >= tokens:
                break

    def steps(self, policy: AdaptivePolicy, tokens: int = 10**9) -> Iterator[tuple[Step, float]]:
        """Yield each step and the time after it, until there are `tokens` tokens."""
        factors, again = iter(self.noise), 0
        while tokens > 0:
            began = self.clock.now
            limit = Limit(tokens - 1, Prefix(0), SAMPLER, takes_back=self.takes_back)
            decision = policy.decide(limit)
            draft = Draft(())
            if decision.drafter:
                draft = decision.draft or decision.drafter.propose(  # type: ignore[attr-defined]
                    limit.to(decision.depth, decision.go_on)
                )
            drafting = self.clock.now - began
            verified = policy.keep(draft)
            if policy.rests:
                policy.look(limit)
            assert 0 <= verified <= len(draft) <= max(0, tokens - 1)
            width = min(again + policy._passes.padded(verified + 1), WIDEST)
            self.clock.now += self.plain * CURVES[self.curve][width] * next(factors)
            accepted = next((i for i in range(verified) if not draft.tokens[i]), verified)
            done = [1] * (accepted + 1)
            reading = self._read(policy, len(done))
            took = self.clock.now - began
            step = Step(draft.tokens, verified, width, done, took, drafting, again, reading=reading)
            policy.learn(step)
            for drafter in policy.drafters:
                drafter.observe(Outcome(step.tokens, accepted))
            kept = self.takes_back is None or verified <= self.takes_back
            again = 0 if kept or accepted == verified else accepted + 1
            tokens -= len(step.tokens)
            yield step, self.clock.now

    def _read(self, policy: AdaptivePolicy, tokens: int) -> dict[str, float]:
        """Show the hidden rows of a step to the drafters that the policy names."""
        reading = {}
        for drafter in policy.drafters:
            if isinstance(drafter, CostlyDrafter) and drafter.reading:
                if policy.reads(drafter):
                    reading[drafter.name] = tokens * drafter.reading
                    self.clock.now += reading[drafter.name]
                    drafter.missed = drafter.missed and not drafter.only_last_row
                else:
                    drafter.missed = True
        return reading
