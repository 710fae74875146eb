"""Options that say how tokens are drawn."""

from collections.abc import Sequence

import click

from localspec.cli.options import Command, stacked

# Which tokens may be drawn at all; the defaults are those of the pair, else of the
# GGUF, else of llama.cpp.
truncation_options = (
    click.option("--temperature", type=float, help="0 is greedy. [default: the model's, else 0.8]"),
    click.option("--top-k", type=int, help="0 is off. [default: the model's, else 40]"),
    click.option("--top-p", type=float, help="1 is off. [default: the model's, else 0.95]"),
    click.option("--min-p", type=float, help="0 is off. [default: the model's, else 0.05]"),
)


def sampling_options(command: Command) -> Command:
    """Add the options that say how tokens are drawn and how drafts are judged."""
    return stacked(
        *truncation_options,
        click.option("--typical-p", type=float, help="1 is off. [default: 1]"),
        click.option(
            "--top-n-sigma",
            type=float,
            help="Keep tokens within N standard deviations of the likeliest logit; 0 is off. "
            "[default: 0]",
        ),
        click.option(
            "--dynatemp-range",
            type=float,
            help="Up to so much lower temperature where the model is sure, and higher where it is "
            "not; 0 is off. [default: 0]",
        ),
        click.option(
            "--dynatemp-exponent",
            type=float,
            help="How that grows with the entropy. [default: 1]",
        ),
        click.option("--repeat-penalty", type=float, help="1 is off. [default: 1]"),
        click.option("--frequency-penalty", type=float, help="0 is off. [default: 0]"),
        click.option("--presence-penalty", type=float, help="0 is off. [default: 0]"),
        click.option(
            "--penalty-window",
            type=int,
            help="Penalise tokens among the last N; -1 is all. [default: 64]",
        ),
        click.option(
            "--dry-multiplier",
            type=float,
            help="Penalise tokens that go on with a repetition (DRY); 0 is off. [default: 0]",
        ),
        click.option("--dry-base", type=float, help="DRY grows so per token. [default: 1.75]"),
        click.option(
            "--dry-allowed-length",
            type=int,
            help="Repetitions of fewer tokens are free. [default: 2]",
        ),
        click.option(
            "--dry-penalty-last-n",
            type=int,
            help="DRY looks among the last N tokens; -1 is all. [default: 64]",
        ),
        click.option(
            "--dry-sequence-breaker",
            "dry_sequence_breakers",
            multiple=True,
            metavar="TEXT",
            callback=lambda _context, _option, values: _breakers(values),
            help="No repetition goes beyond it; `none`: there is none. Repeatable. "
            '[default: newline : " *]',
        ),
        click.option(
            "--xtc-probability",
            type=float,
            help="Leave out the likeliest tokens so often (XTC), at temperature 0 too; 0 is off. "
            "[default: 0]",
        ),
        click.option(
            "--xtc-threshold",
            type=float,
            help="XTC leaves out those of at least this probability, but the least likely of "
            "them; above 0.5 is off. [default: 0.1]",
        ),
        click.option(
            "--mirostat",
            metavar="0|1|2",
            type=int,
            help="Keep the tokens with which the text is as surprising as wanted (Mirostat 2.0; 1 "
            "is the first one), and use no other filter or penalty; 0 is off. [default: the "
            "model's, else 0]",
        ),
        click.option(
            "--mirostat-tau",
            type=float,
            help="Bits of information per token. [default: the model's, else 5]",
        ),
        click.option(
            "--mirostat-eta",
            type=float,
            help="How fast mirostat follows. [default: the model's, else 0.1]",
        ),
        click.option(
            "--adaptive-target",
            type=float,
            help="Behind the other filters, draw tokens whose mean probability is this "
            "(adaptive-p); below 0 is off. [default: -1]",
        ),
        click.option(
            "--adaptive-decay",
            type=float,
            help="Older tokens count so much less in that mean. [default: 0.9]",
        ),
        click.option(
            "--seed",
            type=int,
            help="The same seed gives the same text. [default: random, and shown]",
        ),
        click.option(
            "--rule",
            default="coupled",
            show_default=True,
            metavar="coupled|token|block",
            help="How drafts are accepted. `coupled`: a seed gives the text of plain decoding. "
            "`token`, `block`: a seed gives another text of the same distribution.",
        ),
    )(command)


def _breakers(values: Sequence[str]) -> list[str] | None:
    """None where none is named, and an empty list for `none`, as in llama.cpp's programs."""
    return [value for value in values if value != "none"] if values else None
