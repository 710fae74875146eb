"""`localspec demo`: plain and speculative decoding side by side, on the bundled pair scaled up."""

import sys
import threading
from time import perf_counter
from typing import Any

import click
import psutil

from localspec.bench import SETS, Comparison, Task, bundled_tasks
from localspec.cli import demo_output
from localspec.cli.demo_screen import screen_for
from localspec.cli.interrupt import INTERRUPTED, cancel_first, exit_at_once, on_interrupt
from localspec.cli.options import stacked, threads_option
from localspec.cli.output import Output
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.scaling import demo_pair
from localspec.scaling.demo_pair import DemoPair
from localspec.utils.format import format_bytes

_PROMPT = "def fibonacci(n):"
_SEED = 6
# Seconds over which other programs' use of the processor is measured.
_BUSY_SECONDS = 0.3

_pair_options = stacked(
    click.option(
        "--size",
        default="0.5B",
        show_default=True,
        metavar="N",
        help="Parameters of the scaled target: 0.3B, 0.9B, 3B, ...",
    ),
    click.option(
        "--type",
        "type_name",
        type=click.Choice(demo_pair.TYPES, case_sensitive=False),
        default="F16",
        show_default=True,
        metavar="|".join(demo_pair.TYPES),
        help="How its weights are stored. On a processor, drafts gain most with F16.",
    ),
    click.option("--yes", is_flag=True, help="Write the scaled pair without asking."),
    click.option("--remove", is_flag=True, help="Delete all scaled pairs of the demo, and end."),
)

_text_options = stacked(
    click.option("--prompt", metavar="TEXT", help=f"What to continue. [default: {_PROMPT}]"),
    click.option(
        "--set", "prompt_set", metavar="NAME", help=f"The first prompt of: {', '.join(SETS)}."
    ),
    click.option(
        "-n", "--tokens", type=int, default=96, show_default=True, help="Tokens of each text."
    ),
    click.option("--temperature", type=float, help="0 is greedy. [default: 0.8]"),
    click.option(
        "--seed", type=int, default=_SEED, show_default=True, help="Same seed, same text."
    ),
)


@click.command()
@_pair_options
@_text_options
@threads_option
@click.option(
    "--reproducible",
    is_flag=True,
    help="The text does not depend on drafting in any digit, at some cost.",
)
def demo(
    *,
    size: str,
    type_name: str,
    yes: bool,
    remove: bool,
    prompt: str | None,
    prompt_set: str | None,
    threads: int | None,
    reproducible: bool,
    tokens: int,
    **options: Any,
) -> int:
    """Watch plain and speculative decoding of one prompt, side by side.

    With nothing downloaded: the bundled pair is scaled up, so that each token costs what it costs
    in a real model of that size. That is written once, after asking. The text stays a tiny
    model's; speed, acceptance and the ratio are real.
    """
    output = Output(color=True)
    if remove:
        output.note(f"{format_bytes(demo_pair.remove())} deleted")
        return 0
    task = _task(prompt, prompt_set)
    options |= {"max_tokens": tokens, "ignore_eos": True}
    GenerationConfig.of(**options)
    pair = DemoPair(size, type_name)
    if not _written(pair, output, yes=yes):
        return 0
    output.note(demo_output.LOADING)
    with on_interrupt(exit_at_once):
        comparison = Comparison(
            pair.target, pair.drafter, threads=threads, reproducible=reproducible
        )
    with comparison:
        return _run(comparison, task, options, output)


def _task(prompt: str | None, prompt_set: str | None) -> Task:
    if prompt is not None and prompt_set is not None:
        raise InvalidValueError("both --prompt and --set are given; choose one")
    if prompt_set is not None:
        return bundled_tasks(prompt_set)[0]
    return Task("prompt", 1, _PROMPT if prompt is None else prompt)


def _written(pair: DemoPair, output: Output, *, yes: bool) -> bool:
    """Write the scaled pair if it is missing and the user agrees; return whether it is there."""
    if pair.missing:
        if not (yes or _agreed(pair, output)):
            output.note("nothing was written")
            return False
        began = perf_counter()
        pair.write()
        took = f"{format_bytes(pair.missing)} in {perf_counter() - began:.1f} s"
        output.note(f"written to {demo_output.short_path(pair.folder)}: {took}")
    for line in demo_output.model_lines(pair):
        output.note(line)
    return True


def _agreed(pair: DemoPair, output: Output) -> bool:
    """Ask whether the files may be written. Raises InvalidValueError without a terminal."""
    if not (sys.stdin and sys.stdin.isatty()):
        folder = demo_output.short_path(pair.folder)
        raise InvalidValueError(
            f"the demo writes {format_bytes(pair.missing)} to {folder}, and "
            "there is no terminal to ask at; give --yes to agree"
        )
    for line in demo_output.question_lines(pair):
        output.note(line)
    return click.confirm(f"write {format_bytes(pair.missing)}?", default=False, err=True)


def _run(comparison: Comparison, task: Task, options: dict[str, Any], output: Output) -> int:
    """Generate both texts, show the verdict, and return the exit code."""
    if warning := demo_output.busy_warning(psutil.cpu_percent(_BUSY_SECONDS)):
        output.note(warning)
    cancel = threading.Event()
    prompt = task.prompt_for(comparison.plain.engine)
    shown = prompt if isinstance(prompt, str) else "(a chat)\n\n"
    with on_interrupt(cancel_first(cancel)):
        comparison.warm_up(cancel)
        with screen_for(output, comparison, shown) as screen:
            for decoding, token in comparison.run(prompt, cancel, **options):
                screen.show(decoding, token)
    if cancel.is_set():
        return INTERRUPTED
    output.data(demo_output.verdict_line(comparison) + "\n")
    for remark in demo_output.remark_lines(comparison):
        output.note(remark)
    return 0
