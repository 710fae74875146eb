"""`localspec plan`: the speed-up of every drafter, rule and depth, predicted before it is used."""

from pathlib import Path
from typing import Any, cast

import click

from localspec.bench import SETS, Task, default_sets, load_tasks, tokenize_prompts
from localspec.cli.interrupt import exit_at_once, on_interrupt
from localspec.cli.lora_option import lora_option
from localspec.cli.options import (
    DRAFTS,
    comma_separated,
    context_option,
    draft_kv_type_option,
    drafter_place_options,
    flash_attention_option,
    kv_type_option,
    model_option_of,
    pop_runtime_options,
    stacked,
    target_place_options,
    threads_option,
)
from localspec.cli.output import Output
from localspec.cli.plan_output import forecast_record, forecast_text
from localspec.cli.plan_users import answers_for, tasks_for
from localspec.cli.prompt_set_options import prompt_set_options
from localspec.cli.rope_options import rope_options
from localspec.cli.sampling_options import truncation_options
from localspec.cli.users_option import users_option
from localspec.cli.usual_pair import usual_pair
from localspec.control.acceptance import from_end_name
from localspec.engine.engine import Engine, load
from localspec.errors import InvalidValueError
from localspec.forecast.forecast import Forecast, forecast
from localspec.generation_config import GenerationConfig, GenerationOptions, require
from localspec.loading import acceptance_priors, learnt_rates
from localspec.models.bundled_files import name_of
from localspec.utils.busy_cores import BusyCores, busy_line

_MIN_COUNT = 2

_what_options = stacked(
    model_option_of("the demo's scaled pair, else the bundled target"),
    click.option(
        "--draft",
        default="auto",
        show_default=True,
        metavar=DRAFTS,
        help="Drafters that `auto` may choose from. suffix, lookup and ngram are always "
        "predicted; a smaller model is predicted if it is named here or in models.toml.",
    ),
    prompt_set_options,
    click.option(
        "--answers",
        type=int,
        help="How many texts are written, each for another prompt; the sets take turns. More "
        "texts make the intervals narrower. [default: 6, at most one for each "
        "prompt; with --users whole groups of the most]",
    ),
    click.option(
        "-n", "--tokens", type=int, default=96, show_default=True, help="Longest text, in tokens."
    ),
    users_option(
        "Predict too what so many users at once gain, as `bench --users` measures it, such as "
        "1,2,4,8."
    ),
)

_how_options = stacked(
    *truncation_options,
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the first text."),
    click.option(
        "--ignore-eos",
        is_flag=True,
        help="Go on where the model would end the text: as in `bench`, all are equally long.",
    ),
    context_option,
    lora_option,
    *rope_options,
    *target_place_options,
    *drafter_place_options,
    threads_option,
    kv_type_option,
    draft_kv_type_option,
    flash_attention_option,
    click.option("--all", "everything", is_flag=True, help="Show every depth, not only the best."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not a table."),
)


@click.command()
@_what_options
@_how_options
def plan(
    *,
    model: str | None,
    draft: str,
    sets: str | None,
    file: str | None,
    answers: int | None,
    tokens: int,
    users: list[int],
    everything: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Predict what drafting will gain, and store it: `auto` starts from the stored rates.

    Without -m it is for the pair that `bench` measures then: the scaled one that `localspec demo`
    wrote, at temperature 0, else the bundled one.

    The target writes a few texts without drafts, and localspec measures what passes and drafts
    cost. Then it counts which tokens of these texts each drafter would have guessed right: this
    tells how many passes that drafter would save. A head, and a drafter with another vocabulary or
    with drafts of one pass, drafts at every token while the texts are written once more.

    With --users the same texts are dealt out to so many users, who write them side by side in
    simulated time: a real policy for each, the measured costs, and decodes with the rows of all.
    """
    output = Output()
    answers = answers_for(answers, users)
    require("answers", answers, _MIN_COUNT)
    require("tokens", tokens, _MIN_COUNT)
    running = pop_runtime_options(options)
    options["max_tokens"] = tokens
    GenerationConfig.of(**options)
    pair = usual_pair(model)
    if options["temperature"] is None:
        options["temperature"] = pair.temperature
    known = _tasks(pair.target, sets, file)
    tasks = tasks_for(known[:answers], users)
    if pair.note:
        output.note(pair.note)
    with on_interrupt(exit_at_once):
        engine = load(pair.target if model is None else model, pair.drafting(draft), **running)
    with engine:
        if engine.drafter_set.reason:
            output.note(f"draft: {engine.drafter_set.reason}")
        for note in engine.notes:
            output.note(note)
        tokenize_prompts(engine, tasks, 1)  # before the first text: a prompt may be too long
        prompts = [task.prompt_for(engine) for task in tasks]
        if users and (apart := engine.slots.own.loaded.never_shares):
            output.note(apart)
        settings = cast("GenerationOptions", options)
        others = BusyCores()
        found = forecast(engine, prompts, settings, output.note, users=users)
        busy_cores = others.mean()
        busy = busy_line(busy_cores)
        if busy:
            output.note(busy)
        kept = _stored(engine, found, GenerationConfig.of(**options), output)
        files = engine.model.path, engine.drafter_set.model_paths
        measured = engine.drafter_set.measured
        typed = {name: name_of(each.path) for name, each in measured.items()}
    if as_json:
        # Of a busy machine the speeds tell little, which the text says in the place of advice.
        output.record({**forecast_record(found, kept, *files), "busy_cores": busy_cores})
    else:
        exhausted = len(known) <= answers
        output.data(
            forecast_text(
                found, everything=everything, typed=typed, busy=bool(busy), exhausted=exhausted
            )
        )


def _tasks(target: Path, sets: str | None, file: str | None) -> list[Task]:
    """Return all prompts that are named."""
    names = comma_separated(sets or "")
    if sets is None and not file:
        names = default_sets(target)
    tasks = load_tasks(names, Path(file) if file else None)
    if len(tasks) < _MIN_COUNT:
        raise InvalidValueError(
            f"prompts there are: {len(tasks)}, and an interval takes {_MIN_COUNT}; name a larger "
            f"file with --prompts, or a set with --set: {', '.join(SETS)}"
        )
    return tasks


def _stored(
    engine: Engine, found: Forecast, settings: GenerationConfig, output: Output
) -> acceptance_priors.StoredForecast:
    """Store the plan, with a note where it went, or why it cannot be stored."""
    line = found.best
    files = engine.model.path, engine.drafter_set.model_paths
    best = acceptance_priors.BestSetting(line.drafter, line.rule, line.depth, line.speed_up.value)
    temperature = engine.slots.own.sampler(settings, 1).params.temperature
    kept = acceptance_priors.stored_forecast(*files, temperature, found.rates, best)
    if changes := engine.slots.own.loaded.runtime.changes_in_words:
        output.note(f"not stored, as it holds only with {changes}")
        return kept
    for name, (path, way) in engine.drafter_set.learnt.items():
        if any(name in (drafter, from_end_name(drafter)) for drafter in found.rates):
            learnt_rates.forget(engine.model.path, path, temperature, way=way)
    try:
        output.note(f"stored, and `auto` starts from it: {acceptance_priors.store(*files, kept)}")
    except OSError as error:
        output.note(f"the plan cannot be stored: {error.strerror}")
    return kept
