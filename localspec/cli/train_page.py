"""The page of `localspec train --report`: one HTML file without any other resource."""

from collections.abc import Sequence
from pathlib import Path

from localspec.bench.page_parts import fact, figure, page, section, table, warning
from localspec.bench.plots import Bar, Column, Line, bar_plot, column_plot, line_plot, shortened
from localspec.bench.svg import escaped, tag
from localspec.cli.output import origin_kind
from localspec.distillation.last_trial import DEPTH, TEMPERATURES, Sample, Trial
from localspec.distillation.trained import Trained
from localspec.utils.format import format_bytes, format_seconds

PLAIN = "none"
COLUMNS = ("drafter", "T", "accepted", "tokens per step", "expected speed", "tok/s here")
# How the chat calls what it colours.
_LEGEND = {"drafted": "drafted and right", "corrected": "corrected", "bonus": "bonus"}


def train_page(done: Trained) -> str:
    """The text of the file."""
    title = f"localspec train: {done.kind} for {done.facts.target}"
    stopped = "Stopped before it ended; this is the best drafter so far."
    return page(
        title,
        *([] if done.finished else [warning(stopped)]),
        *map(fact, facts(done)),
        *_rounds(done),
        *(_trials(done) if done.trials else []),
        *_material(done),
        *(_samples(done) if done.trials else []),
    )


def facts(done: Trained) -> list[str]:
    """What was made of what, and how long it took."""
    about = done.facts
    drafter = [done.path.name, format_bytes(about.size), done.note]
    settings = " ".join(f"--{name} {value}" for name, value in about.settings.items())
    phases = (f"{name} {format_seconds(each)}" for name, each in about.phases.items())
    foreseen = "" if about.foreseen is None else f" ({format_seconds(about.foreseen)} foreseen)"
    taken = f"{format_seconds(about.taken)} from the forecast to the end{foreseen}"
    return [
        f"Drafter: {', '.join(filter(None, drafter))}",
        f"Target: {about.target}, hash {about.target_hash}",
        f"Settings: --kind {done.kind} {settings}",
        f"Time: {taken}; {', '.join(phases)}; trained on {about.device}",
    ]


def _rounds(done: Trained) -> list[str]:
    places = len(done.history[0])
    lines = [
        Line(
            f"token {place + 1}" if places > 1 else "all tokens",
            [rates[place] for rates in done.history],
            1 - 0.7 * place / places,
        )
        for place in range(places)
    ]
    names = ["untrained", *map(str, range(1, len(done.history)))]
    chart = line_plot("Acceptance on held-out texts by round", lines, names)
    about = (
        "How often the target would accept a drafted token behind right ones, by the distributions "
        f"of both on held-out texts, after each round; {done.facts.rounds} rounds were planned. "
        "The best round is kept."
    )
    if places > 1:
        about += " A line for each token of a draft."
    return [section("Acceptance by round", about), tag("figure", chart, class_="wide")]


def _trials(done: Trained) -> list[str]:
    by_temperature = [
        (f"temperature {each:g}", [one for one in done.trials if one.temperature == each])
        for each in TEMPERATURES
    ]
    steps = [_steps(name, trials) for name, trials in by_temperature]
    speeds = [_speeds(name, trials) for name, trials in by_temperature]
    drafting = [each for each in done.trials if each.by_place]
    return [
        section(
            "Beside the drafters there were",
            f"{done.trials[0].prompts} of the held-out prompts, {DEPTH} tokens drafted at a time, "
            "of which the share in the column accepted became text. The expected speed is a "
            "multiple of plain decoding's, with drafts as long as pays most, by the bytes that the "
            "passes of target and drafter read; a very small target, of which reading is the "
            "lesser part of a pass, gains less.",
        ),
        tag("div", *steps, *speeds, class_="charts"),
        table(COLUMNS, [[_cells(each) for each in trials] for _, trials in by_temperature]),
        section(
            "Acceptance by position",
            "The share of drafts whose first, second, ... token became text.",
        ),
        tag("div", *(_positions(each, done.trials) for each in drafting), class_="charts"),
    ]


