"""Options that scale rotations (RoPE), for contexts beyond those of training."""

from typing import Any

import click
from click.core import ParameterSource

_SCALING = "rope_scaling"


def _unless_undone(context: click.Context, option: click.Parameter, value: Any) -> Any:
    """Return the value; None where `--rope-scaling model` leads back from what settings say."""
    named = {
        name: context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for name in (_SCALING, option.name or "")
    }
    # What the command line names is read before what settings say; `model` is None by then.
    is_undone = named[_SCALING] and context.params.get(_SCALING) is None
    return None if is_undone and not named[option.name or ""] else value


rope_options = (
    click.option(
        "--rope-scaling",
        metavar="none|linear|yarn|model",
        callback=lambda _context, _option, value: None if value == "model" else value,
        help="How the target reads more tokens than it was made for; `model` is as its file "
        "says, whatever settings say. [default: from the GGUF]",
    ),
    click.option(
        "--rope-scale",
        metavar="N",
        type=float,
        callback=_unless_undone,
        help="Read N times the tokens that the target was made for, less well; with --ctx. "
        "[default: from the GGUF]",
    ),
    click.option(
        "--rope-freq-base",
        metavar="N",
        type=float,
        callback=_unless_undone,
        help="Base of RoPE's angles. [default: from the GGUF]",
    ),
    click.option(
        "--yarn-orig-ctx",
        metavar="N",
        type=int,
        callback=_unless_undone,
        help="The tokens that N times are counted from. [default: from the GGUF]",
    ),
    click.option(
        "--draft-rope-scale",
        metavar="N",
        type=float,
        callback=_unless_undone,
        help="The same of draft models. [default: the target's, if made for equal contexts]",
    ),
)
