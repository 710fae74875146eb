"""What a second guess at the least sure places of a draft would gain, in virtual time.

    python -m localspec.bench.experiments.siblings --model TARGET --draft DRAFTER

A drafted chain may have a sibling, the drafter's second choice, at a few of its places: where the
first choice is wrong and the second is right, a step gives one token more, at the cost of a row.
Texts of the target are read with the drafter, with the same noise; then every depth and number of
siblings is played over them, with the costs of passes by rows that were measured on several
machines. A table compares the best chain with the best draft with siblings.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.bench.prompt_sets import SETS, bundled_tasks
from localspec.drafters.confidence import margin
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Generation
from localspec.llama.sequence import KVSequence
from localspec.sampling.noise import Noise
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler

_TEMPERATURES = (0.0, 0.7, 1.0)
_DEPTHS, _MOST_SIBLINGS = range(1, 9), 4
# Seconds of a pass of 1, 2, ... rows, divided by those of one row: measured on CPUs of two cores
# (the stairs of Q4_0, the slope of F16), and a GPU's nearly flat line.
_PASSES: Mapping[str, Sequence[float]] = {
    "CPU Q4_0": (1, 1.8, 2.5, 1.7, 2.5, 3.2, 3.9, 3.0, 3.4, 3.7, 4.0, 4.3, 4.3),
    "CPU F16": (1, 1.3, 1.4, 1.5, 1.6, 1.7, 1.9, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5),
    "GPU": (1, 1.02, 1.04, 1.06, 1.08, 1.1, 1.12, 1.14, 1.17, 1.2, 1.23, 1.26, 1.3),
}
# Seconds of a drafted token, divided by those of a pass of one row.
_DRAFT_COSTS = (0.02, 0.1)


@dataclass(frozen=True, slots=True)
class _Read:
    """A text of the target, read with the drafter; arrays are (n,).

    first, second: whether the drafter's first and second choice is the token. sure: its margin.
    """

    first: NDArray[np.bool_]
    second: NDArray[np.bool_]
    sure: NDArray[np.float64]

    def steps(self, depth: int, siblings: int) -> int:
        """The steps of drafts with this depth and so many siblings."""
        start = steps = 0
        while start < len(self.first):
            first = self.first[start : start + depth]
            accepted = len(first) if first.all() else int(first.argmin())
            place = start + accepted
            if accepted < len(first) and self.second[place]:
                least_sure = np.argsort(self.sure[start : start + depth])[:siblings]
                place += accepted in least_sure
            start, steps = place + 1, steps + 1
        return steps


def _read(engine: Engine, small: KVSequence, running: Generation) -> _Read:
    """Write a text, and read it with the drafter."""
    prompt, text = running.prompt, running.result().token_ids
    sampler = engine.slot.sampler(running.settings, len(prompt))
    small.set_tokens(prompt[:-1])
    prefix, found = sampler.prefix(prompt), []
    for before, token in zip([prompt[-1], *text], text, strict=False):
        logits = small.extend([before])[: engine.model.n_vocab]
        found.append(_choices(logits, sampler, prefix, token))
        prefix = prefix.then(token)
    first, second, sure = zip(*found, strict=True)
    return _Read(np.array(first), np.array(second), np.array(sure))


def _choices(
    logits: NDArray[np.float32], sampler: Sampler, prefix: Prefix, token: int
) -> tuple[bool, bool, float]:
    """Whether the first and the second choice is this token, and how sure the first is."""
    law = sampler.distribution(logits, prefix)
    chosen = sampler.sample(law, prefix)
    sure = margin(logits, law, chosen, sampler, prefix)
    noise = sampler.randomness
    if len(law) == 1 or not isinstance(noise, Noise):
        ids, scores = np.arange(len(logits)), np.asarray(logits, np.float64)
    else:
        ids = np.arange(len(law)) if law.ids is None else law.ids
        scores = law.scores() + noise.gumbel(prefix.position, ids)
    rest = scores.copy()
    rest[ids == chosen] = -np.inf
    return token == chosen, token == ids[rest.argmax()], sure


def _best(
    texts: Sequence[_Read], passes: Sequence[float], draft: float, most_siblings: int
) -> tuple[float, int, int]:
    """The most tokens per plain pass, and the depth and the siblings that give them."""
    tokens = sum(len(text.first) for text in texts)
    found = []
    for depth in _DEPTHS:
        for siblings in range(min(depth, most_siblings) + 1):
            # A wider pass may be quicker: then padding is.
            seconds = min(passes[depth + siblings :]) + draft * depth
            steps = sum(text.steps(depth, siblings) for text in texts)
            found.append((tokens / (steps * seconds), depth, siblings))
    return max(found)


def _texts(
    engine: Engine, small: KVSequence, temperature: float, options: argparse.Namespace
) -> list[_Read]:
    found = []
    for task in bundled_tasks(options.set)[: options.prompts]:
        prompt = task.prompt_for(engine)
        for seed in range(options.seeds if temperature else 1):
            running = engine.stream(
                prompt,
                max_tokens=options.tokens,
                temperature=temperature,
                seed=seed,
                depth=0,
                logprobs=False,
            )
            found.append(_read(engine, small, running))
    return found


def main() -> None:
    """Print a row per temperature, machine and cost of a drafted token."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--draft", type=Path, required=True, help="a draft model")
    parser.add_argument("--set", default="code", choices=SETS, help="of prompts")
    parser.add_argument("--prompts", type=int, default=4, help="how many of the set")
    parser.add_argument("--tokens", type=int, default=96, help="per text")
    parser.add_argument("--seeds", type=int, default=4, help="texts per prompt, a seed for each")
    options = parser.parse_args()
    if min(options.tokens, options.prompts, options.seeds) < 1:
        parser.error("--tokens, --prompts and --seeds must be 1 or more")
    with load(options.model, str(options.draft), threads=options.threads) as engine:
        [small] = engine.drafter_set.sequences.values()
        texts = {each: _texts(engine, small, each, options) for each in _TEMPERATURES}
    for temperature, read in texts.items():
        first = np.concatenate([each.first for each in read])
        second = np.concatenate([each.second for each in read])
        print(
            f"temperature {temperature}: the first choice is right {first.mean():.0%} of the time; "
            f"where it is not, the second is {second[~first].mean():.0%}"
        )
    table = Table(
        ("temp", "4.1f"),
        ("passes", "<8"),
        ("draft", "5.2f"),
        ("chain", "6.3f"),
        ("depth", "5"),
        ("tree", "6.3f"),
        ("depth", "5"),
        ("siblings", "8"),
        ("gain", "6.1%"),
    )
    for temperature, read in texts.items():
        for name, passes in _PASSES.items():
            for draft in _DRAFT_COSTS:
                chain, depth, _ = _best(read, passes, draft, 0)
                tree, tree_depth, siblings = _best(read, passes, draft, _MOST_SIBLINGS)
                table.print_row(
                    temperature,
                    name,
                    draft,
                    chain,
                    depth,
                    tree,
                    tree_depth,
                    siblings,
                    tree / chain - 1,
                )


if __name__ == "__main__":
    main()
