"""Options that scale rotations (RoPE), for contexts beyond those of training."""

import click

rope_options = (
    click.option(
        "--rope-scaling",
        metavar="none|linear|yarn|model",
        callback=lambda _context, _option, value: None if value == "model" else value,
        help="How the target reads more tokens than it was made for; `model` is the default. "
        "[default: from the GGUF]",
    ),
    click.option(
        "--rope-scale",
        metavar="N",
        type=float,
        help="Read N times the tokens that the target was made for, less well; with --ctx. "
        "[default: from the GGUF]",
    ),
    click.option(
        "--rope-freq-base",
        metavar="N",
        type=float,
        help="Base of RoPE's angles. [default: from the GGUF]",
    ),
    click.option(
        "--yarn-orig-ctx",
        metavar="N",
        type=int,
        help="The tokens that N times are counted from. [default: from the GGUF]",
    ),
    click.option(
        "--draft-rope-scale",
        metavar="N",
        type=float,
        help="The same of draft models. [default: the target's, if made for equal contexts]",
    ),
)
