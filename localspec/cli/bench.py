"""`localspec bench`: measures plain decoding, each drafter and `auto`, by turns."""

import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from localspec.bench import (
    SETS,
    Conditions,
    LoadedSweep,
    Report,
    Sweep,
    Task,
    build_report,
    html_page,
    load_tasks,
    require_same_texts,
    run_rounds,
    tokenize_prompts,
)
from localspec.cli.bench_output import report_text, with_progress
from localspec.cli.interrupt import INTERRUPTED, cancel_first, exit_at_once, on_interrupt
from localspec.cli.options import (
    comma_separated,
    gpu_layers_option,
    model_option,
    sampling_options,
    stacked,
    threads_option,
)
from localspec.cli.output import Output
from localspec.cli.prompt_set_options import prompt_set_options
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig, require
from localspec.gguf.reader import read_header
from localspec.loading.config import RuntimeConfig
from localspec.models.locate import locate


def _depths(value: str) -> list[int | None]:
    try:
        return [None if each == "auto" else int(each) for each in comma_separated(value)] or [None]
    except ValueError as error:
        raise InvalidValueError(
            f"depth is {value!r}; it must be auto, a number, or several with commas between"
        ) from error


_what_options = stacked(
    model_option,
    click.option(
        "--draft", metavar="MODEL", help="The drafter. [default: the target's own, if one is known]"
    ),
    click.option(
        "--drafts",
        metavar="LIST",
        help="What to compare with plain decoding, with commas between: suffix, lookup, ngram, "
        "model (the drafter), auto, or other models. [default: all there are]",
    ),
    click.option(
        "--depth",
        "depths",
        default="auto",
        show_default=True,
        metavar="auto|N,...",
        callback=lambda _context, _option, value: _depths(value),
        help="Tokens per draft; with several, each is compared.",
    ),
    prompt_set_options,
    click.option(
        "-n", "--tokens", type=int, default=96, show_default=True, help="Tokens of each text."
    ),
    click.option("--rounds", type=int, default=3, show_default=True, help="How often all is run."),
)

_how_options = stacked(
    click.option(
        "--ctx", "context", type=int, help="Tokens of context. [default: as many as are needed]"
    ),
    gpu_layers_option,
    threads_option,
    click.option(
        "--reproducible",
        is_flag=True,
        help="Texts do not depend on drafting in any digit, at some cost.",
    ),
    click.option(
        "--verify",
        is_flag=True,
        help="Exit with 7 unless all texts equal those of plain decoding. Implies --reproducible.",
    ),
    click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table."),
    click.option("--html", metavar="FILE", help="Also write a page with plots: one file."),
)


@click.command()
@_what_options
@sampling_options
@_how_options
def bench(
    *,
    model: str | None,
    draft: str | None,
    drafts: str | None,
    depths: list[int | None],
    sets: str | None,
    file: str | None,
    tokens: int,
    rounds: int,
    context: int | None,
    gpu_layers: int | None,
    threads: int | None,
    reproducible: bool,
    verify: bool,
    as_json: bool,
    html: str | None,
    **options: Any,
) -> int:
    """Measure plain decoding against each drafter, and against `auto`.

    All take turns on the same prompts, and each text has the same number of tokens. Shown are
    medians, with 95 % intervals over prompts. Tokens per second are those of generation: reading
    the prompt counts for drafters, not for the target. What a drafter learns of how far it can be
    trusted stays from text to text, as in a session; the texts themselves are forgotten. Ctrl-C
    ends it and keeps what was measured.
    """
    output = Output()
    require("rounds", rounds, 1)
    require("tokens", tokens, 1)
    options |= {"max_tokens": tokens, "ignore_eos": True}
    settings = _checked(options, depths, verify=verify)
    page_file, tasks = _writable(html), _tasks(sets, file)
    sweep = Sweep(_path(model), _path(draft), comma_separated(drafts or "") or None, depths)
    runtime = RuntimeConfig(context, gpu_layers, threads, None, reproducible or verify)
    cancel = threading.Event()
    with ExitStack() as stack:
        with on_interrupt(exit_at_once):
            loaded = stack.enter_context(sweep.load(runtime, tasks, tokens))
            prompts = tokenize_prompts(loaded.plain, tasks, tokens)
        for reason in loaded.left_out:
            output.note(reason)
        running = run_rounds(
            loaded.configurations,
            prompts,
            rounds=rounds,
            options=options,
            seed=settings.seed,
            cancel=cancel,
        )
        count = rounds * len(tasks) * len(loaded.configurations)
        with on_interrupt(cancel_first(cancel)):
            runs = list(with_progress(running, tasks, count))
        conditions = _conditions(loaded, runtime, settings, rounds, tasks)
        result = build_report(loaded, tasks, runs, conditions, interrupted=cancel.is_set())
    _write(result, output, page_file, as_json=as_json)
    if verify:
        count = require_same_texts(runs, tasks)
        output.note(f"{count} texts equal those of plain decoding, token for token")
    return INTERRUPTED if result.interrupted else 0


def _checked(
    options: dict[str, Any], depths: Sequence[int | None], *, verify: bool
) -> GenerationConfig:
    """Return the settings of all texts. Raises InvalidValueError, before a model is loaded."""
    for depth in depths:
        settings = GenerationConfig.of(**options, depth=depth)
    if verify and not settings.verification.same_text:
        raise InvalidValueError(
            f"--verify compares texts, and rule {settings.rule} does not keep the text of a seed; "
            "use --rule coupled"
        )
    return settings


def _tasks(sets: str | None, file: str | None) -> list[Task]:
    names = comma_separated(sets or "") or ([] if file else [*SETS])
    return load_tasks(names, Path(file) if file else None)


def _path(name: str | None) -> Path | None:
    return None if name is None else locate(name)


def _writable(html: str | None) -> Path | None:
    if not html:
        return None
    path = Path(html)
    if path.is_dir() or not path.parent.is_dir():
        raise InvalidValueError(f"--html {html}: it must be a file in a folder that exists")
    return path


def _conditions(
    sweep: LoadedSweep,
    runtime: RuntimeConfig,
    settings: GenerationConfig,
    rounds: int,
    tasks: Sequence[Task],
) -> Conditions:
    model = sweep.plain.model
    return Conditions(
        tokens=settings.max_tokens,
        rounds=rounds,
        seed=settings.seed,
        rule=settings.rule,
        temperature=settings.params(read_header(model.path).metadata).temperature,
        context=sweep.plain.context,
        threads=runtime.threads_of(model),
        gpu_layers=runtime.gpu_layers,
        reproducible=runtime.reproducible,
        prompts=dict(Counter(task.set for task in tasks)),
    )


def _write(result: Report, output: Output, page_file: Path | None, *, as_json: bool) -> None:
    if as_json:
        output.record(result.as_dict())
    elif result.rows:
        output.data(report_text(result))
    else:
        output.note("nothing was measured")
    if page_file:
        try:
            page_file.write_text(html_page(result), encoding="utf-8")
        except OSError as error:
            raise LocalspecError(
                f"--html {page_file}: {error.strerror}; name another file"
            ) from error
        output.note(f"the page is {page_file}")
