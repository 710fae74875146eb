"""Plans: what `localspec plan` found out about a pair here, kept for `auto` to start from."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.loading.fingerprints import fingerprint, versions
from localspec.utils.paths import cache_file, write_atomically

# Of the file; `_invalid` knows it too.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest way of decoding; `plain` has neither rule nor depth, and `auto` no depth.

    speed_up: what it promises over plain decoding.
    """

    drafter: str
    rule: str | None
    depth: int | None
    speed_up: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What was found, and of what.

    fingerprints: of the target's file, and of the drafter's. versions: of what computed it.
    machine: where. temperature: of the sampler. rates: the share of each drafter's tokens that are
    right, by name.
    """

    fingerprints: list[str]
    versions: dict[str, str]
    machine: dict[str, Any]
    temperature: float
    rates: dict[str, float]
    best: Best


@dataclass(frozen=True, slots=True)
class Found:
    """What the store has: rates by drafter, or why a plan that is there does not count."""

    rates: Mapping[str, float]
    ignored: str | None = None


NOTHING = Found({})


def of(
    target: Path, drafter: Path | None, temperature: float, rates: dict[str, float], best: Best
) -> Plan:
    """A plan for these files, here and now."""
    prints, made_by = _fingerprints(target, drafter), versions(constrained=False)
    return Plan(prints, made_by, _machine(), temperature, rates, best)


def store(target: Path, drafter: Path | None, plan: Plan) -> Path:
    """Keep it, in place of an earlier one for the same files and temperature. Raises OSError."""
    file = _file(target, drafter, plan.temperature)
    write_atomically(file, json.dumps({"format": _FORMAT, **asdict(plan)}, indent=1))
    return file


def find(target: Path, drafter: Path | None, temperature: float) -> Found:
    """What is known of this pair at this temperature; nothing if nobody has asked."""
    file = _file(target, drafter, temperature)
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        return NOTHING
    except ValueError:
        record = None
    reason = _invalid(record, target, drafter)
    if reason:
        return Found({}, f"the stored plan is ignored: {reason}; localspec plan makes a new one")
    return Found(record["rates"])


def _invalid(record: Any, target: Path, drafter: Path | None) -> str | None:
    """Why this is no plan to go by, or None."""
    match record:
        case {"format": 1, "fingerprints": [*prints], "versions": {**theirs}, "rates": {**rates}}:
            if not all(isinstance(each, float | int) and 0 <= each <= 1 for each in rates.values()):
                return "it cannot be read"
        case _:
            return "it cannot be read"
    if prints != _fingerprints(target, drafter):
        return "a model file has changed"
    if theirs != versions(constrained=False):
        return "it was made with another version of localspec or llama-cpp-python"
    return None


def _fingerprints(target: Path, drafter: Path | None) -> list[str]:
    return [fingerprint(path) for path in (target, drafter) if path]


def _machine() -> dict[str, Any]:
    return {"node": platform.node(), "type": platform.machine(), "cpus": os.cpu_count()}


def _file(target: Path, drafter: Path | None, temperature: float) -> Path:
    """By what may be asked again; what may change behind it is checked when it is read."""
    paths = [str(path.resolve()) for path in (target, drafter) if path]
    return cache_file("plans", [paths, _machine(), round(temperature, 1)])
