"""Learnt rates: what the drafts of pairs came to in earlier runs, from which the next one starts.

Kept for each target, drafter (its file, and which way that drafts, as in `calibration.Measured`),
rule and temperature: how many drafted tokens were right, in all, by
their position in the draft, and by the drafter's confidence in them.
"""

from pathlib import Path
from typing import Any

from localspec.control.acceptance import BINS, DraftCounts, Tally
from localspec.control.base_costs import WIDEST
from localspec.speculation.rules import RULES
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store

# With fewer drafted tokens, a rate says less than what is known otherwise. A drafter that is of no
# use drafts about as many in a run, and every run that does not know it reads the prompt for it.
_FEWEST = 8
# Earlier runs count as this many drafted tokens at most: texts change.
_MOST = 512


def find(
    target: Path, drafter: Path, rule: str, temperature: float, *, way: str = ""
) -> DraftCounts | None:
    """Return what a drafter's tokens came to; None where too little is known."""
    known = _known(_file(target, drafter, rule, temperature, way))
    return known if known.total.tried >= _FEWEST else None


def add(
    target: Path, drafter: Path, rule: str, temperature: float, run: DraftCounts, *, way: str = ""
) -> None:
    """Add what a run has learnt; nothing is stored where a file is gone or cannot be written."""
    if not run.total.tried:
        return
    file = _file(target, drafter, rule, temperature, way)
    counts = _known(file)
    if counts.total.tried > _MOST:
        counts.fade(_MOST / counts.total.tried)
    counts.extend(run)
    if file:
        try_to_store(file, _record(counts))


def forget(target: Path, drafter: Path, temperature: float, *, way: str = "") -> None:
    """Delete the rates of a drafter at a temperature, by all rules."""
    for rule in RULES:
        if file := _file(target, drafter, rule, temperature, way):
            file.unlink(missing_ok=True)


def _known(file: Path | None) -> DraftCounts:
    return (stored(file, _counts) if file else None) or DraftCounts()


def _record(counts: DraftCounts) -> dict[str, Any]:
    positions, margins = (
        [[each.right, each.tried] for each in part] for part in (counts.positions, counts.margins)
    )
    total = counts.total
    return {"right": total.right, "tried": total.tried, "positions": positions, "margins": margins}


def _counts(record: Any) -> DraftCounts:
    found = DraftCounts(
        _tally(record["right"], record["tried"]),
        [_tally(*each) for each in record["positions"]],
        [_tally(*each) for each in record["margins"]],
    )
    if len(found.positions) > WIDEST or len(found.margins) != BINS:
        raise ValueError("no counts by position and confidence")
    return found


def _tally(right: float, tried: float) -> Tally:
    found = Tally(float(right), float(tried))
    if not 0 <= found.right <= found.tried < float("inf"):
        raise ValueError("no counts")
    return found


def _file(target: Path, drafter: Path, rule: str, temperature: float, way: str) -> Path | None:
    """The file of a pair; None where a model is gone."""
    try:
        files = [stat_signature(path) for path in (target, drafter)]
    except OSError:
        return None
    return cache_file("acceptance_rates", [files, way, rule, round(float(temperature), 1)])
