"""Equal digits of a model on this machine: tried once, and stored."""

import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.reader import Header
from localspec.llama import extra_buffers, library
from localspec.llama.devices import can_offload
from localspec.llama.digits_probe import BUDGET, CELLS, find_equal_digits
from localspec.llama.model import Model
from localspec.loading.config import RuntimeConfig
from localspec.memory import estimate
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.paths import cache_file, stat_signature, write_atomically

# Another number for another trial: what an earlier one found is tried again.
_TRIAL = 2
# With `reproducible` digits are what the user asked for, so the trial may take longer.
_REPRODUCIBLE_BUDGET = 4 * BUDGET


def measured(model: Model, header: Header, runtime: RuntimeConfig) -> EqualDigits | None:
    """Try out this model, or read what an earlier trial found; None if it cannot be tried.

    header: of the model's file.
    """
    if before := remembered(model.path, runtime):
        return before
    try:
        # The trial copies its text.
        estimate.require_room(header, model.path.name, 2 * CELLS, runtime.kv_type)
    except ModelLoadError:
        return None
    found = find_equal_digits(
        model,
        threads=runtime.threads_of(model),
        flash_attention=runtime.flash,
        kv_type=estimate.KV_TYPES[runtime.kv_type],
        budget=_REPRODUCIBLE_BUDGET if runtime.reproducible else BUDGET,
    )
    if found:
        with suppress(OSError):  # the next load tries again
            write_atomically(_file(model.path, runtime), json.dumps(found.as_dict()))
    return found


def remembered(path: Path, runtime: RuntimeConfig) -> EqualDigits | None:
    """Return what a trial of this file on this machine found; None if there was none."""
    try:
        return EqualDigits.of(json.loads(_file(path, runtime).read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not tried yet, or the file is damaged


def _file(path: Path, runtime: RuntimeConfig) -> Path:
    """The file of a finding; its name depends on everything that chooses kernels."""
    machine = [platform.node(), platform.machine(), os.cpu_count(), can_offload()]
    kernels = [*library.build_signature(), extra_buffers.usable()]
    # Neither the context size nor the drafters choose the target's kernels.
    settings = asdict(runtime) | {"context": None, "drafter_kv_type": None}
    return cache_file("digits", [_TRIAL, stat_signature(path), machine, settings, kernels])
