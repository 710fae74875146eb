"""`localspec train`: a drafter for one's own model, from its own file, on this machine."""

import importlib.util
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.interrupt import cancel_first, on_interrupt
from localspec.cli.options import context_option, gpu_layers_option, stacked, threads_option
from localspec.cli.output import Output
from localspec.cli.page_file import PageFile
from localspec.cli.train_output import TrainingProgress, stopped_text, trained_record, trained_text
from localspec.cli.train_page import train_page
from localspec.cli.train_texts import prompts_from
from localspec.distillation.material import TextSource
from localspec.distillation.texts import Stopped
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import require
from localspec.llama.bounds import MOST_THREADS
from localspec.models.locate import locate
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.installer import installer

if TYPE_CHECKING:
    from localspec.distillation.trained import Trained
    from localspec.training.training_request import TrainingRequest

_MOST_GB = 1_000_000
_what_options = stacked(
    click.option(
        "--kind",
        default="draft-model",
        show_default=True,
        metavar="draft-model|mtp|eagle3|medusa|dflash",
        help="What is trained: a small model, or a head that reads the target's hidden rows.",
    ),
    click.option(
        "--from",
        "sources",
        multiple=True,
        metavar="chats|FILE",
        help="What the target answers: `chats` for your conversations, a file or folder of texts, "
        "or a .jsonl of prompts; may be given several times. [default: prompts that come along]",
    ),
    click.option("--minutes", type=float, help="How long all of it may take, about. [default: 30]"),
    click.option("--tokens", type=int, help="Tokens of answers to train on, instead of --minutes."),
    click.option(
        "-o",
        "--output",
        "out",
        metavar="FILE",
        help="The GGUF to write. [default: among localspec's own files]",
    ),
    click.option(
        "--type",
        "type_name",
        default="Q8_0",
        show_default=True,
        metavar="Q8_0|Q4_0|F16|F32",
        help="Type of the matrices.",
    ),
)
_draft_model_options = stacked(
    click.option(
        "--layers", type=int, help="Layers of a draft model. [default: a third of the target's]"
    ),
    click.option(
        "--cut",
        default="auto",
        show_default=True,
        metavar="auto|first|evenly|influence",
        help="Which layers: auto tries the three others on a few texts.",
    ),
)
_head_options = stacked(
    click.option(
        "--from-head",
        "head",
        metavar="FILE",
        help="A head of the kind, to train it further: one that localspec trained, or for mtp any. "
        "[default for mtp: the head in the target's own file, if there is one]",
    ),
)
_run_options = stacked(
    click.option(
        "--seed",
        type=int,
        help="With --tokens the same command then writes the same file, on a CPU; texts are "
        "written without sharing passes, which takes longer.",
    ),
    click.option("--resume", is_flag=True, help="Go on where this training was stopped."),
    click.option("--anew", is_flag=True, help="Begin again where an unfinished one is here."),
    click.option(
        "--device",
        default="auto",
        show_default=True,
        metavar="auto|cuda|mps|cpu",
        help="Where the drafter is trained.",
    ),
    click.option(
        "--cache-gb",
        type=float,
        default=8.0,
        show_default=True,
        help="The most of the disk for what the target computed.",
    ),
    context_option,
    gpu_layers_option,
    threads_option,
)


@click.command("train")
@click.argument("target")
@_what_options
@_draft_model_options
@_head_options
@_run_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a path.")
@click.option(
    "--report",
    metavar="FILE",
    help="Also write an HTML page with plots and samples, in one file; with --resume also of a "
    "training that has ended.",
)
def train_command(*, target: str, as_json: bool, report: str | None, **options: Any) -> int:
    """Train a drafter for a model, from the model itself.

    TARGET answers prompts, and the drafter learns to say what it says. Nothing leaves this machine.
    `--draft auto` finds the drafter from then on. Ctrl-C keeps the best so far; --resume goes on,
    also after a crash.
    """
    output, page_file = Output(), PageFile("--report", report)
    if report and options["out"] and _is_same_file(report, options["out"]):
        raise InvalidValueError(f"--report {report}: -o names the same file; name another file")
    model = locate(target)
    _require_torch()
    # Torch takes seconds to import, and only this command needs it.
    try:
        from localspec.training.own_training import OwnTraining
    except KeyboardInterrupt:
        output.note(stopped_text(0))
        return INTERRUPTED

    request, cancel = _request(model, **options), threading.Event()
    progress = TrainingProgress()
    training = OwnTraining(request, progress, progress.say, cancel)
    with on_interrupt(cancel_first(cancel, lambda: training.abortable.is_running)):
        try:
            done = training.run()
        except (Stopped, KeyboardInterrupt):  # a second Ctrl-C waits for nothing
            progress.end()
            output.note(stopped_text(training.kept))
            return INTERRUPTED
        finally:
            progress.end()
    exit_code = _show(output, done, as_json=as_json)
    if page_file:
        page_file.write(train_page(done), output)
    return exit_code


def _is_same_file(one: str, other: str) -> bool:
    """Whether two names are of one file, which need not exist."""
    return os.path.realpath(one) == os.path.realpath(other)


def _show(output: Output, done: "Trained", *, as_json: bool) -> int:
    for line in trained_text(done):
        output.note(line)
    if as_json:
        output.record(trained_record(done))
    else:
        output.data(f"{done.path}\n")
    return 0 if done.finished else INTERRUPTED


def _request(
    target: Path,
    *,
    kind: str,
    sources: Sequence[str],
    out: str | None,
    type_name: str,
    layers: int | None,
    cut: str,
    head: str | None,
    seed: int | None,
    cache_gb: float,
    context: int | None,
    gpu_layers: int | None,
    threads: int | None,
    **others: Any,
) -> "TrainingRequest":
    from localspec.training.device import use_threads
    from localspec.training.drafter_kind import KindOptions
    from localspec.training.training_request import TrainingRequest

    if threads is not None:
        require("threads", threads, 1, MOST_THREADS)
    if not 0 <= cache_gb <= _MOST_GB:  # nor is NaN
        raise InvalidValueError(f"cache_gb is {cache_gb:g}; it is from 0 to {_MOST_GB:,}")
    use_threads(threads)
    runtime = {"context": context, "gpu_layers": gpu_layers, "threads": threads}
    return TrainingRequest(
        TextSource(target, prompts_from(sources, target), seed, runtime),
        kind,
        # Without their folders: a drafter and a report may be given to others.
        ", ".join(Path(each).absolute().name for each in sources) or "prompts of localspec",
        KindOptions(layers, cut, type_name.upper(), locate(head) if head else None),
        Path(out) if out else None,
        cache=int(cache_gb * 1e9),
        **others,
    )


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise LocalspecError(
            f"training needs torch, which is not installed here: {installer()} 'localspec[train]'"
        )
