"""`localspec demo`: plain and speculative decoding side by side, on the bundled pair scaled up."""

import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter
from typing import Any

import click
import psutil

from localspec.bench import SETS
from localspec.cli import demo_output
from localspec.cli.chat import chat
from localspec.cli.demo_comparison import DemoComparison
from localspec.cli.demo_screen import screen_for
from localspec.cli.demo_tasks import DemoTask, demo_tasks
from localspec.cli.interrupt import cancel_first, exit_at_once, on_interrupt
from localspec.cli.options import stacked, threads_option
from localspec.cli.output import Output, write_to_stderr
from localspec.cli.settings import CommandDefaults, Settings
from localspec.cli.utf8_text import utf8_text
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama.devices import usual_gpus
from localspec.scaling import demo_pair, demo_size
from localspec.scaling.demo_pair import DemoPair
from localspec.scaling.demo_size import DemoSize
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.format import format_bytes

_SEED = 6
# Seconds over which other programs' use of the processor is measured.
_BUSY_SECONDS = 0.3
# A pair of more bytes is written only after asking.
_ASK_FROM = 10**9

_pair_options = stacked(
    click.option(
        "--size",
        metavar="N",
        help="Parameters of the scaled target: 0.1B, 0.5B, 3B, ... [default: the smallest size at "
        "which drafts pay on this machine; the first run measures it]",
    ),
    click.option(
        "--type",
        "type_name",
        type=click.Choice(demo_pair.TYPES, case_sensitive=False),
        default="F16",
        show_default=True,
        metavar="|".join(demo_pair.TYPES),
        help="Type of the target's weights. On a CPU, drafts gain most with F16.",
    ),
    click.option("--yes", is_flag=True, help="Write a pair of more than 1 GB without a question."),
    click.option("--remove", is_flag=True, help="Delete all scaled pairs of the demo, and end."),
    click.option("--chat", "only_chat", is_flag=True, help="Open the chat on the pair, and end."),
)

_text_options = stacked(
    click.option(
        "--prompt",
        metavar="TEXT",
        callback=utf8_text,
        help="Use this prompt. [default: an edit, code, a sample]",
    ),
    click.option(
        "--set",
        "prompt_set",
        metavar="|".join(SETS),
        help="Use the first prompt of a set.",
    ),
    click.option(
        "-n", "--tokens", type=int, default=200, show_default=True, help="Longest text, in tokens."
    ),
    click.option("--temperature", type=float, help="0 is greedy. [default: 0; 0.8 for the sample]"),
    click.option(
        "--seed",
        type=int,
        default=_SEED,
        show_default=True,
        help="The same seed gives the same text.",
    ),
)


@click.command()
@_pair_options
@_text_options
@threads_option
@click.option(
    "--reproducible",
    is_flag=True,
    help="Make the text independent of drafting, bit for bit. This costs some speed.",
)
def demo(
    *,
    size: str | None,
    type_name: str,
    yes: bool,
    remove: bool,
    only_chat: bool,
    prompt: str | None,
    prompt_set: str | None,
    threads: int | None,
    reproducible: bool,
    tokens: int,
    temperature: float | None,
    seed: int,
) -> int:
    """Watch plain and speculative decoding of the same prompts, side by side.

    Nothing is downloaded. The bundled pair is scaled up: each token then takes as long as in a real
    model of that size, and the text stays that of the small model. Speed, acceptance and the ratio
    are real. The scaled pair is written once, usually 0.2 GB; --remove deletes it.
    """
    output = Output(color=True)
    if remove:
        output.note(f"{format_bytes(demo_pair.remove())} deleted")
        return 0
    tasks = demo_tasks(prompt, prompt_set, temperature)
    options = {"max_tokens": tokens, "seed": seed}
    for task in tasks:
        GenerationConfig.of(temperature=task.temperature, **options)
    pair = _pair(size, type_name, threads, output, yes=yes)
    if pair is None:
        return 0
    if not only_chat:
        output.note(demo_output.LOADING)
        with on_interrupt(exit_at_once):
            comparison = DemoComparison(
                pair.target, pair.drafter, threads=threads, reproducible=reproducible
            )
        with comparison:
            code = _run(comparison, tasks, options, output)
        if code or not _chat_wanted(demo_output.chat_command(size, type_name, threads), output):
            return code
    return _open_chat(pair, threads)


def _pair(
    size: str | None, type_name: str, threads: int | None, output: Output, *, yes: bool
) -> DemoPair | None:
    """Return the pair of the size asked for, else of the smallest that pays; written if missing.

    Return None if the user does not want it written.
    """
    if size is None:
        pair = _smallest_pair(type_name, threads, output)
    else:
        pair = DemoPair(size, type_name)
        if pair.missing > _ASK_FROM and not (yes or _agreed(pair, output)):
            output.note("nothing was written")
            return None
    _write(pair, output)
    for line in demo_output.model_lines(pair):
        output.note(line)
    return pair


