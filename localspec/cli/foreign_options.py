"""Foreign options: llama.cpp's short ones, for whoever types them by habit.

Most have several letters behind one hyphen. Taken for options of one letter, they would mean
something else: -md a model named d, -ngl so many tokens as "gl".
"""

from collections.abc import Sequence

import click

_NAMES_HERE = {
    "-c": "--ctx",
    "-cmoe": "--cpu-moe",
    "-ncmoe": "--cpu-moe",
    "-ctk": "--kv-type",
    "-ctv": "--kv-type",
    "-ctkd": "--draft-kv-type",
    "-ctvd": "--draft-kv-type",
    "-dev": "--device",
    "-devd": "--draft-device",
    "-fa": "--flash-attn",
    "-md": "--draft",
    "-ngl": "--gpu-layers",
    "-ngld": "--draft-gpu-layers",
    "-np": "--parallel",
    "-s": "--seed",
    "-sm": "--split-mode",
    "-sys": "--system",
    "-t": "--threads",
    "-ts": "--tensor-split",
    "-ub": "--ubatch",
}
_PROMPTS = ("-p", "-f")


def refuse_foreign_options(ctx: click.Context, words: Sequence[str]) -> None:
    """Raise NoSuchOption for one of several letters. ctx: of the command. words: its arguments."""
    for word in words:
        if word == "--":
            return
        if len(word) > 2 and word in _NAMES_HERE:
            raise click.NoSuchOption(word, ctx=ctx)


def name_here(ctx: click.Context, option: str) -> str:
    """Return what a short option may have meant, as a hint; empty if that is unknown."""
    if isinstance(ctx.command, click.Group):
        return "options follow a command: localspec generate -m MODEL PROMPT"
    parameters = ctx.command.get_params(ctx)
    name = _NAMES_HERE.get(option)
    if name and any(name in each.opts for each in parameters):
        return f"did you mean {name}?"
    if not any(each.name == "prompt" for each in parameters):
        return ""
    if option in _PROMPTS:
        return "the prompt is an argument in quotes, or stdin"
    return "-- stands before a prompt that begins with a hyphen"
