"""`localspec generate`: text to stdout."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from localspec.cli.fetch_offer import offer_fetch
from localspec.cli.file_options import (
    chat_template_option,
    constraint_options,
    copy_from_option,
    mmproj_option,
    prediction_option,
)
from localspec.cli.generate_output import (
    Decisions,
    cut_line,
    drafting_unused,
    engine_line,
    generation_record,
    prompt_notes,
    stats_line,
    template_in_words,
    token_record,
)
from localspec.cli.interrupt import cancel_first, exit_at_once, on_interrupt
from localspec.cli.kept_prompt import KeptPrompt
from localspec.cli.media_options import media_options, require_projector
from localspec.cli.options import (
    keep_option,
    model_options,
    pop_runtime_options,
)
from localspec.cli.output import Output
from localspec.cli.prompt import as_prompt, read_prompt
from localspec.cli.sampling_options import sampling_options
from localspec.cli.status_line import StatusLine, loading_shown
from localspec.cli.thinking_options import (
    pop_template_options,
    template_options,
    thinking_budget_option,
)
from localspec.cli.utf8_text import utf8_text
from localspec.conversation.reasoned_text import ReasonedText
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Token
from localspec.engine.prompt import Chat
from localspec.errors import InvalidValueError
from localspec.generation_config import DEFAULT_MAX_TOKENS, GenerationConfig
from localspec.llama import wait_policy
from localspec.llama.chat_template import start_renderer
from localspec.loading.copy_sources import prediction_unused
from localspec.loading.drawing_ahead import nothing_ahead
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.option_names import have_no_effect
from localspec.utils.running_clock import running_clock

_NO_LIMIT = 2**31 - 1


@click.command()
@click.argument("prompt", required=False, callback=utf8_text)
@model_options
@click.option(
    "-n",
    "--max-tokens",
    type=int,
    callback=lambda _context, _option, value: _longest(value),
    help="Longest answer, in tokens; -1: the rest of the context. [default: -1; "
    f"{DEFAULT_MAX_TOKENS} for a text that is continued]",
)
@click.option("--min-tokens", type=int, help="Shortest answer, in tokens. [default: 0]")
@click.option("--ignore-eos", is_flag=True, help="Go on where the model would end the text.")
@sampling_options
@click.option(
    "--chat/--raw",
    "chat",
    default=None,
    help="Answer the prompt as a chat turn, or continue it. "
    "[default: chat if the model has a template]",
)
@click.option("--system", metavar="TEXT", callback=utf8_text, help="System prompt of a chat turn.")
@media_options
@constraint_options
@template_options
@thinking_budget_option
@click.option(
    "--hide-thinking", "hides", is_flag=True, help="Do not write the reasoning, only the answer."
)
@click.option(
    "--stop",
    multiple=True,
    metavar="TEXT",
    callback=utf8_text,
    help="Stop before this text. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not the text.")
@click.option(
    "--logprobs",
    "top_logprobs",
    type=int,
    metavar="N",
    help="With --json, add the log-probabilities of each token and of the N likeliest.",
)
@click.option("--stats", is_flag=True, help="Print counts and times on stderr at the end.")
@click.option(
    "--remember",
    is_flag=True,
    help="Draft from earlier texts too, and store this one; `localspec forget` deletes them.",
)
@keep_option("Keep on disk what is read of the prompt: another prompt that begins alike goes on.")
@copy_from_option
@prediction_option
@chat_template_option
@mmproj_option
@click.option(
    "--explain",
    is_flag=True,
    help="Print the decision of each step on stderr; on a terminal, after the text.",
)
@click.option("--color", is_flag=True, help="Show which tokens were drafted.")
@click.option(
    "--stream/--no-stream",
    default=None,
    help="Write each token at once, or the text at the end; with --json, an object per token. "
    "[default: stream text, not JSON]",
)
def generate(
    *,
    prompt: str | None,
    model: str | None,
    draft: str,
    chat: bool | None,
    system: str | None,
    stream: bool | None,
    as_json: bool,
    color: bool,
    stats: bool,
    explain: bool,
    remember: bool,
    keep: bool,
    copied_texts: tuple[str, ...],
    chat_template: str | None,
    mmproj: str | None,
    image: Sequence[bytes],
    audio: Sequence[bytes],
    thinking_budget: int | None,
    hides: bool,
    **options: Any,
) -> int:
    """Generate text from PROMPT, or standard input, or both.

    Standard input comes before PROMPT. A loop that reads lines keeps its own with `< /dev/null`.
    With no model named, a tiny bundled pair answers questions about the terminal.
    """
    text = read_prompt(prompt)
    runtime, told = pop_runtime_options(options), pop_template_options(options)
    options["logprobs"] = options["top_logprobs"] is not None
    output = Output(color=color)
    # A wrong value is refused before a model is loaded, which can take a while.
    longest = options["max_tokens"]
    GenerationConfig.of(**{**options, "max_tokens": longest or _NO_LIMIT})
    _require_budget_fits(thinking_budget, options)
    if system and chat is False:
        raise InvalidValueError("--system is for chats, and --raw continues a text; leave one out")
    if (image or audio) and chat is False:
        option = "--image" if image else "--audio"
        raise InvalidValueError(f"{option} is for chats, and --raw continues a text; leave one out")
    offer_fetch(model, draft, output)
    mmproj = require_projector({"--image": image, "--audio": audio}, model, mmproj)
    if chat is not False:
        start_renderer()
    with on_interrupt(exit_at_once), loading_shown():
        engine = load(
            model,
            draft,
            remember=remember,
            copied_texts=copied_texts,
            chat_template=chat_template,
            mmproj=mmproj,
            **runtime,
        )
    running_clock.follow_stops()
    decisions = Decisions(output, after_text=output.one_stream and not as_json)
    with engine:
        cancel = threading.Event()
        media = [*image, *audio]
        variables = told.variables
        asked = as_prompt(engine, text, chat, system=system, variables=variables, media=media)
        if longest == _NO_LIMIT or (longest is None and isinstance(asked, Chat)):
            options["max_tokens"] = engine.context
        kept = KeptPrompt(engine, asked, options) if keep else None
        running = ReasonedText(
            engine,
            asked,
            budget=thinking_budget,
            cancel=cancel,
            explain=decisions.add if explain else None,
            **options,
        )
        with on_interrupt(cancel_first(cancel)):
            notes = [*_first_notes(engine, running, bundled=model is None)]
            limits = hides or thinking_budget is not None
            notes += _useless(engine, options, explain=explain, as_json=as_json)
            whose = template_in_words(engine, chat_template)
            notes += prompt_notes(
                engine, asked, system=system, told=told, whose=whose, limits=limits
            )
            for note in (*notes, *(kept.notes if kept else ())):
                output.note(note)
            if color and (as_json or not output.color):
                reason = "JSON has none" if as_json else output.color_off_because
                output.note(f"colours are off: {reason}")
            _read(running)
            write = _write_json if as_json else _write_text
            streams = not as_json if stream is None else stream
            write(engine, running, output, stream=streams, hides=hides)
        unkept = kept.save(running.stats) if kept else []
    decisions.show()
    if explain and options.get("depth") is not None:
        output.note("--explain has nothing to say at a fixed depth; leave --depth out")
    # What has changed since, such as a drafter whose machine is gone.
    news = [note for note in engine.notes if note not in notes]
    for note in (*news, *unkept, *_last_notes(engine, running, stats=stats, hides=hides)):
        output.note(note)
    return INTERRUPTED if running.stop_reason == "cancelled" else 0


def _longest(asked: int | None) -> int | None:
    """Return the limit of `-n`; -1 is none, as in llama.cpp's programs."""
    if asked is not None and asked < 1 and asked != -1:
        raise InvalidValueError(
            f"max_tokens is {asked}; it must be 1 or more, or -1 for the rest of the context"
        )
    return _NO_LIMIT if asked == -1 else asked


