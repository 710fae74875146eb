"""Placement notes: options of places and caches that have no effect here, one line each."""

from collections.abc import Iterator, Sequence

from localspec.gguf.facts import Facts
from localspec.gguf.kv_types import names_of as names_of_types
from localspec.gguf.kv_types import needs_flash_attention, shortest
from localspec.llama.devices import names_of
from localspec.llama.placement import SPLIT_MODES, Placement
from localspec.loading.config import RuntimeConfig
from localspec.loading.loaded_drafter import LoadedDrafter
from localspec.utils.option_names import have_no_effect, no_effect, option, options


def target_notes(asked: Placement, target: Facts) -> Iterator[str]:
    """Yield what of a target's placement has no effect, and why."""
    devices = names_of(asked)
    # A worker may have several devices, which it does not tell before it is used.
    is_shared = len(devices) > 1 or (bool(devices) and bool(asked.workers))
    if asked.gpu_layers and not devices:
        yield no_effect("gpu_layers", asked.gpu_layers, _all_layers(asked, devices))
    if asked.gpu_layers == 0 and asked.workers:
        workers = ", ".join(map(str, asked.workers))
        yield f"no layer is on {workers}: {option('gpu_layers')} is 0"
    if asked.split_mode != SPLIT_MODES[0] and not is_shared:
        yield no_effect("split_mode", asked.split_mode, _all_layers(asked, devices))
    if asked.tensor_split and not is_shared:
        shares = ",".join(f"{share:g}" for share in asked.tensor_split)
        yield no_effect("tensor_split", shares, _all_layers(asked, devices))
    if asked.cpu_moe and not target.has_experts:
        yield no_effect("cpu_moe", asked.cpu_moe, f"{target.files[0].name} has no experts")
    elif asked.cpu_moe and not devices:
        yield no_effect("cpu_moe", asked.cpu_moe, _all_layers(asked, devices))


def rounding_note(asked: RuntimeConfig, setting: str) -> str | None:
    """Return that a cache of 32 bits has the digits of one of 16; None where it has more.

    The graphs of llama.cpp round what flash attention reads. setting: that of the cache's type.
    """
    kv_type = getattr(asked, setting)
    if asked.flash is False or "f32" not in names_of_types(kv_type):
        return None
    less = shortest(kv_type.replace("f32", "f16"), setting)
    note = f"{option(setting)} {kv_type} gives the digits of {less}, which takes less memory: flash"
    note += " attention reads it as f16"
    without = options(flash_attention=False)
    return note if needs_flash_attention(kv_type) else f"{note}; {without} reads all digits"


def flash_note(asked: RuntimeConfig) -> str | None:
    """Return that flash attention stays off in reproducible passes; None where it was not named."""
    if not (asked.reproducible and asked.flash_attention):
        return None
    return have_no_effect([options(flash_attention=True)], f"{option('reproducible')} turns it off")


def drafter_note(asked: Placement, drafters: Sequence[LoadedDrafter]) -> str | None:
    """Return why the place that the user has named for drafters has no effect; None if it has."""
    if any(each.model and not each.inside for each in drafters):
        if asked.gpu_layers and not (devices := names_of(asked)):
            why = _all_layers(asked, devices)
            return no_effect("draft_gpu_layers", asked.gpu_layers, why)
        return None
    if any(each.inside for each in drafters):
        why = "the heads inside the target are where the target is"
    elif any(each.matrices for each in drafters):
        why = "a head of this kind is always computed on the processor"
    else:
        why = _nothing("to place", drafters)
    options = [] if asked.devices is None else ["draft_device"]
    options += [] if asked.gpu_layers is None else ["draft_gpu_layers"]
    return _no_effect(options, why)


def cache_note(asked: RuntimeConfig, drafters: Sequence[LoadedDrafter]) -> str | None:
    """Return why what the user has named for caches of drafters has no effect; None if it has."""
    if any(each.model for each in drafters):
        return None
    if any(each.matrices for each in drafters):
        why = "a head of this kind has no KV cache"
    else:
        why = _nothing("with a KV cache", drafters)
    usual = asked.drafter_kv_type == RuntimeConfig().drafter_kv_type
    options = [] if asked.draft_rope_scale is None else ["draft_rope_scale"]
    options += [] if usual else ["drafter_kv_type"]
    return _no_effect(options, why)


def _nothing(what: str, drafters: Sequence[LoadedDrafter]) -> str:
    return f"nothing that drafts has a model {what}" if drafters else "nothing drafts"


def _no_effect(parameters: Sequence[str], why: str) -> str | None:
    return have_no_effect([*map(option, parameters)], why) if parameters else None


def _all_layers(asked: Placement, devices: Sequence[str]) -> str:
    """Say where all layers are that may be on devices, fewer than two."""
    if devices:
        return f"{devices[0]} is the only device"
    if asked.is_on_processor:
        return "all layers are on the processor"
    return "this build of llama.cpp finds no GPU"
