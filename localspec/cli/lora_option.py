"""The option that names LoRA adapters for the target."""

from collections.abc import Sequence

import click

NO_LORA = "none"


def _checked(files: Sequence[str]) -> list[str]:
    """Return the adapters with absolute paths. Raises what `check_lora` and `Lora` raise."""
    if not files or [*files] == [NO_LORA]:
        return []
    # `--help` must not wait for this import.
    from localspec.gguf.lora import Lora, check_lora

    if NO_LORA in files:
        raise click.UsageError(f"--lora {NO_LORA} leaves adapters out; name no other beside it")
    loras = [Lora.parse(file) for file in files]
    for lora in loras:
        check_lora(lora)
    return [lora.option for lora in loras]


lora_option = click.option(
    "--lora",
    multiple=True,
    metavar="FILE[:SCALE]|none",
    callback=lambda _context, _option, files: _checked(files),
    help="A LoRA adapter for the target (GGUF, of llama.cpp's convert_lora_to_gguf), on in all "
    "texts; SCALE is how much of it. Repeatable. [default: none; SCALE: 1]",
)
