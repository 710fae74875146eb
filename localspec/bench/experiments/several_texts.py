"""Several texts at once against the same texts one after the other.

    python -m localspec.bench.experiments.several_texts [--model FILE] [--draft DRAFT ...]

Each text has a thread and a slot of one engine, so that the passes of the texts share decodes. The
bound is what the measured cost of wider passes allows: N plain texts take one decode of N rows per
token instead of N decodes of one row. A text that differs from the one written alone is audited.
"""

import threading
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.drafters.spec import DraftOption
from localspec.engine.audit import Recorded, audit
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Generation, Result
from localspec.engine.slot import Slot
from localspec.generation_config import GenerationConfig
from localspec.llama.pass_timing import typical_seconds

_NAMES = ("add", "heapify", "parse_line", "window", "sort", "walk", "fill", "cut")
_Run = tuple[Generation, Result]


class _Texts:
    """The texts of one engine: each has a prompt, a seed and a slot."""

    def __init__(self, engine: Engine, count: int, tokens: int, temperature: float) -> None:
        self._slots = [engine.slots.open() for _ in range(count)]
        self._prompts = [
            engine.model.tokenize(f"def {name}(first, second):\n") for name in _NAMES[:count]
        ]
        self._settings = [
            GenerationConfig.of(
                max_tokens=tokens,
                temperature=temperature,
                # A near-tie at a filter's limit cannot be told from a mistake.
                top_k=0,
                top_p=1,
                min_p=0,
                ignore_eos=True,
                seed=seed,
            )
            for seed in range(count)
        ]

    def one_after_the_other(self) -> tuple[list[_Run], float]:
        """Write the texts by turns; return them, and the seconds of all."""
        began = perf_counter()
        runs = [self._write(number) for number in range(len(self._slots))]
        return runs, perf_counter() - began

    def together(self) -> tuple[list[_Run], float]:
        """Write all texts at the same time; return them, and the seconds of all."""
        runs: dict[int, _Run] = {}

        def write(number: int) -> None:
            runs[number] = self._write(number)

        threads = [
            threading.Thread(target=write, args=(number,)) for number in range(len(self._slots))
        ]
        began = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [runs[number] for number in sorted(runs)], perf_counter() - began

    def _write(self, number: int) -> _Run:
        slot: Slot = self._slots[number]
        running = slot.start(self._prompts[number], self._settings[number])
        return running, running.result()


def _bound(engine: Engine, texts: int) -> float:
    """How many times faster `texts` plain texts can be, by the cost of a pass of as many rows."""
    with engine.slots.own.new_context(GenerationConfig()) as sequence:
        sequence.extend([0] * 32)
        return texts * typical_seconds(sequence, 1) / typical_seconds(sequence, texts)


def _differences(
    engine: Engine, alone: Sequence[_Run], together: Sequence[_Run]
) -> tuple[int, int]:
    """How many texts differ from those written alone, and how many of these are no near-ties."""
    differing, bugs = 0, 0
    for (_, one), (running, other) in zip(alone, together, strict=True):
        if one.token_ids != other.token_ids:
            differing += 1
            recorded = Recorded(
                engine.recipe(running), other.token_ids, other.origins, other.seed, other.rule
            )
            bugs += audit(engine, recorded).has_bug
    return differing, bugs


def _measure(texts: _Texts, engine: Engine, rounds: int, table: Table) -> None:
    ratios, differing, bugs = list[float](), 0, 0
    ways: list[Callable[[], tuple[list[_Run], float]]]
    ways = [texts.one_after_the_other, texts.together]
    for number in range(rounds + 1):
        found = {way: way() for way in (ways if number % 2 else ways[::-1])}
        (alone, before), (together, after) = (found[way] for way in ways)
        if number == 0:  # it warms up
            continue
        more, worse = _differences(engine, alone, together)
        differing, bugs = differing + more, bugs + worse
        ratios.append(before / after)
        tokens = sum(len(result.token_ids) for _, result in together)
        decodes = sum(sum(1 / (1 + rows) for rows in _others(run)) for run, _ in together)
        steps = sum(run.stats.steps for run, _ in together)
        table.print_row(tokens / before, tokens / after, ratios[-1], steps / decodes)
    print(
        f"median ratio {median(ratios):.2f}; {differing} texts differ, {bugs} by more than floats"
    )


def _others(running: Generation) -> list[int]:
    """How many other texts, of one row each, would have filled each decode of this text."""
    stats = running.stats
    return [
        round(max(0, rows - width) / max(1, width))
        for rows, width in zip(stats.decode_rows, stats.widths, strict=True)
    ]


def main() -> None:
    """Print a table for plain decoding, and one for the drafters."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--draft", nargs="+", default=["suffix"])
    parser.add_argument("--texts", type=int, default=4, choices=range(2, len(_NAMES) + 1))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ways: list[tuple[str, list[DraftOption]]] = [("plain", ["none"]), ("drafts", options.draft)]
    for name, draft in ways:
        context = 64 + options.tokens
        with load(options.model, draft, context=context, threads=options.threads) as engine:
            texts = _Texts(engine, options.texts, options.tokens, options.temperature)
            bound = _bound(engine, options.texts)
            print(f"{name}: {options.texts} texts; {bound:.2f} is the bound of plain decoding")
            columns = ("by turns", "9.1f"), ("together", "9.1f"), ("ratio", "6.2f")
            _measure(texts, engine, options.rounds, Table(*columns, ("share", "6.2f")))


if __name__ == "__main__":
    main()