def _smallest_pair(type_name: str, threads: int | None, output: Output) -> DemoPair:
    """Return the smallest pair on which drafts pay, or the best; found now or by an earlier run."""
    unjudged: list[DemoPair] = []

    def write(pair: DemoPair, before: DemoSize | None) -> None:
        if before:
            output.note(demo_output.too_small_line(before))
        unjudged[:] = [pair] if pair.missing else []
        # An interrupt as an exception, which deletes the unfinished file.
        with on_interrupt(signal.default_int_handler):
            _write(pair, output)

    def delete_and_exit(number: int, frame: object) -> None:
        for pair in unjudged:
            with suppress(OSError):  # on Windows it is in use
                pair.delete()
        exit_at_once(number, frame)

    found = demo_size.remembered(type_name, threads)
    if found is None:
        with on_interrupt(delete_and_exit):
            found = demo_size.find_size(type_name, threads, write)
    if not found.pays:
        output.note(demo_output.nothing_pays_line(found, on_gpu=bool(usual_gpus())))
    return DemoPair(found.parameters, type_name)


def _write(pair: DemoPair, output: Output) -> None:
    """Write the pair if it is missing, and say so."""
    if pair.missing:
        output.note(demo_output.writing_line(pair))
        began = perf_counter()
        pair.write()
        seconds = perf_counter() - began
        output.note(f"written in {seconds:.1f} s; `localspec demo --remove` deletes it")
        pair.missing = 0


def _agreed(pair: DemoPair, output: Output) -> bool:
    """Ask whether the files may be written. Raises InvalidValueError without a terminal."""
    if not (sys.stdin and sys.stdin.isatty()):
        folder = demo_output.short_path(pair.folder)
        raise InvalidValueError(
            f"the demo writes {format_bytes(pair.missing)} to {folder}, and "
            "there is no terminal to ask at; give --yes to agree, or leave out --size"
        )
    output.note(demo_output.writing_line(pair))
    return click.confirm(f"write {format_bytes(pair.missing)}?", default=False, err=True)


def _run(
    comparison: DemoComparison, tasks: Sequence[DemoTask], options: dict[str, Any], output: Output
) -> int:
    """Decode every task both ways, show the table, and return the exit code."""
    for note in comparison.plain.engine.notes:
        output.note(note)
    if warning := demo_output.busy_warning(psutil.cpu_percent(_BUSY_SECONDS)):
        output.note(warning)
    cancel = threading.Event()
    results = []
    with on_interrupt(cancel_first(cancel)):
        comparison.warm_up(cancel)
        for task in tasks:
            output.note(task.heading)
            _race(comparison, task, options, cancel, output)
            if cancel.is_set():
                return INTERRUPTED
            results.append(demo_output.result_of(task.name, comparison))
    output.data(demo_output.results_text(results))
    for remark in demo_output.remark_lines(results):
        output.note(remark)
    return 0


def _race(
    comparison: DemoComparison,
    task: DemoTask,
    options: dict[str, Any],
    cancel: threading.Event,
    output: Output,
) -> None:
    """Decode a task plainly, then with drafts, and show both texts."""
    engine = comparison.plain.engine
    prompt = task.prompt_for(engine)
    # A model that continues texts does not know where to end; an answer has an end.
    ignore_eos = not isinstance(prompt, list)
    shown = prompt if isinstance(prompt, str) else f"{task.question}\n\n"
    settings = {**options, "temperature": task.temperature, "ignore_eos": ignore_eos}
    with screen_for(output, comparison, shown) as screen:
        for decoding, token in comparison.run(prompt, cancel, **settings):
            screen.show(decoding, token)


def _chat_wanted(command: str, output: Output) -> bool:
    """Say how to talk with the pair; on a terminal, return whether the user presses Enter."""
    output.note(f"talk with this pair: {command}")
    if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        return False
    _forget_typed()
    output.note("press Enter to open that chat now, or Ctrl-C to end")
    try:
        return sys.stdin.readline() == "\n"
    except KeyboardInterrupt:
        write_to_stderr("\n")
        return False


def _open_chat(pair: DemoPair, threads: int | None) -> int:
    """Run `localspec chat` on the pair; return its exit code."""
    arguments = [str(pair.target), "--draft", f"suffix,{pair.drafter}"]
    arguments += [] if threads is None else ["--threads", str(threads)]
    # Options have their defaults, and the user's settings, as on the command line.
    parent = click.get_current_context().parent
    defaults: Any = CommandDefaults("chat", Settings())
    with chat.make_context("chat", arguments, parent=parent, default_map=defaults) as context:
        return int(chat.invoke(context) or 0)


def _forget_typed() -> None:
    """Forget keys that were pressed while the demo ran: they were no answer."""
    with suppress(ImportError, OSError):
        import termios  # there is none on Windows

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
