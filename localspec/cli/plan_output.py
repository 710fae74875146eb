"""What `localspec plan` shows: a table for people, a record for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from localspec.cli.plan_users import users_lines, users_record
from localspec.cli.table import table_text
from localspec.drafters.spec import AUTO
from localspec.forecast.clairvoyant_text import clairvoyant_lines, clairvoyant_record
from localspec.forecast.forecast import ConfigurationForecast, Forecast
from localspec.forecast.users import PLAIN
from localspec.forecast.without_flash import WithoutFlash
from localspec.generation_config import GenerationConfig
from localspec.loading.acceptance_priors import StoredForecast
from localspec.utils.shell import command_line

_HEADER = ("drafter", "rule", "depth", "x plain", "95 %", "tok/step", "accept", "ms/step", "")
_RIGHT = {"depth", "x plain", "tok/step", "accept", "ms/step"}

_BUSY = (
    "to type: nothing for now, as what is fastest cannot be told on a busy machine; plan again "
    "when it is quiet"
)


def forecast_text(
    found: Forecast,
    *,
    everything: bool,
    typed: Mapping[str, str] | None = None,
    busy: bool = False,
    exhausted: bool = False,
) -> str:
    """Return the table, the fastest line first, what to type, and the measurements it rests on.

    everything: show every depth, not the best ones only. typed: what to type for the drafters that
    are files, by name. busy: whether other programs used so much of the machine that nobody knows.
    exhausted: whether all prompts were asked.
    """
    lines = found.configurations if everything else found.best_depths()
    best = found.best if _is_sure(found.best) and not busy else None
    rows = [_cells(line, best=line is best) for line in lines]
    users = users_lines(found.users, everything=everything)
    decision = _BUSY if busy else decision_line(found.best, typed or {}, exhausted=exhausted)
    table = table_text(_HEADER, rows, _RIGHT)
    return "\n".join([table, decision, *_evidence(found), *users]) + "\n"


def decision_line(
    best: ConfigurationForecast, typed: Mapping[str, str], *, exhausted: bool = False
) -> str:
    """Return what to type for the fastest configuration. typed, exhausted: of `forecast_text`."""
    if best.drafter == PLAIN:
        return "to type: nothing, as auto hardly drafts where plain is fastest; or --draft none"
    if not _is_sure(best):
        more = "prompts (--set, --prompts)" if exhausted else "texts (--answers)"
        return (
            f"to type: nothing, as {best.drafter} may be no faster than plain; more {more} would "
            "tell"
        )
    if best.drafter == AUTO:
        return "to type: nothing, as auto is the default"
    options = ["--draft", typed.get(best.drafter, best.drafter), "--depth", str(best.depth)]
    if best.rule not in (None, GenerationConfig().rule):
        options += ["--rule", str(best.rule)]
    return f"to type: {command_line(options)}, with generate and chat; without it auto drafts"


def _is_sure(line: ConfigurationForecast) -> bool:
    """Whether a configuration is faster than plain decoding, or is plain decoding."""
    return line.drafter == PLAIN or line.speed_up.is_above(1)


def _cells(line: ConfigurationForecast, *, best: bool) -> tuple[str, ...]:
    return (
        line.drafter,
        line.rule or "-",
        "-" if line.depth is None else str(line.depth),
        f"{line.speed_up.value:.2f}",
        str(line.speed_up),
        f"{line.tokens_per_step.value:.2f}",
        "-" if line.acceptance is None else f"{line.acceptance:.0%}",
        f"{1000 * line.seconds_per_step:.2f}",
        "<- best" if best else "",
    )


def _evidence(found: Forecast) -> list[str]:
    costs = found.costs
    widths = [width for width in (1, 2, 4, 8, 16) if width in costs.passes]
    passes = " ".join(f"{width}: {1000 * costs.passes[width]:.2f}" for width in widths)
    rates = " · ".join(f"{name} {rate:.0%}" for name, rate in found.rates.items())
    drafts = " · ".join(
        f"{name} {1000 * cost.first:.3f} + {1000 * cost.further:.3f} per further token"
        for name, cost in costs.drafters.items()
    )
    return [
        f"plain decoding: {1 / costs.plain:.1f} tok/s in {found.answers} texts, "
        f"{found.tokens} tokens",
        f"ms of a pass by rows: {passes}; {1000 * costs.switch:.2f} more after one of other "
        f"rows; beside it {1000 * costs.host:.2f} per token",
        f"ms of a draft: {drafts}",
        f"right at any place: {rates or '-'}",
        *(clairvoyant_lines(found.clairvoyant) if found.clairvoyant else ()),
        *([_flash_line(found.flash)] if found.flash else ()),
    ]


def _flash_line(found: WithoutFlash) -> str:
    """What passes would take without flash attention."""
    rows = " ".join(f"{rows}: {ratio:.2f}" for rows, ratio in found.passes.items())
    return (
        f"without flash attention (--flash-attn off), behind {found.tokens:,} tokens: a pass takes "
        f"so many times as long, by rows: {rows}; reading the text: {found.reading:.2f}"
    )


def forecast_record(
    found: Forecast, kept: StoredForecast, target: Path, drafters: Sequence[Path]
) -> dict[str, Any]:
    """Return the object that `--json` prints: every line, the measurements, the stored plan."""
    costs = found.costs
    return {
        "model": {"target": str(target), "drafter": str(drafters[0]) if drafters else None},
        "lines": [_line_record(line) for line in found.configurations],
        "answers": found.answers,
        "tokens": found.tokens,
        "rates": found.rates,
        "without_flash_attention": found.flash and asdict(found.flash),
        "clairvoyant": found.clairvoyant and clairvoyant_record(found.clairvoyant),
        "users": users_record(found.users),
        "seconds": {
            "plain_token": costs.plain,
            "host_per_token": costs.host,
            "switch": costs.switch,
            "passes": {str(rows): seconds for rows, seconds in costs.passes.items()},
            "drafters": {
                name: {"first": cost.first, "further": cost.further, "reading": cost.reading}
                for name, cost in costs.drafters.items()
            },
        },
        "plan": asdict(kept),
    }


def _line_record(line: ConfigurationForecast) -> dict[str, Any]:
    return {
        "drafter": line.drafter,
        "rule": line.rule,
        "depth": line.depth,
        "speed_up": asdict(line.speed_up),
        "tokens_per_step": asdict(line.tokens_per_step),
        "acceptance": line.acceptance,
        "seconds_per_step": line.seconds_per_step,
    }