def _first_notes(engine: Engine, running: ReasonedText, *, bundled: bool) -> Iterator[str]:
    """Yield what is said before the text. bundled: whether no model was named."""
    yield engine_line(engine, running, bundled=bundled)
    yield from engine.notes
    if engine.plan_ignored:
        yield engine.plan_ignored
    if why := prediction_unused(running.settings, engine.drafter_set.names):
        yield have_no_effect(["--prediction"], why)


def _useless(
    engine: Engine, options: Mapping[str, Any], *, explain: bool, as_json: bool
) -> Iterator[str]:
    """Yield which options have no effect here."""
    yield from drafting_unused(engine, options, *(["--explain"] if explain else []))
    if options["logprobs"] and not as_json:
        yield "--logprobs has no effect without --json"


def _read(running: ReasonedText) -> None:
    """Evaluate the prompt; a terminal shows how far that is, if it takes a while."""
    with StatusLine() as status:
        for done, total in running.reading():
            status.show(f"reading the prompt, {done:,} of {total:,} tokens")


def _last_notes(
    engine: Engine, running: ReasonedText, *, stats: bool, hides: bool
) -> Iterator[str]:
    """Yield what is said after the text."""
    if running.is_budget_spent:
        yield f"the reasoning was ended: its budget of {running.budget} tokens is used up"
    elif running.budget and running.is_reasoned and not running.thought:
        yield "--thinking-budget had no effect: the model did not reason"
    if cut := cut_line(engine, running):
        yield cut
    elif hides and running.is_thinking:
        yield "there is no answer: the text ended within the reasoning"
    if earlier := engine.drafter_set.earlier:
        earlier.write()
        if earlier.problem:
            yield earlier.problem
    if stats:
        why = nothing_ahead(engine.drafter_set, running.settings.verification, running.stats)
        short_waits = wait_policy.of_process().short_passes
        yield stats_line(running, engine.equal_digits, engine.plain_seconds, why, short_waits)


def _write_text(
    engine: Engine, running: ReasonedText, output: Output, *, stream: bool, hides: bool
) -> None:
    if output.color:
        output.legend(engine.drafter_set.names)
    tokens = _shown(running, hides=hides)
    for token in tokens if stream else list(tokens):
        output.token(token.text, token.origin)
    output.data("\n")


def _write_json(
    engine: Engine, running: ReasonedText, output: Output, *, stream: bool, hides: bool
) -> None:
    for token in _shown(running, hides=hides):
        if stream:
            output.record(token_record(token))
    output.record(generation_record(engine, running, hides=hides))


def _shown(running: ReasonedText, *, hides: bool) -> Iterator[Token]:
    """Yield the tokens of a text, with that part of theirs that is written.

    hides: whether reasoning is left out; a terminal says meanwhile that the model reasons.
    """
    with StatusLine(after=0) as status:
        for token, split in running:
            if split.said or not hides:
                status.end()
            elif running.is_thinking:
                status.show(f"thinking, token {len(running.tokens)}")
            yield replace(token, text=split.said) if hides else token


def _require_budget_fits(budget: int | None, options: Mapping[str, Any]) -> None:
    """Refuse a budget beside what would contradict it."""
    if budget is None:
        return
    if options["grammar"] or options["schema"]:
        raise InvalidValueError(
            "--thinking-budget is given beside --grammar or --schema, which describe the whole "
            "text; leave one of them out"
        )
