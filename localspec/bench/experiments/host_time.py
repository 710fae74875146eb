"""Python's own time per step.

    python -m localspec.bench.experiments.host_time

The decoder, the rule, the filters and the noise are the real ones. The target is a stub: its
passes are a wait, as on a GPU, and its logits are random. The drafter knows what the target will
choose, so that every row of every step is read, the most expensive case. A drafter that draws
computes the noise of its positions itself; one that copies does not. A pass and the drafter's own
time are not host time.

Time is that of the processor: what other programs take of it, and waiting, does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import sleep, thread_time

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
from localspec.speculation.target import prompt_part
from localspec.stats import Stats

# Name -> sampler settings, and the budget in milliseconds per step.
_CASES = {
    "greedy": (SamplingParams(temperature=0), 1.0),
    "top-k, top-p, min-p": (SamplingParams(), 1.5),
    "min-p only": (SamplingParams(top_k=0, top_p=1), 2.0),
    "full vocabulary": (SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), 2.0),
}
# Standard deviations of the random logits.
_SPREADS = (1.0, 2.0, 4.0)


class _StubTarget:
    """Answers every pass with rows from a pool of random logits, of deviation `spread`."""

    most_kept = 512
    takes_back = None
    scores_drafts = True
    branches = 1
    only_chains = None

    def __init__(self, setup: "_Setup", spread: float) -> None:
        self.n_vocab = setup.n_vocab
        self._seconds = setup.seconds
        rng = np.random.default_rng(0)
        shape = (4, 1 + setup.depth, setup.n_vocab)
        self._pool = (rng.standard_normal(shape, dtype=np.float32) * spread).astype(np.float32)
        if setup.sure:
            self._pool[..., setup.n_vocab // 3] += 40
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

    def part(self, tokens: Sequence[int], at: int, end: int, most: int) -> int:
        return prompt_part(end - at, most)

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        return 0

    def mark(self) -> None:
        pass

    def catch_up(self) -> Iterator[Pass]:
        return iter(())

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        sleep(self._seconds)
        return [Scores(self.rows()[: len(each)]) for each in passes]

    def commit(self, path: Sequence[int]) -> None:
        self._step += 1


class _OracleDrafter:
    """Drafts the tokens that the stub's logits will lead to.

    sampler: one of its own, if it copies; None: that of the target, as models draft.
    """

    name = "oracle"
    traits = Traits()

    def __init__(self, target: _StubTarget, sampler: Sampler | None) -> None:
        self._target = target
        self._sampler = sampler

    def begin(self, tokens: Sequence[int]) -> None:
        pass

    def propose(self, limit: Limit) -> Draft:
        sampler, prefix, tokens = self._sampler or limit.sampler, limit.prefix, []
        for row in self._target.rows()[: limit.depth]:
            tokens.append(sampler.sample(sampler.distribution(row, prefix), prefix))
            prefix = prefix.then(tokens[-1])
        return Draft(tokens)

    def observe(self, outcome: Outcome) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Setup:
    """What is measured.

    seconds: of a pass. users: how many texts are written by turns. sure: whether one token of each
    row is far likelier than all others.
    """

    n_vocab: int
    depth: int
    users: int
    seconds: float
    steps: int
    sure: bool = False


class _Text:
    """A text that is written step by step."""

    def __init__(
        self, params: SamplingParams, setup: _Setup, spread: float, *, copies: bool
    ) -> None:
        target = _StubTarget(setup, spread)
        drafter = _OracleDrafter(target, Sampler(params, Noise(1)) if copies else None)
        self._length = 1 + setup.depth
        self.stats = Stats()
        policy, sampler = FixedDepth([drafter], setup.depth), Sampler(params, Noise(1))
        self._tokens = Decoder(
            target, policy, RULES["coupled"], sampler, [0], self.stats, clock=thread_time
        ).run(setup.steps * self._length)

    def step(self) -> float:
        """The seconds of a step that are neither drafting nor a pass."""
        phases = self.stats.seconds
        others_before, began = phases.draft + phases.verify, thread_time()
        for _ in range(self._length):
            next(self._tokens)
        return thread_time() - began - (phases.draft + phases.verify - others_before)


def _milliseconds_per_step(
    params: SamplingParams, setup: _Setup, spread: float, *, copies: bool
) -> float:
    """The median over steps; with several users, of the mean of their texts."""
    texts = [_Text(params, setup, spread, copies=copies) for _ in range(setup.users)]
    seconds = [sum(text.step() for text in texts) / setup.users for _ in range(setup.steps)]
    assert all(text.stats.acceptance_rate == 1 for text in texts)
    return 1000 * median(seconds)


def main() -> None:
    """Print the milliseconds per step of each sampler beside its budget."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--vocabulary", type=int, default=131_072)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--users", type=int, default=1, help="texts that are written by turns")
    parser.add_argument("--pass-ms", type=float, default=10, help="milliseconds of a pass")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--sure", action="store_true", help="one token of each row is certain")
    options = parser.parse_args()
    setup = _Setup(
        options.vocabulary,
        options.depth,
        options.users,
        options.pass_ms / 1000,
        options.steps,
        options.sure,
    )
    print(
        f"host time per step, vocabulary {setup.n_vocab:,}, depth {setup.depth}, "
        f"users {setup.users}, passes of {options.pass_ms:g} ms"
    )
    table = Table(
        ("sampler", "<22"),
        ("logits sd", "9.1f"),
        ("ms, drawn", "9.2f"),
        ("ms, copied", "10.2f"),
        ("budget", "7.1f"),
    )
    for name, (params, budget) in _CASES.items():
        for spread in _SPREADS:
            drawn, copied = (
                _milliseconds_per_step(params, setup, spread, copies=copies)
                for copies in (False, True)
            )
            table.print_row(name, spread, drawn, copied, budget)


if __name__ == "__main__":
    main()
