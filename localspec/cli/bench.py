"""`localspec bench`: measures plain decoding, each drafter and `auto`, by turns."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from localspec.bench import BenchmarkReport, Run, Task, html_page, require_same_texts
from localspec.cli.bench_choice import ROUNDS, Measurement, choose
from localspec.cli.bench_compare import Earlier, changes_text, compare_option, earlier_of
from localspec.cli.bench_drafters import measure_drafters
from localspec.cli.bench_output import quick_target_line, report_text
from localspec.cli.bench_peer import peer_of, peer_options, require_same_places
from localspec.cli.bench_servers import measure_servers
from localspec.cli.bench_tool import measure_tool
from localspec.cli.bench_users import measured_users_option, require_texts_alone
from localspec.cli.lora_option import lora_option
from localspec.cli.options import (
    comma_separated,
    draft_kv_type_option,
    drafter_place_options,
    flash_attention_option,
    kv_type_option,
    model_option_of,
    pop_runtime_options,
    stacked,
    target_place_options,
    threads_option,
    ubatch_option,
)
from localspec.cli.output import Output
from localspec.cli.page_file import PageFile
from localspec.cli.prompt_set_options import prompt_set_options
from localspec.cli.rope_options import rope_options
from localspec.cli.sampling_options import sampling_options
from localspec.drafters.spec import AUTO
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig, require
from localspec.loading.config import RuntimeConfig
from localspec.utils.exit_codes import INTERRUPTED
from localspec.utils.format import counted


def _depths(value: str) -> list[int | None]:
    try:
        depths = [None if each == "auto" else int(each) for each in comma_separated(value)]
    except ValueError as error:
        raise InvalidValueError(
            f"depth is {value!r}; it must be auto, a number, or several with commas between"
        ) from error
    return list(dict.fromkeys(depths)) or [None]


_what_options = stacked(
    model_option_of("the demo's scaled pair, else the bundled target"),
    click.option(
        "--draft", metavar="MODEL", help="The drafter. [default: the one models.toml names]"
    ),
    click.option(
        "--drafts",
        metavar="LIST",
        help="What to compare with plain decoding, separated by commas: suffix, lookup, ngram, "
        "model (the drafter), auto, or other models. [default: all that are available]",
    ),
    click.option(
        "--depth",
        "depths",
        default="auto",
        show_default=True,
        metavar="auto|N,...",
        callback=lambda _context, _option, value: _depths(value),
        help="Tokens per draft; with several values, each is compared.",
    ),
    prompt_set_options,
    click.option(
        "-n", "--tokens", type=int, default=96, show_default=True, help="Tokens of each text."
    ),
    measured_users_option,
    peer_options,
    click.option(
        "--rounds",
        type=int,
        help=f"How often each configuration runs. [default: {ROUNDS}; 1 on the demo's pair]",
    ),
)

_how_options = stacked(
    click.option(
        "--ctx",
        "context",
        type=int,
        help="Context size in tokens. [default: as large as the prompts need]",
    ),
    lora_option,
    *rope_options,
    *target_place_options,
    *drafter_place_options,
    threads_option,
    kv_type_option,
    draft_kv_type_option,
    flash_attention_option,
    ubatch_option,
    click.option(
        "--reproducible",
        is_flag=True,
        help="Make texts independent of drafting, bit for bit. This costs some speed.",
    ),
    click.option(
        "--verify",
        is_flag=True,
        help="Exit with code 7 if a text differs from plain decoding. Implies --reproducible.",
    ),
    compare_option,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a table."),
    click.option("--html", metavar="FILE", help="Also write an HTML page with plots, in one file."),
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
    users: list[int],
    peer: str | None,
    peer_drafts: str | None,
    rounds: int | None,
    reproducible: bool,
    verify: bool,
    compare: str | None,
    as_json: bool,
    html: str | None,
    **options: Any,
) -> int:
    """Measure plain decoding against each drafter, and against `auto`.

    Without -m it measures the scaled pair that `localspec demo` wrote, briefly and at temperature
    0. If there is none, it measures the bundled pair, which is too fast for drafts to pay.

    All configurations take turns on the same prompts, and all texts have the same number of tokens.
    The table shows geometric means, with 95 % intervals over prompts. Tokens per second are those
    of generation: the time to read the prompt counts for drafters, not for the target. Acceptance
    rates are kept from text to text, as in a session; the texts are not. Ctrl-C stops the benchmark
    and shows what was measured so far.

    With --users it measures several texts written at once, as by `localspec serve`: the speed of
    all users and of each, and how long they wait, in plain decoding and with `auto`.

    With --peer it measures one of llama.cpp's own programs, too, with each of its draft types:
    llama-speculative-simple until the ratio is known within 5 %, at most --rounds times;
    llama-server over HTTP, beside our own server, with as many users as --users says.

    With --compare it also says what has changed since an earlier benchmark of the same models and
    settings, with intervals; without --seed, the seed is that one's too.
    """
    output = Output()
    require("tokens", tokens, 1)
    page_file, earlier = PageFile("--html", html), earlier_of(compare, html)
    if earlier and earlier.now:
        _write_changes(earlier, earlier.now, output, as_json=as_json)
        return 0
    other = peer_of(
        peer, peer_drafts, users, one_text=verify or reproducible, compare=bool(compare)
    )
    choice = choose(
        model=model,
        draft=draft,
        drafts=drafts or (AUTO if users or other else None),
        depths=depths,
        sets=sets,
        file=file,
        rounds=rounds,
    )
    running = pop_runtime_options(options)
    options |= {"max_tokens": tokens, "ignore_eos": True, "seed": _seed(options, earlier)}
    if options["temperature"] is None:
        options["temperature"] = choice.temperature
    settings = _checked(options, depths, verify=verify)
    runtime = RuntimeConfig.of(reproducible=reproducible or verify, **running)
    if other:
        require_same_places(runtime)
        if choice.note:
            output.note(choice.note)
    check, runs = partial(_require_alike, earlier), list[Run]()
    measurement = Measurement(choice, runtime, settings, options, output.note, check)
    if not other:
        result, runs = measure_drafters(measurement, users)
    elif other.program.is_server:
        result = measure_servers(measurement, other)
    else:
        result = measure_tool(measurement, other)
    _write(result, output, page_file, earlier, as_json=as_json)
    if line := quick_target_line(result.rows):
        output.note(line)
    if verify and (line := _verified(result, runs, choice.tasks, alone=bool(users))):
        output.note(line)
    return INTERRUPTED if result.interrupted else 0


def _verified(
    result: BenchmarkReport, runs: Sequence[Run], tasks: Sequence[Task], *, alone: bool
) -> str:
    """Return how many texts are as they must be; "" if it was stopped before any was compared.

    alone: whether texts of users were compared with those alone. Raises ExactnessError for another
    text, and InvalidValueError if there was nothing to compare.
    """
    count = require_texts_alone(result.users) if alone else require_same_texts(runs, tasks)
    if not count:
        if result.interrupted:
            return ""
        raise InvalidValueError(
            "--verify: no text was compared with that of plain decoding, as nothing drafted; name "
            "drafters with --drafts"
        )
    subject = counted(count, "text") + (" of users" if alone else "")
    equal = "equals that" if count == 1 else "equal those"
    others = "written alone" if alone else "of plain decoding"
    return f"{subject} {equal} {others}, token for token"


def _seed(options: Mapping[str, Any], earlier: Earlier | None) -> int | None:
    """The seed that was asked for, else that of the benchmark to compare with."""
    seed: int | None = options["seed"]
    return earlier.seed if earlier and seed is None else seed


def _require_alike(earlier: Earlier | None, nothing: BenchmarkReport) -> None:
    """Refuse what cannot be compared, before anything is measured."""
    if earlier:
        earlier.require_alike(nothing.as_dict())


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


def _write(
    result: BenchmarkReport,
    output: Output,
    page_file: PageFile,
    earlier: Earlier | None,
    *,
    as_json: bool,
) -> None:
    measured = bool(result.rows or result.users or result.served or result.tool)
    if not measured and not as_json:
        output.note("nothing was measured")
    elif not as_json:
        output.data(report_text(result))
    if earlier and measured:
        _write_changes(earlier, result.as_dict(), output, as_json=as_json)
    elif as_json:
        output.record(result.as_dict())
    if page_file:
        page_file.write(html_page(result), output)


def _write_changes(
    earlier: Earlier, now: Mapping[str, Any], output: Output, *, as_json: bool
) -> None:
    """Print what has changed; with --json, the later benchmark and what has changed."""
    found = earlier.changes(now)
    if as_json:
        output.record({**now, "changes": found.as_dict()})
    else:
        output.data(changes_text(found))
