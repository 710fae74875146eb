"""`localspec audit`: checks that a text is what its seed gives."""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from localspec.cli.generate_output import engine_line, generation_record
from localspec.cli.lora_option import lora_option
from localspec.cli.options import (
    DRAFTS,
    pop_runtime_options,
    stacked,
    target_place_options,
    threads_option,
)
from localspec.cli.output import Output
from localspec.cli.prompt import as_prompt
from localspec.cli.settings import on_command_line
from localspec.cli.utf8_text import utf8_text
from localspec.conversation.reasoned_text import INSERTED, ReasonedText
from localspec.engine.audit import AuditReport, Divergence, Recorded, audit
from localspec.engine.engine import load
from localspec.engine.recipe import Recipe
from localspec.errors import ExactnessError, InvalidValueError
from localspec.gguf.check import check_generative
from localspec.gguf.lora import Lora
from localspec.models.locate import locate
from localspec.utils.bounded_file import MOST_TEXT_BYTES, read_at_most, read_stream
from localspec.utils.format import printable
from localspec.utils.media import has_media
from localspec.utils.text_file import decode_text

# Of the engine's own text, which a trial of widths may use.
_ENGINE_CONTEXT = 640
_KEYS = {"recipe", "token_ids", "origins", "seed", "rule", "model"}


