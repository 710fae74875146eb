"""Python's own time per step.

    python -m localspec.bench.experiments.host_time

The decoder, the rule, the filters and the noise are the real ones. The target is a stub: its
passes take no time, and its logits are random. The drafter knows what the target will choose, so
that every row of every step is read, the most expensive case. The drafter's own time counts as
drafting, not as host time.
"""

from collections.abc import Iterator, Sequence
from statistics import median
from time import perf_counter

import numpy as np

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.control.fixed_depth import FixedDepth
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits
from localspec.speculation.passes import Pass, Scores
from localspec.speculation.rules import RULES
from localspec.stats import Stats

_STEPS = 64
# Name -> sampler settings, and the budget in milliseconds per step.
_CASES = {
    "greedy": (SamplingParams(temperature=0), 1.0),
    "top-k, top-p, min-p": (SamplingParams(), 2.0),
    "min-p only": (SamplingParams(top_k=0, top_p=1), 2.0),
    "full vocabulary": (SamplingParams(top_k=0, top_p=1, min_p=0), 4.0),
}
# Standard deviations of the random logits.
_SPREADS = (1.0, 2.0, 4.0)


class _StubTarget:
    """Answers every pass at once, with rows from a pool of random logits."""

    chunk = 512
    branches = 1
    only_chains = None

    def __init__(self, n_vocab: int, depth: int, spread: float) -> None:
        self.n_vocab = n_vocab
        rng = np.random.default_rng(0)
        shape = (4, 1 + depth, n_vocab)
        self._pool = (rng.standard_normal(shape, dtype=np.float32) * spread).astype(np.float32)
        self._step = 0

    def rows(self) -> np.ndarray:
        """The logits of the next pass, (1 + depth, n_vocab)."""
        return np.asarray(self._pool[self._step % len(self._pool)])

    @property
    def context(self) -> "_StubTarget":
        return self

    def shared(self, tokens: Sequence[int]) -> int:
        return len(tokens)

    def truncate(self, length: int) -> int:
        return length

    def take_prefix(self, tokens: Sequence[int]) -> int:
        return len(tokens)

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        return 0

    def mark(self) -> None:
        pass

    def catch_up(self) -> Iterator[Pass]:
        return iter(())

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        return [Scores(self.rows()[: len(each)]) for each in passes]

    def commit(self, path: Sequence[int]) -> None:
        self._step += 1


class _OracleDrafter:
    """Drafts the tokens that the stub's logits will lead to."""

    name = "oracle"
    traits = Traits()

    def __init__(self, target: _StubTarget) -> None:
        self._target = target

    def begin(self, tokens: Sequence[int]) -> None:
        pass

    def propose(self, limit: Limit) -> Draft:
        sampler, prefix, tokens = limit.sampler, limit.prefix, []
        for row in self._target.rows()[: limit.depth]:
            tokens.append(sampler.sample(sampler.distribution(row, prefix), prefix))
            prefix = prefix.then(tokens[-1])
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        pass


def _milliseconds_per_step(
    params: SamplingParams, n_vocab: int, depth: int, spread: float
) -> float:
    """The median over steps of the time that is neither drafting nor a pass."""
    target = _StubTarget(n_vocab, depth, spread)
    stats = Stats()
    sampler = Sampler(params, Noise(1))
    policy = FixedDepth([_OracleDrafter(target)], depth)
    decoder = Decoder(target, policy, RULES["coupled"], sampler, [0], stats)
    tokens = decoder.run(_STEPS * (1 + depth))
    seconds = []
    for _ in range(_STEPS):
        others_before = stats.seconds.draft + stats.seconds.verify
        began = perf_counter()
        for _ in range(1 + depth):
            next(tokens)
        elapsed = perf_counter() - began
        seconds.append(elapsed - (stats.seconds.draft + stats.seconds.verify - others_before))
    assert stats.acceptance_rate == 1
    return 1000 * median(seconds)


def main() -> None:
    """Print the milliseconds per step of each sampler beside its budget."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--vocabulary", type=int, default=131_072)
    parser.add_argument("--depth", type=int, default=8)
    options = parser.parse_args()
    print(f"host time per step, vocabulary {options.vocabulary:,}, depth {options.depth}")
    table = Table(("sampler", "<22"), ("logits sd", "9.1f"), ("ms", "6.2f"), ("budget", "7.1f"))
    for name, (params, budget) in _CASES.items():
        for spread in _SPREADS:
            found = _milliseconds_per_step(params, options.vocabulary, options.depth, spread)
            table.print_row(name, spread, found, budget)


if __name__ == "__main__":
    main()
