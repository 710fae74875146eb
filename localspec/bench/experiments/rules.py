"""What each rule accepts, generated with the bundled pair.

    python -m localspec.bench.experiments.rules

Every rule with every drafter at three temperatures, and beside them `match`: a token is sampled
from the target and compared with the draft model's most probable token, as llama.cpp's speculative
decoding does (here without its confidence threshold: every rule drafts to the same depth). For the
draft model also what `replay` predicts from other texts of the same prompts.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TypedDict

from localspec.bench.experiments.command_line import Table, argument_parser
from localspec.bench.experiments.greedy_drafter import greedy, greedy_sampler
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Result
from localspec.forecast.confidence import ConfidenceInterval, ratio_interval
from localspec.forecast.replay import ScoredText, expected_steps, score_text
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.models import registry
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Drafter
from localspec.speculation.rules import RULES

# The standard library's modules that the bundled pair was not trained on.
_HELD_OUT = (
    *("heapq", "textwrap", "csv", "fractions", "statistics"),
    *("shlex", "bisect", "colorsys", "calendar", "sched"),
)
MODEL, MATCH = "model", "match"
_MODEL_FREE = ("lookup", "ngram")
_TEMPERATURES = (0.0, 0.7, 1.0)
# Replay predicts from other texts than those measured: their seeds begin here.
OTHER_SEEDS = 1_000_000


class _Filters(TypedDict):
    """The settings of the sampler, without its temperature."""

    top_k: int
    top_p: float
    min_p: float


# Spelled out, so that generating and replaying cannot differ.
_FILTERS = _Filters(top_k=40, top_p=0.95, min_p=0.05)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was counted or is expected over some texts.

    tokens_per_step: block efficiency. acceptance: accepted over drafted tokens.
    """

    tokens_per_step: ConfidenceInterval
    acceptance: ConfidenceInterval


@dataclass(frozen=True, slots=True)
class Workload:
    """The texts of one row of the table: `texts` of each prompt, of at most `tokens` tokens each.

    Every text has a seed of its own, from `first_seed` on: with the same seed, `token` and `block`
    would draw the same numbers for every prompt, and prompts would not be independent.
    """

    prompts: Sequence[str]
    texts: int
    tokens: int
    temperature: float
    first_seed: int = 0

    def sampler(self, seed: int) -> Sampler:
        """The sampler of the text with this seed."""
        return Sampler(SamplingParams(temperature=self.temperature, **_FILTERS), Noise(seed))

    def seeded(self) -> Iterator[tuple[str, range]]:
        """Yield each prompt with its seeds."""
        for number, prompt in enumerate(self.prompts):
            first = self.first_seed + number * self.texts
            yield prompt, range(first, first + self.texts)

    def generate(
        self, engine: Engine, prompt: str, seed: int, *, rule: str = "coupled", depth: int = 1
    ) -> Result:
        """Generate one text."""
        return engine.generate(
            prompt,
            max_tokens=self.tokens,
            seed=seed,
            rule=rule,
            depth=depth,
            temperature=self.temperature,
            **_FILTERS,
        )


def held_out_prompts(per_module: int = 2) -> list[str]:
    """The first lines of functions and classes of the held-out modules.

    They are short: in a pass of 64 tokens or more, logits depend on the number of tokens, and
    replay would no longer compute the very logits that generating computed.
    """
    prompts: list[str] = []
    for name in _HELD_OUT:
        pieces = re.split(r"\n(?=def |class )", inspect.getsource(import_module(name)))[1:]
        # The tokenizer joins newline and indentation: no newline at the end.
        beginnings = ["\n".join(piece.splitlines()[:3]).rstrip() for piece in pieces]
        prompts += [text for text in beginnings if 60 < len(text) < 130][:per_module]
    return prompts


@contextmanager
def engines_of(target: Path, small: Path) -> Iterator[dict[str, Engine]]:
    """Load a pair with each drafter, and without (`none`): drafter -> engine.

    With one thread and flash attention, so that the logits of a pass do not depend on its width:
    replay computes the very logits that generating computed.
    """
    with ExitStack() as stack:

        def opened(draft: str | Drafter) -> Engine:
            return stack.enter_context(load(target, draft, threads=1, flash_attention=True))

        engines = {
            MODEL: opened(str(small)),
            **{name: opened(name) for name in (*_MODEL_FREE, "none")},
        }
        [drafter] = engines[MODEL].drafter_set.drafters
        # Both use one cache: `begin` sets it to the text at hand.
        engines[MATCH] = opened(greedy(drafter, MATCH))
        yield engines