@click.command("audit")
@click.argument("file", type=click.Path(allow_dash=True), required=False)
@click.option(
    "--prompt",
    metavar="TEXT",
    callback=utf8_text,
    help="Generate a text from this; do not read FILE.",
)
@click.option(
    "--draft",
    default="auto",
    show_default=True,
    metavar=DRAFTS,
    help="With --prompt: the drafters.",
)
@click.option("--seed", type=int, help="With --prompt: the seed. [default: random, and shown]")
@click.option("-m", "--model", metavar="MODEL", help="The target. [default: the one in FILE]")
@lora_option
@stacked(*target_place_options)
@threads_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not text.")
def audit_command(
    *,
    file: str | None,
    prompt: str | None,
    draft: str,
    seed: int | None,
    model: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Score the text in FILE (of `generate --json`; - is standard input) again, token by token.

    With --prompt, the text is generated first.

    Each token that plain decoding would not have drawn is listed: as NUMERIC if rounding explains
    it, else as a BUG. With a BUG the exit code is 7.
    """
    output = Output()
    if (file is None) == (prompt is None):
        raise click.UsageError("Give either FILE (- for standard input) or --prompt.")
    options = pop_runtime_options(options)
    record = _read(file) if file else _generated(prompt or "", seed, model, draft, options)
    recorded = _recorded(record)
    target = locate(model) if model else Path(record["model"]["target"])
    recipe = recorded.recipe
    check_generative(target)
    recipe.require_same_model(target)
    # The plan of this load, of one model and less context, might put the target elsewhere. What the
    # command line names counts more; shares are those of the devices that they were named with.
    named = {name for name in options if file and on_command_line(name) is not None}
    named |= {"split_mode", "tensor_split"} if "device" in named else set()
    if file and not named & {"lora"}:
        options["lora"] = _adapters(record["model"])
    recorded_place = {**recipe.placement, "rpc": ()} if recipe.placement else {}
    options |= {name: value for name, value in recorded_place.items() if name not in named}
    with load(
        target,
        "none",
        # The text is scored in contexts of its own, of its size.
        context=_ENGINE_CONTEXT,
        flash_attention=recipe.flash_attention,
        reproducible=recipe.reproducible,
        kv_type=recipe.kv_type,
        ubatch=recipe.ubatch,
        **recipe.rope,
        **options,
    ) as engine:
        recipe.require_same_adapters(engine.model.adapters)
        recipe.require_same_gpus(engine.slots.own.loaded.runtime.placement)
        report = audit(engine, recorded)
        names = {
            each: engine.model.piece_text(each)
            for divergence in report.divergences
            for each in (divergence.recorded, divergence.plain)
        }
    if as_json:
        output.record(_report_record(report))
    else:
        output.data(_report_text(report, names))
    if report.has_bug:
        raise ExactnessError(
            "the text is not the one its seed gives; please report this, with what "
            "localspec generate --json wrote"
        )


def _generated(
    prompt: str, seed: int | None, model: str | None, draft: str, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    with load(model, draft, **options) as engine:
        asked = as_prompt(engine, prompt, None)
        running = ReasonedText(engine, asked, seed=seed, logprobs=False)
        for note in (engine_line(engine, running, bundled=model is None), *engine.notes):
            Output().note(note)
        return generation_record(engine, running)


def _read(file: str) -> Mapping[str, Any]:
    name = "standard input" if file == "-" else printable(file)
    try:
        if file != "-":
            data = read_at_most(Path(file), MOST_TEXT_BYTES)
        elif sys.stdin is None:
            raise OSError("it is closed")
        else:
            data = read_stream(sys.stdin.buffer, MOST_TEXT_BYTES, name)
        # The last line: that is the whole record with --stream --json too.
        record = json.loads(decode_text(data).strip().rpartition("\n")[2])
    except OSError as error:
        raise InvalidValueError(
            f"{name} cannot be read: {error.strerror or error}; name a file of localspec generate "
            "--json, or - for standard input"
        ) from error
    except (ValueError, IndexError, RecursionError) as error:
        raise InvalidValueError(
            f"{name} holds no JSON; localspec generate --json writes it"
        ) from error
    if not isinstance(record, Mapping) or not record.keys() >= _KEYS:
        raise InvalidValueError(
            f"{name} is not a record of localspec; localspec generate --json writes it"
        )
    return record


def _adapters(model: Mapping[str, Any]) -> list[str]:
    """The adapters of a record. Raises InvalidValueError where they are none."""
    found = model.get("adapters", [])
    try:
        return [Lora(Path(each["file"]), float(each["scale"])).option for each in found]
    except (TypeError, KeyError, ValueError) as error:
        raise InvalidValueError(
            f"this is not a record of localspec: its adapters are {found!r:.80}"
        ) from error


def _recorded(record: Mapping[str, Any]) -> Recorded:
    if INSERTED in record["origins"]:
        raise InvalidValueError(
            "the reasoning of this text was ended by --thinking-budget, with tokens that no model "
            "drew; only texts without such tokens can be audited"
        )
    recipe = Recipe.read(record["recipe"])
    if has_media(recipe.prompt_token_ids):
        raise InvalidValueError(
            "the prompt of this text has images or sounds, which the record does not hold; only "
            "texts without them can be audited"
        )
    return Recorded(
        recipe,
        record["token_ids"],
        record["origins"],
        record["seed"],
        record["rule"],
    )


def _report_text(report: AuditReport, names: Mapping[int, str]) -> str:
    lines = [
        f"{each.verdict}: token {each.index} is {names[each.recorded]!r}, plain decoding draws "
        f"{names[each.plain]!r}; {_gap_text(each, report)}"
        for each in report.divergences
    ]
    good = report.tokens - len(report.divergences)
    found = (
        "are what the seed gives" if report.same_text else "can be drawn, as far as this rule says"
    )
    lines.append(
        f"{good} of {report.tokens} tokens {found}; scored in the steps in which they were written "
        + (
            f"and one by one, logits differ by at most {difference:.2g}"
            if (difference := report.largest_difference)
            else "and one by one, all logits are equal"
        )
    )
    return "\n".join(lines) + "\n"


def _gap_text(divergence: Divergence, report: AuditReport) -> str:
    if math.isinf(divergence.gap):
        return "its filters leave the former out"
    return f"gap {divergence.gap:.2g}, a tie is up to {report.tolerance:.2g}"


def _report_record(report: AuditReport) -> dict[str, Any]:
    return {
        "tokens": report.tokens,
        "same_text": report.same_text,
        "largest_difference": report.largest_difference,
        "tolerance": report.tolerance,
        "divergences": [
            {
                "index": each.index,
                "recorded": each.recorded,
                "plain": each.plain,
                "gap": None if each.gap == float("inf") else each.gap,
                "verdict": each.verdict,
            }
            for each in report.divergences
        ],
    }
