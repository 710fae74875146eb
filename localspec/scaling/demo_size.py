"""Demo size: the smallest demo pair on which drafts pay on this machine, found by trying."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.engine.engine import load
from localspec.errors import InvalidValueError
from localspec.llama.pass_timing import typical_seconds
from localspec.loading.fingerprints import fingerprint, machine_signature
from localspec.models import registry
from localspec.models.speed_up import expected_tokens
from localspec.scaling.demo_pair import DemoPair
from localspec.utils.paths import cache_file
from localspec.utils.stored_json import stored, try_to_store

SIZES = ("0.1B", "0.2B", "0.3B", "0.5B")
# A pair is large enough if an answer that mostly repeats its question gains so much.
PAYS = 1.5
# The share of drafted tokens that are right in such an answer.
_ACCEPTANCE = 0.8
_WIDTHS = (1, 4, 8, 16)
_CONTEXT = 256


@dataclass(frozen=True, slots=True)
class DemoSize:
    """parameters: of the target, such as "0.1B". speed_up: predicted for an answer that mostly
    repeats its question.
    """

    parameters: str
    speed_up: float

    @property
    def pays(self) -> bool:
        """Whether drafts pay at this size."""
        return self.speed_up >= PAYS


def remembered(type_name: str, threads: int | None) -> DemoSize | None:
    """Return the size that was found on this machine, or None."""
    return stored(_file(type_name, threads), _stored_size)


def _stored_size(record: Any) -> DemoSize:
    found = DemoSize(record["parameters"], float(record["speed_up"]))
    if found.parameters not in SIZES or not 0 < found.speed_up < math.inf:
        raise ValueError("not a size")
    return found


def find_size(
    type_name: str, threads: int | None, write: Callable[[DemoPair, DemoSize | None], None]
) -> DemoSize:
    """Try sizes upwards until drafts pay, and remember the size; without one, the best.

    write: writes a pair; it also gets the size before, at which drafts did not pay. A size that
    does not pay is deleted before the next is written.

    Raises InvalidValueError if not even the smallest fits on the disk and in memory.
    """
    tried: list[DemoSize] = []
    for parameters in SIZES:
        try:
            pair = DemoPair(parameters, type_name)
        except InvalidValueError:
            if not tried:
                raise
            break
        is_new = bool(pair.missing)
        write(pair, tried[-1] if tried else None)
        tried.append(DemoSize(parameters, _speed_up(pair.target, threads)))
        if tried[-1].pays:
            break
        if is_new:
            pair.delete()
    best = max(tried, key=lambda size: size.speed_up)
    try_to_store(_file(type_name, threads), asdict(best))
    return best


def predicted_speed_up(seconds: dict[int, float]) -> float:
    """The speed-up of the best draft length. seconds: of a pass, by its rows; 1 is among them."""
    return max(
        expected_tokens(_ACCEPTANCE, rows - 1) * seconds[1] / took for rows, took in seconds.items()
    )


def _speed_up(target: Path, threads: int | None) -> float:
    with load(target, "none", threads=threads, context=_CONTEXT) as engine:
        context = engine.slots.own.target
        return predicted_speed_up({rows: typical_seconds(context, rows) for rows in _WIDTHS})


def _file(type_name: str, threads: int | None) -> Path:
    """The file of a size; its name depends on everything that changes the time of a pass."""
    target = fingerprint(registry.bundled().target)
    return cache_file("demo-size", [target, machine_signature(), type_name, threads])
