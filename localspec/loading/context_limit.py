"""Context limit: the context asked for, at most the model's own."""

from dataclasses import replace

from localspec.gguf.facts import Facts
from localspec.loading.config import RuntimeConfig


def within_model(runtime: RuntimeConfig, target: Facts) -> tuple[RuntimeConfig, str | None]:
    """Limit the context to that of the target; return a line for the user where this is less.

    A larger cache would be of no use: no model makes sense of more tokens than it was trained for.
    And it takes long, as the library writes zeros to all of it.
    """
    asked, own = runtime.context, target.header.context_length
    if not asked or not own or asked <= own:
        return runtime, None
    note = f"context {own}: {asked} is more than {target.files[0].name} was made for"
    return replace(runtime, context=own), note
