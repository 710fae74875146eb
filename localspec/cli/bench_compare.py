"""`localspec bench --compare`: reads earlier benchmarks, and says what has changed since."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from localspec.bench.changes import NO_RECORD, Change, Changes, changes, require_alike
from localspec.bench.report_text import speed_text, with_interval
from localspec.bench.tool import TOOL
from localspec.cli.bench_table import printed_table
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_at_most

compare_option = click.option(
    "--compare",
    metavar="OLD[,NEW]",
    help="Say what has changed since OLD, a file of bench --json, row by row. With NEW, a second "
    "one, nothing is measured.",
)

_COLUMNS = ("prompts", "drafter", "tok/s before", "now", "now / before", "x plain", "")
_LEGEND = (
    "now / before: of the speed of each prompt, their geometric mean, with its 95 % interval · "
    "x plain: of the speed as a ratio to plain decoding, which a busier machine does not change; "
    "it tells what is faster or slower"
)


@dataclass(frozen=True, slots=True)
class Earlier:
    """A benchmark to compare with. name: of its file. now: a second one, if that was named."""

    name: str
    record: Mapping[str, Any]
    now: Mapping[str, Any] | None = None

    @property
    def seed(self) -> int:
        """The seed of its texts."""
        seed: int = self.record["conditions"]["seed"]
        return seed

    def require_alike(self, now: Mapping[str, Any]) -> None:
        """Raise InvalidValueError unless models and conditions of `now` are the same."""
        require_alike(self.record, now, self.name)

    def changes(self, now: Mapping[str, Any]) -> Changes:
        """What has changed. Raises InvalidValueError, as `require_alike` does."""
        self.require_alike(now)
        return changes(self.record, now)


def earlier_of(compare: str | None, html: str | None) -> Earlier | None:
    """Read what --compare names. html: of --html. Raises InvalidValueError."""
    if compare is None:
        return None
    names = [compare] if os.path.exists(compare) else compare.split(",")
    if not 1 <= len(names) <= 2 or not all(names):
        raise InvalidValueError(f"--compare {compare}: name one file, or two with a comma between")
    if html and len(names) == 2:
        raise InvalidValueError(
            f"--html {html}: the page shows what was measured, and --compare with two files "
            "measures nothing; leave out --html, or the second file"
        )
    old, *new = [(name, _read(name)) for name in names]
    return Earlier(*old, new[0][1] if new else None)


def changes_text(found: Changes) -> str:
    """Return the table of changes, its legend, and which rows are not in both, for stdout."""
    groups = [list(map(_cells, rows)) for _, rows in groupby(found.rows, lambda row: row.group)]
    lines = [_LEGEND, *found.beside]
    for which, names in (("before", found.only_before), ("now", found.only_now)):
        if names:
            lines.append(f"only {which}: {', '.join(names)}")
    return printed_table(_COLUMNS, groups, lines)


def _cells(row: Change) -> tuple[str, ...]:
    return (
        row.group,
        row.contender,
        speed_text(row.before),
        speed_text(row.now),
        with_interval(row.speed),
        with_interval(row.gain) if row.gain else "-",
        row.verdict,
    )


def _read(name: str) -> Mapping[str, Any]:
    try:
        record = json.loads(read_at_most(Path(name), MOST_TEXT_BYTES))
    except OSError as error:
        raise InvalidValueError(
            f"--compare {name}: {error.strerror}; name a file of localspec bench --json"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(
            f"--compare {name}: it holds no JSON; write one with: localspec bench --json"
        ) from error
    try:
        earlier = Earlier(name, record)
        rows = earlier.changes(record).rows
        GenerationConfig.of(seed=earlier.seed)
    except NO_RECORD as error:
        raise InvalidValueError(
            f"--compare {name}: it is no benchmark; write one with: localspec bench --json"
        ) from error
    if not rows:
        raise InvalidValueError(
            f"--compare {name}: there is no row in it to compare, as beside {TOOL} or before the "
            "first text; name another benchmark"
        )
    return earlier.record
