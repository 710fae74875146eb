"""Acceptance priors: what `localspec plan` found of a pair here, kept for `auto` to start from."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.control.acceptance import AcceptancePrior
from localspec.loading.fingerprints import fingerprint, versions
from localspec.utils.paths import cache_file, write_atomically

# Of the file; `_invalid` knows it too.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class BestSetting:
    """The fastest way of decoding; `plain` has neither rule nor depth, and `auto` no depth.

    speed_up: the predicted speed over that of plain decoding.
    """

    drafter: str
    rule: str | None
    depth: int | None
    speed_up: float


@dataclass(frozen=True, slots=True)
class StoredForecast:
    """What was found for a target and its draft models, and under which conditions.

    fingerprints: of the target's file and of the draft models'. versions: of what computed it.
    machine: where. temperature: of the sampler. rates: the share of each drafter's tokens that are
    right, by name.
    """

    fingerprints: list[str]
    versions: dict[str, str]
    machine: dict[str, Any]
    temperature: float
    rates: dict[str, float]
    best: BestSetting


def made_here(
    target: Path,
    drafters: Sequence[Path],
    temperature: float,
    rates: dict[str, float],
    best: BestSetting,
) -> StoredForecast:
    """A forecast for these files on this machine, with the versions that are installed."""
    prints, made_by = _fingerprints(target, drafters), versions(constrained=False)
    return StoredForecast(prints, made_by, _machine(), temperature, rates, best)


def store(target: Path, drafters: Sequence[Path], forecast: StoredForecast) -> Path:
    """Keep a forecast in place of one for the same files and temperature. Raises OSError."""
    file = _file(target, drafters, forecast.temperature)
    write_atomically(file, json.dumps({"format": _FORMAT, **asdict(forecast)}, indent=1))
    return file


def find(target: Path, drafters: Sequence[Path], temperature: float) -> AcceptancePrior:
    """What is stored for a target and its draft models at this temperature; maybe nothing."""
    file = _file(target, drafters, temperature)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return AcceptancePrior()
    except ValueError:
        record = None
    reason = _invalid(record, target, drafters)
    if reason:
        ignored = f"the stored plan is ignored: {reason}; localspec plan makes a new one"
        return AcceptancePrior(ignored=ignored)
    return AcceptancePrior(record["rates"])


def _invalid(record: Any, target: Path, drafters: Sequence[Path]) -> str | None:
    """Why a record does not count, or None."""
    match record:
        case {"format": 1, "fingerprints": [*prints], "versions": {**theirs}, "rates": {**rates}}:
            if not all(isinstance(each, float | int) and 0 <= each <= 1 for each in rates.values()):
                return "it cannot be read"
        case _:
            return "it cannot be read"
    if prints != _fingerprints(target, drafters):
        return "a model file has changed"
    if theirs != versions(constrained=False):
        return "it was made with another version of localspec or llama-cpp-python"
    return None


def _fingerprints(target: Path, drafters: Sequence[Path]) -> list[str]:
    return [fingerprint(path) for path in (target, *drafters)]


def _machine() -> dict[str, Any]:
    return {"node": platform.node(), "type": platform.machine(), "cpus": os.cpu_count()}


def _file(target: Path, drafters: Sequence[Path], temperature: float) -> Path:
    """Named by what is asked for; what may have changed since is checked on reading."""
    paths = [str(path.resolve()) for path in (target, *drafters)]
    return cache_file("plans", [paths, _machine(), round(temperature, 1)])
