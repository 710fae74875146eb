"""Time and logits of passes by their width.

    python -m localspec.bench.experiments.width_table [--model FILE]

For passes of 1 to 16 rows: their time, and at how many positions of a text their logits equal those
of passes of one row, and those of the widest passes, bit by bit. Each width is timed in passes that
follow others as wide; where widths alternate, a GPU takes a little longer. A second table shows
the same with `--reproducible`, and what its widths cost.

With `--texts N`, instead: greedy texts that go on in a warm cache, which holds an earlier prompt
and its answer, against the same texts from an empty cache. How many differ, and what a prompt
takes, by the tokens of a prompt pass (`--pieces`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.bench.prompt_sets import bundled_tasks
from localspec.engine.engine import Engine, load
from localspec.llama.batch_invariance import logits_by, probe, probe_uniform
from localspec.llama.devices import computes_on_gpu
from localspec.llama.pass_timing import typical_seconds
from localspec.llama.sequence import KVSequence

WIDEST = 16
_POSITIONS = 2 * WIDEST
# Tokens of the first prompt (least, most), of its answer, of the next question, and of its answer.
_PROMPT, _ANSWER, _QUESTION, _NEXT = (64, 400), 48, 24, 64
_PROMPT_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Width:
    """Passes of so many rows.

    seconds: of one pass. as_one, as_widest: positions whose logits equal those of passes of one
    row, or of the widest, bit by bit. difference: the largest difference of a logit from that of
    passes of one row.
    """

    rows: int
    seconds: float
    as_one: int
    as_widest: int
    difference: float


def measure_widths(context: KVSequence, behind: int) -> Iterator[Width]:
    """Yield every width up to the widest. behind: tokens before the positions compared."""
    narrowest, widest = (logits_by(context, rows, behind, _POSITIONS) for rows in (1, WIDEST))
    for rows in range(1, WIDEST + 1):
        found = logits_by(context, rows, behind, _POSITIONS)
        context.truncate(behind)
        yield Width(
            rows,
            typical_seconds(context, rows),
            _equal_positions(found, narrowest),
            _equal_positions(found, widest),
            float(np.abs(found - narrowest).max()),
        )


def measure_histories(engine: Engine, count: int) -> int:
    """How many of `count` greedy texts a warm cache changes."""
    random = np.random.default_rng(0)
    words = _tokens(engine, count * _PROMPT[1])
    differing = 0
    for _ in range(count):
        start = int(random.integers(0, len(words) - _PROMPT[1]))
        prompt = words[start : start + int(random.integers(*_PROMPT))]
        question = words[start // 2 :][:_QUESTION]
        engine.slots.own.target.truncate(0)
        text = [*prompt, *_greedy(engine, prompt, _ANSWER), *question]
        warm = _greedy(engine, text, _NEXT)
        engine.slots.own.target.truncate(0)
        differing += warm != _greedy(engine, text, _NEXT)
    return differing


def _greedy(engine: Engine, tokens: Sequence[int], count: int) -> Sequence[int]:
    result = engine.generate(list(tokens), max_tokens=count, temperature=0.0, ignore_eos=True)
    return result.token_ids


def _tokens(engine: Engine, count: int) -> list[int]:
    """The tokens of the bundled prompts, repeated until there are `count`."""
    texts = [str(task.content) for task in bundled_tasks("code")]
    words = [token for text in texts for token in engine.model.tokenize(text)]
    return words * (1 + count // len(words))


def _print_histories(engine: Engine, pieces: Sequence[int], count: int) -> None:
    table = Table(
        ("tokens a pass", "13"), ("texts that differ", ">17"), ("ms of a prompt", "15.1f")
    )
    prompt = _tokens(engine, _PROMPT[1])[: _PROMPT[1]]
    seconds = _prompt_seconds(engine.slots.own.target, prompt, pieces)
    for piece in pieces:
        engine.slots.own.target.chunk = piece
        differing = measure_histories(engine, count)
        table.print_row(piece, f"{differing}/{count}", 1000 * median(seconds[piece]))


def _prompt_seconds(
    context: KVSequence, prompt: Sequence[int], pieces: Sequence[int]
) -> dict[int, list[float]]:
    """Times of the whole prompt; the pieces alternate."""
    found: dict[int, list[float]] = {piece: [] for piece in pieces}
    for _ in range(_PROMPT_ROUNDS):
        for piece in pieces:
            context.chunk = piece
            context.truncate(0)
            began = perf_counter()
            context.extend(prompt)
            found[piece].append(perf_counter() - began)
    return found


def _equal_positions(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.all(one == other, axis=1).sum())


def main() -> None:
    """Print two tables."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--behind", type=int, default=300, help="tokens of context")
    parser.add_argument("--texts", type=int, help="compare so many texts of warm caches")
    parser.add_argument("--pieces", type=int, nargs="+", default=[512, 60], help="tokens a pass")
    parser.add_argument("--draft", default="none", help="what drafts those texts")
    options = parser.parse_args()
    if options.texts:
        with load(options.model, options.draft, context=1024, threads=options.threads) as engine:
            engine.slots.threads_are_fixed = True
            _print_histories(engine, options.pieces, options.texts)
        return
    for reproducible in (False, True):
        with load(
            options.model,
            "none",
            context=options.behind + 6 * WIDEST,
            threads=options.threads,
            reproducible=reproducible,
        ) as engine:
            _print(engine.slots.own.target, options.behind, reproducible=reproducible)


def _print(context: KVSequence, behind: int, *, reproducible: bool) -> None:
    print("--reproducible" if reproducible else "as localspec runs it")
    table = Table(
        ("rows", "5"),
        ("ms", "9.3f"),
        ("x 1 row", "8.2f"),
        ("as 1 row", ">10"),
        (f"as {WIDEST}", ">7"),
        ("apart", "9.2g"),
    )
    seconds_of_one = None
    for width in measure_widths(context, behind):
        seconds_of_one = seconds_of_one or width.seconds
        table.print_row(
            width.rows,
            1000 * width.seconds,
            width.seconds / seconds_of_one,
            f"{width.as_one}/{_POSITIONS}",
            f"{width.as_widest}/{_POSITIONS}",
            width.difference,
        )
    if reproducible:
        uniform = computes_on_gpu(context.model.placement)
        found = probe_uniform(context) if uniform else probe(context, WIDEST)
        which = "of just" if uniform else "from"
        print(f"passes {which} {found.least_rows} rows: {found.cost:.2f} x a pass of one row")
    print()


if __name__ == "__main__":
    main()
