"""Time and logits of passes by their width.

    python -m localspec.bench.experiments.width_table [--model FILE]

For passes of 1 to 16 rows: their time, and at how many positions of a text their logits equal those
of passes of one row, and those of the widest passes, bit by bit. Each width is timed in passes that
follow others as wide; where widths alternate, a GPU takes a little longer. A second table shows the
same with `--reproducible`, and what its widths cost.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from localspec.bench.experiments.command_line import Table, add_model_options, argument_parser
from localspec.engine.engine import load
from localspec.llama.batch_invariance import logits_by, probe, typical_seconds
from localspec.llama.context import Context

WIDEST = 16
_POSITIONS = 2 * WIDEST


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


def measure_widths(context: Context, behind: int) -> Iterator[Width]:
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


def _equal_positions(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.all(one == other, axis=1).sum())


def main() -> None:
    """Print two tables."""
    parser = argument_parser(__file__, __doc__)
    add_model_options(parser)
    parser.add_argument("--behind", type=int, default=300, help="tokens of context")
    options = parser.parse_args()
    for reproducible in (False, True):
        with load(
            options.model,
            "none",
            context=options.behind + 6 * WIDEST,
            threads=options.threads,
            reproducible=reproducible,
        ) as engine:
            _print(engine.slot.target, options.behind, reproducible=reproducible)


def _print(context: Context, behind: int, *, reproducible: bool) -> None:
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
        found = probe(context, WIDEST)
        print(f"passes of {found.least_rows} rows and more: {found.cost:.2f} x a pass of one row")
    print()


if __name__ == "__main__":
    main()
