"""Context limit: the context asked for, at most what the model makes sense of."""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from localspec.gguf.facts import Facts
from localspec.llama.rope import YARN, has_rope, position_table
from localspec.loading.config import RuntimeConfig
from localspec.utils.option_names import no_effect, option, options

# Beyond, hardly any model makes sense of a text.
_MOST_HELPFUL = 16


def within_model(runtime: RuntimeConfig, target: Facts) -> tuple[RuntimeConfig, str | None]:
    """Limit the context to that of the target; return a line for the user where this is less.

    A larger cache would be of no use: no model makes sense of more tokens than it was trained for,
    or its rotations are scaled to. And it takes long, as the library writes zeros to all of it.
    Other rotations by a base that the user names have no limit that can be computed.
    """
    asked, most = runtime.context, runtime.rope.context(target.header)
    unlimited = runtime.rope.freq_base and not position_table(target.header)
    if not asked or not most or asked <= most or unlimited:
        return runtime, None
    name, rope = target.files[0].name, runtime.rope.in_words
    note = f"context {most}: {asked} is more than {name} " + (
        f"reads with {rope}" if rope else "was made for"
    )
    scale = ceil(asked / (runtime.rope.original(target.header) or asked))
    if 1 < scale <= _MOST_HELPFUL and has_rope(target.header):
        note += f"; {options(rope_scaling=YARN, rope_scale=scale)} reads more, less well"
    return replace(runtime, context=most), note


def rope_notes(runtime: RuntimeConfig, target: Facts, context: int) -> Iterator[str]:
    """Yield what the options of rotations come to, and which have no effect, one line each.

    context: the tokens of a text, as planned.
    """
    rope, header, name = runtime.rope, target.header, target.files[0].name
    if not rope:
        return
    if not has_rope(header):
        yield f"{rope.in_words}: no effect, as {name} says nothing of rotations (RoPE)"
        return
    method, factor = rope.method(header), rope.factor(header)
    scaling = f"{option('rope_scaling')} is {method}"
    if rope.yarn_orig_ctx and method != YARN:
        yield no_effect("yarn_orig_ctx", rope.yarn_orig_ctx, scaling)
    if rope.scale and rope.scale != factor:
        yield no_effect("rope_scale", f"{rope.scale:g}", scaling)
    if rope.scaling == YARN and factor == 1:
        scale = option("rope_scale")
        yield f"{option('rope_scaling')} {YARN} has no effect with {scale} 1; try {scale} 2"
    most, own, original = rope.context(header), header.context_length, rope.original(header)
    if own is None or (most == own and not rope.freq_base):
        return
    times = f"{factor:g} times" + (f" {original:,} tokens" if original else "")
    how = f"{method}, {times}" if factor != 1 else ""
    base = f"base {rope.freq_base:.10g}" if rope.freq_base else ""
    rotated = f"rotations (RoPE) are scaled: {', '.join(filter(None, [how, base])) or method}"
    if rope.freq_base or most is None:
        yield f"{rotated}; how many tokens {name} then reads is not known"
        return
    more = f"; the context is {context:,}: {option('context')} sets it" if context < most else ""
    yield f"{rotated}; {name} reads up to {most:,}, and was made for {own:,}{more}"
