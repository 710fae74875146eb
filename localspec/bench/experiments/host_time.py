"""Python's own time per step: `python -m localspec.bench.experiments.host_time`.

The loop, the rule, the filters and the noise are the real ones. The target is a stub whose passes
cost nothing and whose logits are random; the drafter is an oracle, so that every row of every step
is read (the dearest case). What it takes to look ahead is counted as drafting, not as host time.
"""

import argparse
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np

from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome
from localspec.speculation.policy import FixedDepth
from localspec.speculation.rules import RULES
from localspec.speculation.target import Scores
from localspec.stats import Stats

STEPS = 64
# Name -> sampler settings, and the budget in milliseconds per step.
CASES = {
    "greedy": (SamplingParams(temperature=0), 1.0),
    "top-k, top-p, min-p": (SamplingParams(), 2.0),
    "min-p only": (SamplingParams(top_k=0, top_p=1), 2.0),
    "full vocabulary": (SamplingParams(top_k=0, top_p=1, min_p=0), 4.0),
}


class StubTarget:
    """Answers every pass at once with rows out of a pool of random logits."""

    def __init__(self, n_vocab: int, depth: int, spread: float) -> None:
        self.n_vocab = n_vocab
        rng = np.random.default_rng(0)
        shape = (4, 1 + depth, n_vocab)
        self.pool = (rng.standard_normal(shape, dtype=np.float32) * spread).astype(np.float32)
        self.step = 0

    def rows(self) -> np.ndarray:
        """The logits of the coming pass."""
        return np.asarray(self.pool[self.step % len(self.pool)])

    def score(self, pending: int, draft: Draft) -> Scores:
        return Scores(self.rows()[: 1 + len(draft)])

    def commit(self, path: Sequence[int]) -> None:
        self.step += 1


class Oracle:
    """Drafts what the stub will decide."""

    name = "oracle"

    def __init__(self, target: StubTarget) -> None:
        self._target = target

    def begin(self, tokens: Sequence[int]) -> None:
        pass

    def propose(self, limit: Limit) -> Draft:
        sampler, prefix, tokens = limit.sampler, limit.prefix, []
        for row in self._target.rows()[: limit.depth]:
            tokens.append(sampler.choose(sampler.distribution(row, prefix), prefix))
            prefix = prefix.then(tokens[-1])
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        pass


def milliseconds_per_step(params: SamplingParams, n_vocab: int, depth: int, spread: float) -> float:
    """The median over steps."""
    target = StubTarget(n_vocab, depth, spread)
    stats = Stats()
    sampler = Sampler(params, Noise(1))
    policy = FixedDepth([Oracle(target)], depth)
    loop = Decoder(target, policy, RULES["coupled"], sampler, [0], stats)
    running = loop.run(STEPS * (1 + depth))
    took = []
    for _ in range(STEPS):
        before = stats.seconds.draft + stats.seconds.verify
        began = perf_counter()
        for _ in range(1 + depth):
            next(running)
        elapsed = perf_counter() - began
        took.append(elapsed - (stats.seconds.draft + stats.seconds.verify - before))
    assert stats.acceptance_rate == 1
    return 1000 * median(took)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabulary", type=int, default=131_072)
    parser.add_argument("--depth", type=int, default=8)
    options = parser.parse_args()
    print(f"host time per step, vocabulary {options.vocabulary:,}, depth {options.depth}")
    print(f"{'sampler':22} {'logits sd':>9} {'ms':>6} {'budget':>7}")
    for name, (params, budget) in CASES.items():
        for spread in (1.0, 2.0, 4.0):
            took = milliseconds_per_step(params, options.vocabulary, options.depth, spread)
            print(f"{name:22} {spread:9.1f} {took:6.2f} {budget:7.1f}")


if __name__ == "__main__":
    main()
