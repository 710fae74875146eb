"""`localspec trim`: a head with fewer tokens, what it saves and what acceptance that costs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from localspec.bench import default_sets, load_tasks
from localspec.cli.chats import CHATS, no_conversations, opened_archive
from localspec.cli.interrupt import exit_at_once, on_interrupt
from localspec.cli.options import (
    comma_separated,
    context_option,
    gpu_layers_option,
    stacked,
    threads_option,
)
from localspec.cli.output import Output
from localspec.cli.prompt_set_options import prompt_set_options
from localspec.cli.status_line import StatusLine
from localspec.cli.trim_output import trim_record, trim_text
from localspec.cli.trim_progress import TrimProgress
from localspec.conversion.draft_trial import DraftTrial, try_drafts
from localspec.conversion.target import TargetFile
from localspec.conversion.token_counts import Counts, count_ids, count_texts, texts_in
from localspec.conversion.trim import DraftHead, add_trimmed, needed_tokens, trim
from localspec.engine.engine import Engine, load
from localspec.engine.prompt import Prompt
from localspec.errors import InvalidValueError
from localspec.models.locate import locate
from localspec.utils.shell import command_line

_what_options = stacked(
    click.option(
        "--target",
        required=True,
        metavar="TARGET",
        help="The model that the head was made for: a pair, user/repo[:quant] or a GGUF's path.",
    ),
    click.option(
        "--tokens",
        type=int,
        help="How many tokens are kept. [default: a quarter, at most 32768]",
    ),
    click.option(
        "--count",
        "counted",
        multiple=True,
        metavar=f"{CHATS}|FILE",
        help="Texts whose tokens matter: a file, a folder, or `chats` for your conversations; may "
        "be given several times. [default: what the target writes to half of the prompts]",
    ),
    click.option(
        "-o",
        "--output",
        "out",
        metavar="FILE",
        help="The GGUF to write. [default: beside the head, or of one "
        "that was pulled among localspec's own files]",
    ),
)


@click.command("trim")
@click.argument("head")
@_what_options
@prompt_set_options
@context_option
@gpu_layers_option
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not lines.")
def trim_command(
    *,
    head: str,
    target: str,
    tokens: int | None,
    counted: Sequence[str],
    out: str | None,
    sets: str | None,
    file: str | None,
    as_json: bool,
    **runtime: Any,
) -> None:
    """Cut the vocabulary of a head to the tokens that matter.

    HEAD is an EAGLE-3, DFlash or DSpark head: a path, or user/repo:FILE. The head stays as it is,
    and a smaller one is written, which reads less for each drafted token. Both then draft for texts
    that the target writes to prompts, and what the cut saves and costs is shown. Tokens that the
    chat template or the end of a text needs are always kept.
    """
    output = Output()
    path, model = locate(head), locate(target)
    draft = DraftHead(path, TargetFile(model))
    names = comma_separated(sets) if sets else [] if file else default_sets(model)
    tasks = load_tasks(names, Path(file) if file else None)
    with on_interrupt(exit_at_once):
        engine = load(model, str(path), **runtime)
    with engine:
        engine.slots.threads_are_fixed = True
        for note in engine.notes:
            output.note(note)
        prompts = [task.prompt_for(engine) for task in tasks]
        with StatusLine() as status:
            # Each prompt is measured with both heads, or every second one is counted instead.
            texts = 2 * len(prompts) if counted else len(prompts) + len(prompts) // 2
            progress = TrimProgress(output, status, texts)
            counts, prompts = _counts(engine, counted, prompts, output, progress)
            needed = needed_tokens(draft.target, engine.model.end_tokens)
            done = trim(draft, counts, needed, tokens, Path(out) if out else None)
            output.note(f"measuring both heads, with {len(prompts)} of the prompts")
            before, after = _trials(engine, done.path, prompts, progress)
            plain = engine.plain_seconds or 0.0
    is_taken = add_trimmed(done, draft, before, after, plain)
    if as_json:
        output.record(trim_record(done, before, after))
    else:
        for line in trim_text(done, before, after):
            output.note(line)
        output.data(f"{done.path}\n")
    if is_taken:
        output.note("--draft auto takes it for this model from now on")
    command = ["localspec", "generate", "-m", target, "--draft", str(done.path)]
    output.note(f"next: {command_line(command)}")


def _counts(
    engine: Engine,
    counted: Sequence[str],
    prompts: list[Prompt],
    output: Output,
    progress: TrimProgress,
) -> tuple[Counts, list[Prompt]]:
    """The counts of all tokens, and the prompts that are left to measure with."""
    if counted:
        counts = count_texts(engine.model, _texts(counted))
        if not counts.any():
            named = " and ".join(counted)
            raise InvalidValueError(f"--count {named}: there is no text in it; name another file")
        return counts, prompts
    if len(prompts) < 2:
        raise InvalidValueError(
            "there is one prompt, and one is needed to count and one to measure; name texts with "
            "--count, or more prompts"
        )
    output.note("counting what the target writes to half of the prompts; --count counts your texts")
    progress.enter("counting tokens")
    written = try_drafts(engine, prompts[::2], progress)
    n_vocab = engine.model.n_vocab
    return np.sum([count_ids(n_vocab, ids) for ids in written.texts], axis=0), prompts[1::2]


def _texts(counted: Sequence[str]) -> Iterator[str]:
    for each in counted:
        if each == CHATS:
            with opened_archive() as archive:
                chats = archive.contents()
            if not chats:
                raise no_conversations("--count")
            yield from chats
        else:
            yield from texts_in(Path(each))


def _trials(
    engine: Engine, trimmed: Path, prompts: Sequence[Prompt], progress: TrimProgress
) -> tuple[DraftTrial, DraftTrial]:
    """What both heads draft for the same texts."""
    progress.enter("measuring the whole head")
    before = try_drafts(engine, prompts, progress)
    progress.enter("measuring the trimmed head")
    engine.switch(draft=str(trimmed))
    return before, try_drafts(engine, prompts, progress)