def _measure(engine: Engine, rule: str, depth: int, work: Workload) -> Prediction:
    """Generate all texts, and count what was accepted."""
    tokens, steps, drafted, accepted = [], [], [], []
    for prompt, seeds in work.seeded():
        all_stats = [
            work.generate(engine, prompt, seed, rule=rule, depth=depth).stats for seed in seeds
        ]
        tokens.append(sum(stats.generated_tokens for stats in all_stats))
        steps.append(sum(stats.steps for stats in all_stats))
        drafted.append(sum(stats.drafted for stats in all_stats))
        accepted.append(sum(stats.accepted for stats in all_stats))
    return Prediction(ratio_interval(tokens, steps), ratio_interval(accepted, drafted))


def predict(prompts: Sequence[Sequence[ScoredText]], rule: str, depth: int) -> Prediction:
    """Predict acceptance and tokens per step of a rule at a depth.

    prompts: the texts sampled from each prompt. Texts of one prompt are alike, so the intervals are
    over prompts.
    """
    tokens = [sum(len(text) for text in texts) for texts in prompts]
    counts = [[expected_steps(text, rule, depth) for text in texts] for texts in prompts]
    steps = [sum(each.steps for each in texts) for texts in counts]
    drafted = [sum(each.drafted for each in texts) for texts in counts]
    accepted = [sum(each.accepted for each in texts) for texts in counts]
    return Prediction(ratio_interval(tokens, steps), ratio_interval(accepted, drafted))


def score(
    engines: Mapping[str, Engine], work: Workload, *, match: bool = False
) -> list[list[ScoredText]]:
    """Sample each text from the target alone, and score it with both models: texts by prompt.

    match: whether drafts are the most probable tokens: `coupled` is sample-and-match then.
    """
    plain, [drafter] = engines["none"], engines[MODEL].drafter_set.sequences.values()
    with ExitStack() as stack:
        target, small = (
            stack.enter_context(
                single_sequence(
                    model, ContextParams(n_ctx=plain.context, threads=1, flash_attention=True)
                )
            )
            for model in (plain.model, drafter.model)
        )

        def scored(prompt: str, seed: int) -> ScoredText:
            text = work.generate(plain, prompt, seed).token_ids
            ids, sampler = plain.model.tokenize(prompt), work.sampler(seed)
            drafting = greedy_sampler(sampler) if match else sampler
            return score_text(
                target, small, ids, text, sampler, limit=work.tokens, drafting=drafting
            )

        return [[scored(prompt, seed) for seed in seeds] for prompt, seeds in work.seeded()]


def _cells(seen: Prediction | None) -> list[object]:
    if not seen:
        return []
    steps = seen.tokens_per_step
    return [seen.acceptance.value, f"{steps.value:.3f} ({steps})"]


def _print_rows(table: Table, engines: Mapping[str, Engine], depth: int, work: Workload) -> None:
    """Print the rows of one temperature."""
    others = replace(work, first_seed=OTHER_SEEDS)
    texts, matched = (score(engines, others, match=each) for each in (False, True))

    def print_row(drafter: str, rule: str, seen: Prediction, told: Prediction | None) -> None:
        table.print_row(work.temperature, drafter, rule, *_cells(seen), *_cells(told))

    for drafter in (MODEL, *_MODEL_FREE):
        for rule in RULES:
            seen = _measure(engines[drafter], rule, depth, work)
            print_row(
                drafter, rule, seen, predict(texts, rule, depth) if drafter == MODEL else None
            )
        if drafter == MODEL:
            seen = _measure(engines[MATCH], "coupled", depth, work)
            print_row(MODEL, MATCH, seen, predict(matched, "coupled", depth))


def main() -> None:
    """Print acceptance and tokens per step: as measured, and as predicted for the draft model."""
    parser = argument_parser(__file__, __doc__)
    parser.add_argument("--tokens", type=int, default=128, help="per text")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=4, help="texts per prompt, a seed for each")
    parser.add_argument("--prompts", type=int, default=20, help="the most prompts")
    options = parser.parse_args()
    if min(options.tokens, options.depth, options.seeds, options.prompts) < 1:
        parser.error("--tokens, --depth, --seeds and --prompts must be 1 or more")
    prompts = held_out_prompts()[: options.prompts]
    print(
        f"{len(prompts)} held-out prompts, {options.seeds} texts of {options.tokens} tokens each, "
        f"depth {options.depth}; tokens per step with 95 % intervals over prompts"
    )
    table = Table(
        ("temp", "4.1f"),
        ("drafter", ">8"),
        ("rule", ">8"),
        *(("accepted", "8.1%"), ("tok/step", ">15")),
        *(("replayed", "8.1%"), ("tok/step", ">15")),
    )
    with engines_of(*registry.bundled()) as engines:
        for temperature in _TEMPERATURES:
            # Greedy texts of a prompt are all the same.
            texts = options.seeds if temperature else 1
            work = Workload(prompts, texts, options.tokens, temperature)
            _print_rows(table, engines, options.depth, work)
    print("lookup and ngram propose one certain token at a time: there, match is coupled")


if __name__ == "__main__":
    main()
