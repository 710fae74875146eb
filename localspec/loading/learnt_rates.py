"""Learnt rates: the acceptance rates of pairs in earlier runs, from which the next one starts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from localspec.control.acceptance import Tally
from localspec.speculation.rules import RULES
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store

# With fewer drafted tokens, a rate says less than what is known otherwise.
_FEWEST = 32
# Earlier runs count as this many drafted tokens at most: texts change.
_MOST = 512


def find(target: Path, drafter: Path, rule: str, temperature: float) -> float | None:
    """Return the share of a drafter's tokens that was accepted; None where too little is known."""
    known = _known(target, drafter, rule, temperature)
    return known.right / known.tried if known.tried >= _FEWEST else None


def add(target: Path, drafter: Path, rule: str, temperature: float, run: Tally) -> None:
    """Add what a run has learnt; nothing is stored where a file is gone or cannot be written."""
    if not run.tried:
        return
    known = _known(target, drafter, rule, temperature)
    share = min(1.0, _MOST / known.tried) if known.tried else 1.0
    total = {"right": share * known.right + run.right, "tried": share * known.tried + run.tried}
    if file := _file(target, drafter, rule, temperature):
        try_to_store(file, total)


def forget(target: Path, drafters: Iterable[Path], temperature: float) -> None:
    """Delete the rates of these drafters at a temperature, by all rules."""
    for drafter in drafters:
        for rule in RULES:
            if file := _file(target, drafter, rule, temperature):
                file.unlink(missing_ok=True)


def _known(target: Path, drafter: Path, rule: str, temperature: float) -> Tally:
    file = _file(target, drafter, rule, temperature)
    return (stored(file, _tally) if file else None) or Tally()


def _tally(record: Any) -> Tally:
    found = Tally(float(record["right"]), float(record["tried"]))
    if not 0 <= found.right <= found.tried < float("inf"):
        raise ValueError("no counts")
    return found


def _file(target: Path, drafter: Path, rule: str, temperature: float) -> Path | None:
    """The file of a pair; None where a model is gone."""
    try:
        files = [stat_signature(path) for path in (target, drafter)]
    except OSError:
        return None
    return cache_file("acceptance_rates", [files, rule, round(temperature, 1)])
