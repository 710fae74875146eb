"""Acceptance priors: stored results of `localspec plan`, from which the adaptive policy starts."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.control.acceptance import AcceptancePrior
from localspec.loading.fingerprints import fingerprint, versions
from localspec.utils.paths import cache_file, real_path
from localspec.utils.stored_json import DamagedFileError, read_stored, store_json

# The version of the file format; `_invalid` checks for it.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class BestSetting:
    """The fastest setting. `plain` has no rule and no depth, `auto` has no depth.

    speed_up: the predicted speed, divided by that of plain decoding.
    """

    drafter: str
    rule: str | None
    depth: int | None
    speed_up: float


@dataclass(frozen=True, slots=True)
class StoredForecast:
    """The forecast for a target and its draft models, and its conditions.

    fingerprints: of the target's file and the draft models' files. versions: of localspec and of
    llama-cpp-python. machine: where it was made. temperature: of the sampler. rates: the acceptance
    rate by the drafter's name.
    """

    fingerprints: list[str]
    versions: dict[str, str]
    machine: dict[str, Any]
    temperature: float
    rates: dict[str, float]
    best: BestSetting


def stored_forecast(
    target: Path,
    drafters: Sequence[Path],
    temperature: float,
    rates: dict[str, float],
    best: BestSetting,
) -> StoredForecast:
    """Make a forecast record for these files, this machine and the installed versions."""
    prints, made_by = _fingerprints(target, drafters), versions(constrained=False)
    return StoredForecast(prints, made_by, _machine(), temperature, rates, best)


def store(target: Path, drafters: Sequence[Path], forecast: StoredForecast) -> Path:
    """Store a forecast; it replaces one for the same files and temperature. Raises OSError."""
    file = _file(target, drafters, forecast.temperature)
    store_json(file, {"format": _FORMAT, **asdict(forecast)})
    return file


def find(target: Path, drafters: Sequence[Path], temperature: float) -> AcceptancePrior:
    """Return the stored prior for these files and this temperature, or an empty one."""
    file = _file(target, drafters, temperature)
    try:
        record = read_stored(file)
    except FileNotFoundError:
        return AcceptancePrior()
    except (OSError, DamagedFileError):
        record = None
    reason = _invalid(record, target, drafters)
    if reason:
        ignored = f"the stored plan is ignored: {reason}; localspec plan makes a new one"
        return AcceptancePrior(ignored=ignored)
    return AcceptancePrior(record["rates"])


def _invalid(record: Any, target: Path, drafters: Sequence[Path]) -> str | None:
    """Why a record cannot be used, or None."""
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
    """The file for this request. Conditions that may change are in the file, checked on reading."""
    paths = [str(real_path(path)) for path in (target, *drafters)]
    return cache_file("plans", [paths, _machine(), round(float(temperature), 1)])
