"""What a pass costs and computes by its width: `python -m localspec.bench.experiments.width_table`.

For passes of 1 to 16 rows: their time, and at how many positions of a text they give the very
logits that passes of one row give, and those of the widest; with flash attention and without it.
Each is timed behind others as wide; where widths alternate, a GPU needs a little more.
Beside that what `--reproducible` makes of it: its widths, and what they cost.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from localspec.engine.engine import load
from localspec.llama.batch_invariance import logits_by, probe, typical_seconds
from localspec.llama.context import Context
from localspec.models import registry

WIDEST = 16
_POSITIONS = 2 * WIDEST


@dataclass(frozen=True, slots=True)
class Width:
    """Passes of so many rows.

    seconds: of one. as_one, as_widest: positions whose logits are those of passes of one row, or of
    the widest, to the bit. difference: the largest of a logit from that of passes of one row.
    """

    rows: int
    seconds: float
    as_one: int
    as_widest: int
    difference: float


def widths(context: Context, behind: int) -> Iterator[Width]:
    """Each width up to the widest. behind: tokens before the positions that are tried."""
    narrowest, widest = (logits_by(context, rows, behind, _POSITIONS) for rows in (1, WIDEST))
    for rows in range(1, WIDEST + 1):
        found = logits_by(context, rows, behind, _POSITIONS)
        context.truncate(behind)
        yield Width(
            rows,
            typical_seconds(context, rows),
            _same(found, narrowest),
            _same(found, widest),
            float(np.abs(found - narrowest).max()),
        )


def _same(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.all(one == other, axis=1).sum())


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=registry.bundled().target, type=Path)
    parser.add_argument("--behind", type=int, default=300, help="tokens of context")
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    for steady in (False, True):
        with load(
            options.model,
            "none",
            context=options.behind + 6 * WIDEST,
            threads=options.threads,
            reproducible=steady,
        ) as engine:
            _print(engine.slot.target, options.behind, steady=steady)


def _print(context: Context, behind: int, *, steady: bool) -> None:
    print("--reproducible" if steady else "as localspec runs it")
    print(f"{'rows':>5} {'ms':>9} {'x 1 row':>8} {'as 1 row':>10} {f'as {WIDEST}':>7} {'apart':>9}")
    first = None
    for each in widths(context, behind):
        first = first or each.seconds
        print(
            f"{each.rows:5} {1000 * each.seconds:9.3f} {each.seconds / first:8.2f} "
            f"{f'{each.as_one}/{_POSITIONS}':>10} {f'{each.as_widest}/{_POSITIONS}':>7} "
            f"{each.difference:9.2g}"
        )
    if steady:
        its = probe(context, WIDEST)
        print(f"passes of {its.least_rows} rows and more: {its.cost:.2f} x a pass of one row")
    print()


if __name__ == "__main__":
    main()
