"""Invariant widths: how wide the passes of a reproducible text must be, probed once, and stored."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.control.policies import deepest_draft
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.batch_invariance import UNIFORM_ROWS, InvariantWidth, probe, probe_uniform
from localspec.llama.devices import computes_on_gpu
from localspec.llama.rollback import Rollback
from localspec.llama.sequence import KVSequence
from localspec.loading.config import RuntimeConfig
from localspec.loading.fingerprints import machine_signature
from localspec.utils.option_names import options
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store

# The number of the trial: what an earlier one found says nothing of the passes of today.
_TRIAL = 2


def reproducible_note(target: KVSequence) -> str | None:
    """Return why drafts may change digits of this model all the same; None if they cannot."""
    if target.rollback in (Rollback.PARTIAL, Rollback.NOTHING):
        return None
    return (
        f"not reproducible to the bit: {target.model.path.name} has a running state, so its passes "
        f"have as many rows as their drafts; {options(draft='none')} gives each one row"
    )


def invariant_width(context: KVSequence, widest: int, runtime: RuntimeConfig) -> InvariantWidth:
    """Return the width for passes of up to `widest` rows, probed or as it was before.

    The probe empties the cache of `context`. Raises InvalidValueError if that is too small for it,
    or if no width is invariant.
    """
    uniform = computes_on_gpu(context.model.placement)
    file = _file(context, UNIFORM_ROWS if uniform else widest, runtime)
    if before := stored(file, lambda record: _parsed(record, widest, uniform=uniform)):
        return before
    found = probe_uniform(context) if uniform else probe(context, widest)
    try_to_store(file, asdict(found))
    return found


def usual_widths(context: KVSequence, runtime: RuntimeConfig) -> dict[int, InvariantWidth]:
    """The width for texts without a depth of their own, by the deepest draft that these have.

    None where passes need none, or where it cannot be tried out: then a text says why.
    """
    if not runtime.reproducible or context.rollback is not Rollback.PARTIAL:
        return {}
    deepest = deepest_draft(GenerationConfig(), reproducible=True)
    try:
        return {deepest: invariant_width(context, 1 + deepest, runtime)}
    except InvalidValueError:
        return {}


def _parsed(record: Mapping[str, Any], widest: int, *, uniform: bool) -> InvariantWidth:
    rows, cost = int(record["least_rows"]), float(record["cost"])
    if not 1 <= rows <= (UNIFORM_ROWS if uniform else widest) or not 0 < cost < math.inf:
        raise ValueError("not a width and its cost")
    if record["is_uniform"] is not uniform:
        raise ValueError("a width of another device")
    return InvariantWidth(rows, cost, uniform)


def _file(context: KVSequence, widest: int, runtime: RuntimeConfig) -> Path:
    """The file of a width; its name depends on everything that chooses kernels."""
    machine, build = machine_signature()
    # The room of the context decides how long the probe's text is.
    settings = runtime.costs_depend_on | {"context": context.n_cells, "drafter_kv_type": None}
    model = stat_signature(context.model.path)
    return cache_file("widths", [_TRIAL, model, widest, machine, settings, build])
