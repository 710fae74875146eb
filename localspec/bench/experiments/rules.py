"""What each rule accepts: `python -m localspec.bench.experiments.rules`.

On the bundled pair, really generated: every rule with every drafter at three temperatures, and
beside them `match`, sampling a token from the target and comparing it with the draft model's
likeliest one, as llama.cpp's speculative decoding does (here without its confidence cut-off: every
rule drafts to the same depth). For the draft model also what `replay` foretells from other texts of
the same prompts.
"""

import argparse
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TypedDict

from localspec.engine.engine import Engine, load
from localspec.engine.generation import Result
from localspec.forecast.replay import Estimate, Prediction, Scored, predict, ratio, score_text
from localspec.llama.context import Context
from localspec.models import registry
from localspec.sampling.params import SamplingParams
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome
from localspec.speculation.rules import RULES

# The standard library's modules that the bundled pair was not trained on.
HELD_OUT = (
    *("heapq", "textwrap", "csv", "fractions", "statistics"),
    *("shlex", "bisect", "colorsys", "calendar", "sched"),
)
MODEL, MATCH = "model", "match"
OTHERS = ("lookup", "ngram", "none")
TEMPERATURES = (0.0, 0.7, 1.0)
# Replay foretells from other texts than those measured: their seeds begin here.
OTHER_SEEDS = 1_000_000


class Filters(TypedDict):
    """The sampler but for its temperature."""

    top_k: int
    top_p: float
    min_p: float


# Spelled out, so that generating and replaying cannot differ.
FILTERS = Filters(top_k=40, top_p=0.95, min_p=0.05)


class Likeliest:
    """Drafts its model's likeliest tokens: with the rule `coupled`, this is sample-and-match.

    The target's token is drawn with noise that such a draft does not look at, so whether the two
    are equal is what it would be for an independent draw.
    """

    name = MATCH

    def __init__(self, model: Drafter) -> None:
        self._model = model

    def begin(self, tokens: Sequence[int]) -> None:
        """The text is now exactly this."""
        self._model.begin(tokens)

    def propose(self, limit: Limit) -> Draft:
        """The model's greedy continuation, through the same filters."""
        greedy = replace(limit.sampler.params, temperature=0.0)
        sampler = replace(limit.sampler, params=greedy)
        return self._model.propose(replace(limit, sampler=sampler))

    def observe(self, outcome: Outcome) -> None:
        """Take in what was committed."""
        self._model.observe(outcome)


@dataclass(frozen=True, slots=True)
class Measured:
    """What generating took: as Prediction, but counted."""

    tokens_per_step: Estimate
    acceptance: Estimate


@dataclass(frozen=True, slots=True)
class Workload:
    """The texts behind one line of the table: `texts` of each prompt, of at most `tokens` tokens.

    Every text has a seed of its own, from `first_seed` on: with one seed, `token` and `block` would
    draw the same numbers for every prompt, and prompts would not be independent.
    """

    prompts: Sequence[str]
    texts: int
    tokens: int
    temperature: float
    first_seed: int = 0

    @property
    def params(self) -> SamplingParams:
        """The sampler."""
        return SamplingParams(temperature=self.temperature, **FILTERS)

    def seeded(self) -> Iterator[tuple[str, range]]:
        """Each prompt with its seeds."""
        for number, prompt in enumerate(self.prompts):
            first = self.first_seed + number * self.texts
            yield prompt, range(first, first + self.texts)

    def generate(
        self, engine: Engine, prompt: str, seed: int, *, rule: str = "coupled", depth: int = 1
    ) -> Result:
        """One text."""
        return engine.generate(
            prompt,
            max_tokens=self.tokens,
            seed=seed,
            rule=rule,
            depth=depth,
            temperature=self.temperature,
            **FILTERS,
        )


def held_out_prompts(per_module: int = 2) -> list[str]:
    """The first lines of functions and classes of the held-out modules.

    They are short: from 64 tokens in a pass on, logits depend on how many there are, and replay
    would no longer see to the bit what generating saw.
    """
    prompts: list[str] = []
    for name in HELD_OUT:
        pieces = re.split(r"\n(?=def |class )", inspect.getsource(import_module(name)))[1:]
        # The tokenizer joins newline and indentation: no newline at the end.
        beginnings = ["\n".join(piece.splitlines()[:3]).rstrip() for piece in pieces]
        prompts += [text for text in beginnings if 60 < len(text) < 130][:per_module]
    return prompts