def _steps(name: str, trials: Sequence[Trial]) -> str:
    most = 1.05 * max(1.0, *(each.tokens_per_step for each in trials))
    bars = [_bar(each, trials, each.tokens_per_step) for each in trials]
    return figure(f"Tokens per step, {name}", bar_plot(f"Tokens per step, {name}", bars, most))


def _speeds(name: str, trials: Sequence[Trial]) -> str:
    most = 1.05 * max(1.0, *(each.expected_speed for each in trials))
    bars = [_bar(each, trials, each.expected_speed, " x") for each in trials]
    label = f"Expected speed, {name}"
    return figure(label, bar_plot(label, bars, most, " x", one=True))


def _bar(trial: Trial, trials: Sequence[Trial], value: float, unit: str = "") -> Bar:
    name = shown_name(trial)
    return Bar(
        name, value, f"{value:.2f}{unit}", f"{name}: {value:.2f}{unit}", _class(trial, trials)
    )


def _class(trial: Trial, trials: Sequence[Trial]) -> str:
    """The colour of a bar; the trained drafter is the first one that was tried."""
    if trial.name == trials[0].name:
        return "auto"
    return "plain" if trial.name == PLAIN else "drafter"


def _positions(trial: Trial, trials: Sequence[Trial]) -> str:
    name = f"{shortened(shown_name(trial), 24)}, T = {trial.temperature:g}"
    columns = [
        Column(str(place), share, f"token {place}: {share:.1%} of drafts")
        for place, share in enumerate(trial.by_place, start=1)
    ]
    label = f"Acceptance by position, {name}"
    return figure(name, column_plot(label, columns, _class(trial, trials)))


def _cells(trial: Trial) -> list[str]:
    return [
        shown_name(trial),
        f"{trial.temperature:g}",
        "-" if trial.name == PLAIN else f"{trial.accepted:.0%}",
        f"{trial.tokens_per_step:.2f}",
        f"{trial.expected_speed:.2f} x",
        f"{trial.tokens_per_second:.1f}",
    ]


def shown_name(trial: Trial) -> str:
    """The name of what was tried, without its folder."""
    return "plain" if trial.name == PLAIN else Path(trial.name).name


def _material(done: Trained) -> list[str]:
    about = done.facts
    trials = f", all else on {done.trials[0].prompts} of them" if done.trials else ""
    return [
        section(
            "What it was trained on",
            f"The target's answers to {about.prompts:,} prompts ({about.texts}): {about.answers:,} "
            f"tokens of answers, {about.tokens:,} with their prompts. The answers to "
            f"{about.held_out:,} other prompts were held out: the acceptance by round was measured "
            f"on them{trials}. The page has no text of what was trained on, and of the held-out "
            "answers those below alone; nothing was sent anywhere.",
        )
    ]


def _samples(done: Trained) -> list[str]:
    own = [each for each in done.trials if each.name == done.trials[0].name]
    legend = (tag("span", text, class_=kind) for kind, text in _LEGEND.items())
    return [
        section(
            "Samples",
            "Held-out answers with the drafts of the trained drafter. Corrected: where a draft was "
            "wrong. Bonus: behind a draft that was right to its end. Without a colour: of steps "
            "without a draft.",
        ),
        tag("p", *legend, class_="legend"),
        *(_sample(each, trial.temperature) for trial in own for each in trial.samples),
    ]


def _sample(sample: Sample, temperature: float) -> str:
    pieces = (
        tag("span", escaped(text), class_=origin_kind(origin))
        for text, origin in sample.pieces
        if text
    )
    caption = escaped(f"T = {temperature:g}: {sample.prompt.strip()}")
    written = tag("div", "".join(pieces), class_="written")
    return tag("figure", tag("figcaption", caption), written, class_="sample")
