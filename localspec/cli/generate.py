"""`localspec generate`: text to stdout."""

import threading
from collections.abc import Callable
from typing import Any

import click

from localspec.cli.generate_output import (
    decision_line,
    engine_line,
    generation_record,
    stats_line,
    token_record,
)
from localspec.cli.interrupt import INTERRUPTED, cancel_first, exit_at_once, on_interrupt
from localspec.cli.options import (
    constraint_options,
    model_options,
    pop_runtime_options,
    sampling_options,
)
from localspec.cli.output import Output
from localspec.cli.prompt import as_prompt, read_prompt
from localspec.control.adaptive import Explanation
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Generation
from localspec.generation_config import DEFAULT_MAX_TOKENS, GenerationConfig


@click.command()
@click.argument("prompt", required=False)
@model_options
@click.option(
    "-n",
    "--max-tokens",
    type=int,
    default=DEFAULT_MAX_TOKENS,
    show_default=True,
    help="Longest answer, in tokens.",
)
@click.option("--min-tokens", type=int, help="Do not end before. [default: 0]")
@click.option("--ignore-eos", is_flag=True, help="Do not end by itself.")
@sampling_options
@click.option(
    "--chat/--raw",
    "chat",
    default=None,
    help="Answer the prompt as a chat turn, or continue it. "
    "[default: chat if the model has a template; raw for the bundled pair]",
)
@constraint_options
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option(
    "--logprobs",
    "top_logprobs",
    type=int,
    metavar="N",
    help="With --json, the log-probability of each token and of the N likeliest.",
)
@click.option("--stats", is_flag=True, help="Afterwards, counts and times on stderr.")
@click.option(
    "--remember",
    is_flag=True,
    help="Copy from earlier texts too, and keep this one for later; `localspec forget` deletes.",
)
@click.option("--explain", is_flag=True, help="Why each step is drafted as it is, on stderr.")
@click.option("--color", is_flag=True, help="Show which tokens were drafted.")
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Write as it comes, or all at the end; with --json, an object per token. "
    "[default: stream text, not JSON]",
)
def generate(
    *,
    prompt: str | None,
    model: str | None,
    draft: str,
    chat: bool | None,
    stream: bool | None,
    as_json: bool,
    color: bool,
    stats: bool,
    explain: bool,
    remember: bool,
    **options: Any,
) -> int:
    """Generate text from PROMPT, or standard input, or both.

    With no model named, a tiny bundled pair continues Python code.
    """
    text = read_prompt(prompt)
    runtime = pop_runtime_options(options)
    options["logprobs"] = options["top_logprobs"] is not None
    output = Output(color=color)
    # A wrong value is refused before a model is loaded, which can take a while.
    GenerationConfig.of(**options)
    with on_interrupt(exit_at_once):
        engine = load(model, draft, remember=remember, **runtime)
    with engine:
        cancel = threading.Event()
        running = engine.stream(
            as_prompt(engine, text, chat),
            cancel=cancel,
            explain=_explaining(output) if explain else None,
            **options,
        )
        with on_interrupt(cancel_first(cancel)):
            output.note(engine_line(engine, running, bundled=model is None))
            for note in engine.notes:
                output.note(note)
            if engine.plan_ignored:
                output.note(engine.plan_ignored)
            if color and (as_json or not output.color):
                reason = "JSON has none" if as_json else output.color_off_because
                output.note(f"colours are off: {reason}")
            write = _write_json if as_json else _write_text
            write(engine, running, output, stream=not as_json if stream is None else stream)
    if running.stop_reason == "context":
        output.note(f"the context of {engine.context} tokens is full; --ctx makes it larger")
    if engine.drafter_set.past and engine.drafter_set.past.problem:
        output.note(engine.drafter_set.past.problem)
    if stats:
        output.note(stats_line(running, engine.equal_digits))
    return INTERRUPTED if running.stop_reason == "cancelled" else 0


def _explaining(output: Output) -> Callable[[Explanation], None]:
    return lambda decision: output.note(decision_line(decision))


def _write_text(engine: Engine, running: Generation, output: Output, *, stream: bool) -> None:
    if output.color:
        output.legend(engine.drafter_set.names)
    if not stream:
        running.result()
    for token in running if stream else running.tokens:
        output.token(token.text, token.origin)
    output.data("\n")


def _write_json(engine: Engine, running: Generation, output: Output, *, stream: bool) -> None:
    if stream:
        for token in running:
            output.record(token_record(token))
    output.record(generation_record(engine, running))