@contextmanager
def bundled_engines() -> Iterator[dict[str, Engine]]:
    """Drafter -> engine on the bundled pair, `none` and `match` among them.

    One thread and flash attention: there a pass's logits do not depend on its width, so replay
    sees what generating saw.
    """
    with ExitStack() as stack:

        def opened(draft: str | Drafter) -> Engine:
            return stack.enter_context(load(draft=draft, threads=1, flash_attention=True))

        small = registry.bundled().drafter
        engines = {MODEL: opened(str(small)), **{name: opened(name) for name in OTHERS}}
        [drafter] = engines[MODEL].drafting.drafters
        # The two take turns with one cache: `begin` brings it to the text at hand.
        engines[MATCH] = opened(Likeliest(drafter))
        yield engines


def measure(engine: Engine, rule: str, depth: int, work: Workload) -> Measured:
    """Generate, and count."""
    tokens, steps, drafted, accepted = [], [], [], []
    for prompt, seeds in work.seeded():
        all_stats = [
            work.generate(engine, prompt, seed, rule=rule, depth=depth).stats for seed in seeds
        ]
        tokens.append(sum(stats.generated_tokens for stats in all_stats))
        steps.append(sum(stats.steps for stats in all_stats))
        drafted.append(sum(stats.drafted for stats in all_stats))
        accepted.append(sum(stats.accepted for stats in all_stats))
    return Measured(ratio(tokens, steps), ratio(accepted, drafted))


def score(engines: Mapping[str, Engine], work: Workload) -> list[list[Scored]]:
    """Sample each text from the target alone, and score it with both models."""
    plain, drafter = engines["none"], engines[MODEL].drafting.context
    assert drafter is not None, "the draft model has a cache"
    with ExitStack() as stack:
        target, small = (
            stack.enter_context(
                Context(model, n_ctx=plain.context, threads=1, flash_attention=True)
            )
            for model in (plain.model, drafter.model)
        )

        def scored(prompt: str, seed: int) -> Scored:
            text = work.generate(plain, prompt, seed).token_ids
            ids = plain.model.tokenize(prompt)
            return score_text(target, small, ids, text, work.params, limit=work.tokens)

        return [[scored(prompt, seed) for seed in seeds] for prompt, seeds in work.seeded()]


def row(rule: str, drafter: str, work: Workload, seen: Measured, told: Prediction | None) -> str:
    """One line of the table."""
    cells = [
        f"{work.temperature:4.1f} {drafter:>8} {rule:>8}",
        f"{seen.acceptance.value:8.1%} {_with_interval(seen.tokens_per_step)}",
    ]
    if told:
        cells.append(f"{told.acceptance.value:8.1%} {_with_interval(told.tokens_per_step)}")
    return "  ".join(cells)


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.value:8.3f} ±{estimate.high - estimate.value:5.3f}"


def print_lines(engines: Mapping[str, Engine], depth: int, work: Workload) -> None:
    """The lines of one temperature."""
    foretold = score(engines, replace(work, first_seed=OTHER_SEEDS))
    for drafter in (MODEL, "lookup", "ngram"):
        for rule in RULES:
            seen = measure(engines[drafter], rule, depth, work)
            told = predict(foretold, rule, depth) if drafter == MODEL else None
            print(row(rule, drafter, work, seen, told), flush=True)
        if drafter == MODEL:
            seen = measure(engines[MATCH], "coupled", depth, work)
            print(row(MATCH, MODEL, work, seen, predict(foretold, MATCH, depth)), flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128, help="per text")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=4, help="texts per prompt, a seed for each")
    options = parser.parse_args()
    if min(options.tokens, options.depth, options.seeds) < 1:
        parser.error("--tokens, --depth and --seeds must be 1 or more")
    prompts = held_out_prompts()
    print(
        f"{len(prompts)} held-out prompts, {options.seeds} texts of {options.tokens} tokens each, "
        f"depth {options.depth}; tokens per step with 95 % intervals over prompts"
    )
    figures = f"  {'accepted':>8} {'tok/step':>8}       "
    print(f"{'':22}  {'measured':>24}  {'replay':>24}")
    print(f"{'temp':>4} {'drafter':>8} {'rule':>8}{figures}{figures}".rstrip())
    with bundled_engines() as engines:
        for temperature in TEMPERATURES:
            # Greedy texts of a prompt are all the same.
            texts = options.seeds if temperature else 1
            print_lines(
                engines, options.depth, Workload(prompts, texts, options.tokens, temperature)
            )
    print("lookup and ngram propose one certain token at a time: there, match is coupled")


if __name__ == "__main__":
    main()
