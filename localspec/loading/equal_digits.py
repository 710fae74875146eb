"""Equal digits of a model on this machine: tried once, and stored."""

from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.gguf.lora import Lora, check_lora
from localspec.gguf.reader import Header
from localspec.llama.context_params import ContextParams
from localspec.llama.digits_probe import BUDGET, CELLS, find_equal_digits
from localspec.llama.model import Model
from localspec.loading.config import RuntimeConfig
from localspec.loading.fingerprints import machine_signature
from localspec.memory import estimate
from localspec.memory.available import free_memory
from localspec.memory.context_sizes import ContextSizes
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.paths import cache_file, stat_signature
from localspec.utils.stored_json import stored, try_to_store

# Another number for another trial: what an earlier one found is tried again.
_TRIAL = 3
# With `reproducible` digits are what the user asked for, so the trial may take longer.
_REPRODUCIBLE_BUDGET = 4 * BUDGET


def measured(model: Model, header: Header, runtime: RuntimeConfig) -> EqualDigits | None:
    """Try out this model, or read what an earlier trial found; None if it cannot be tried.

    header: of the model's file.
    """
    if before := remembered(model.path, runtime):
        return before
    params = ContextParams(
        CELLS,
        runtime.threads_of(model),
        flash_attention=runtime.flash,
        kv_type=runtime.kv_type,
    )
    budget = _REPRODUCIBLE_BUDGET if runtime.reproducible else BUDGET
    if not _has_room(model, header, replace(params, n_ctx=2 * CELLS)):
        return None
    found = find_equal_digits(model, params, budget=budget)
    # A few tokens may miss it, as most of the differences are rounded away. Devices do not count:
    # layers may be on the CPU beside a GPU.
    if found and any(map(_gives_one_row_other_digits, runtime.loras)):
        found = found.with_one_row_apart()
    if found:
        try_to_store(_file(model.path, runtime), found.as_dict())
    return found


def _gives_one_row_other_digits(lora: Lora) -> bool:
    try:
        return bool(check_lora(lora).types_apart)
    except LocalspecError:  # its file is gone since it was loaded
        return True


def _has_room(model: Model, header: Header, params: ContextParams) -> bool:
    """Whether a cache for the trial, which copies its text, fits beside those that are made."""
    try:
        if not model.is_offloaded:
            estimate.require_room(header, model.path.name, params.n_ctx, params.kv_type)
            return True
        with closing(ContextSizes(model.path, header, model.placement)) as sizes:
            needed = sizes.bytes_by_device(params)
        return needed is None or not free_memory(model.placement).shortage(needed)
    except LocalspecError:
        return False


def remembered(path: Path, runtime: RuntimeConfig) -> EqualDigits | None:
    """Return what a trial of this file on this machine found; None if there was none."""
    with suppress(OSError):  # the model file is gone
        return stored(_file(path, runtime), EqualDigits.of)
    return None


def _file(path: Path, runtime: RuntimeConfig) -> Path:
    """The file of a finding; its name depends on everything that chooses kernels."""
    machine, build = machine_signature()
    # Neither sizes of context and prompts' passes nor drafters choose kernels of narrow passes.
    others = ("context", "drafter_kv_type", "drafter_placement", "ubatch")
    settings = runtime.costs_depend_on | dict.fromkeys(others)
    return cache_file("digits", [_TRIAL, stat_signature(path), machine, settings, build])
