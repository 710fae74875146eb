"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from localspec.cli.lora_option import lora_option
from localspec.cli.rope_options import rope_options
from localspec.errors import InvalidValueError
from localspec.llama.placement import LOAD_MODES, SPLIT_MODES, parse_shares

Command = TypeVar("Command", bound=Callable[..., Any])

# The placeholder of --draft in `--help`.
DRAFTS = "auto|none|suffix|lookup|ngram|mtp|MODEL"
_KV_TYPE: dict[str, Any] = {
    "default": "f16",
    "show_default": True,
    "metavar": "f16|bf16|f32|q8_0|q4_0|KEYS/VALUES",
}


def stacked(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return one decorator for several options, in the order in which `--help` shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def model_option_of(default: str) -> Callable[[Command], Command]:
    """Return the option --model. default: what is used without it, for `--help`."""
    return click.option(
        "-m",
        "--model",
        metavar="MODEL",
        help="The target: a pair's name (`localspec ls --all`), user/repo[:quant] or a GGUF's "
        f"path. [default: {default}]",
    )


model_option = model_option_of("the bundled target")


def keep_option(meaning: str) -> Callable[[Command], Command]:
    """Give a command --keep. meaning: what it keeps, for its help."""
    return click.option("--keep/--no-keep", help=f"{meaning} `localspec forget` deletes it.")


context_option = click.option(
    "--ctx",
    "context",
    type=int,
    help="Context size in tokens. [default: the model's, at most 8192]",
)
gpu_layers_option = click.option(
    "--gpu-layers", type=int, help="Layers on GPUs and workers. [default: all that fit]"
)


def _device_option(name: str, text: str) -> Callable[[Command], Command]:
    return click.option(
        name,
        metavar="NAME,...",
        callback=lambda _context, _option, value: None if value is None else value.split(","),
        help=text,
    )


# Where a target is.
target_place_options = (
    _device_option(
        "--device",
        "GPUs and workers for the target, by name (`localspec doctor`) or HOST:PORT; `none` is "
        "the processor. [default: all GPUs]",
    ),
    gpu_layers_option,
    click.option(
        "--rpc",
        metavar="HOST:PORT,...",
        callback=lambda _context, _option, value: tuple(comma_separated(value or "")),
        help="Other machines that compute layers of the target: addresses of `localspec worker`.",
    ),
    click.option(
        "--split-mode",
        metavar="|".join(SPLIT_MODES),
        default=SPLIT_MODES[0],
        show_default=True,
        help="How several GPUs share the target: whole layers, or rows of each matrix (SYCL).",
    ),
    click.option(
        "--tensor-split",
        metavar="N,N,...",
        callback=lambda _context, _option, value: parse_shares(value or ""),
        help="The share of each device. [default: by free memory]",
    ),
    click.option(
        "--cpu-moe",
        metavar="N",
        type=int,
        default=0,
        help="Keep the experts of the first N layers on the processor; -1: of all. "
        "[default: as few as fit]",
    ),
    click.option(
        "--load-mode",
        metavar="|".join(LOAD_MODES),
        default=LOAD_MODES[0],
        show_default=True,
        help="How files get into memory: mapped (mmap), read (none; dio: past the system's cache), "
        "kept there (mlock). `auto` maps them where the devices can.",
    ),
)
# Where draft models are.
drafter_place_options = (
    _device_option(
        "--draft-device",
        "The device of draft models and heads, as in --device. [default: a GPU of the target]",
    ),
    click.option(
        "--draft-gpu-layers",
        type=int,
        help="Layers of draft models and heads on that device. [default: all]",
    ),
)
ubatch_option = click.option(
    "--ubatch",
    metavar="N",
    type=int,
    help="Tokens of a prompt that the target reads in one pass. [default: 512; 2048 where experts "
    "are on the processor beside a GPU, if there is room]",
)
kv_type_option = click.option(
    "--kv-type",
    **_KV_TYPE,
    help="Type of the target's KV cache; q8_0 needs about half the memory of f16. q8_0/f16: keys "
    "and values apart.",
)
draft_kv_type_option = click.option(
    "--draft-kv-type",
    "drafter_kv_type",
    **_KV_TYPE,
    help="Type of the draft model's KV cache; f16 is used if this type makes drafts much worse.",
)
# What --flash-attn means to RuntimeConfig; None: where the library supports it.
_FLASH_ATTENTION = {"auto": None, "on": True, "off": False}
flash_attention_option = click.option(
    "--flash-attn",
    "flash_attention",
    type=click.Choice([*_FLASH_ATTENTION]),
    default="auto",
    callback=lambda _context, _option, value: _FLASH_ATTENTION[value],
    help="Flash attention. `off` may be faster behind long texts on a processor (`localspec plan` "
    "measures it), takes more memory, and lets texts of several users take turns. "
    "[default: on where the model allows it]",
)
threads_option = click.option(
    "--threads",
    type=int,
    help="CPU threads. [default: by model size, at most one per fast core]",
)


def comma_separated(value: str) -> list[str]:
    """Return the parts of a value between its commas, without empty ones."""
    return [part.strip() for part in value.split(",") if part.strip()]


def _depth(value: str) -> int | None:
    if value == "auto":
        return None
    try:
        return int(value)
    except ValueError as error:
        raise InvalidValueError(f"depth is {value!r}; it must be auto or a number") from error


def model_options(command: Command) -> Command:
    """Add --model and the options of `running_options`."""
    return model_option(running_options(command))


# Names of those options of `running_options` that say how models run, as `load` takes them.
_RUNTIME = (
    "context",
    "device",
    "gpu_layers",
    "rpc",
    "split_mode",
    "tensor_split",
    "cpu_moe",
    "load_mode",
    "draft_device",
    "draft_gpu_layers",
    "threads",
    "kv_type",
    "drafter_kv_type",
    "flash_attention",
    "reproducible",
    "ubatch",
    "rope_scaling",
    "rope_scale",
    "rope_freq_base",
    "yarn_orig_ctx",
    "draft_rope_scale",
    "lora",
)


def pop_runtime_options(options: dict[str, Any]) -> dict[str, Any]:
    """Remove the options that say how models run from a command's options, and return them."""
    return {name: options.pop(name) for name in _RUNTIME if name in options}


def running_options(command: Command) -> Command:
    """Add the options that say what drafts, and how target and drafter run."""
    return stacked(
        click.option(
            "--draft",
            default="auto",
            show_default=True,
            metavar=DRAFTS,
            help="Drafters, separated by commas: suffix, lookup and ngram copy from the text; "
            "mtp is the head inside the target; MODEL is a smaller model or a head, named like a "
            "target. `auto` is suffix and the target's own drafter: one of models.toml, inside "
            "its file, beside it, or trained here, if there is any.",
        ),
        click.option(
            "--depth",
            default="auto",
            show_default=True,
            metavar="auto|N",
            callback=lambda _context, _option, value: _depth(value),
            help="Tokens per draft. 0 is plain decoding; `auto` chooses the fastest number in each "
            "step, which may be 0.",
        ),
        lora_option,
        context_option,
        *rope_options,
        *target_place_options,
        *drafter_place_options,
        kv_type_option,
        draft_kv_type_option,
        flash_attention_option,
        click.option(
            "--reproducible",
            is_flag=True,
            help="Make the text independent of drafting, bit for bit. This costs some speed; "
            "generate shows how much.",
        ),
        threads_option,
        ubatch_option,
    )(command)
