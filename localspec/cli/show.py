"""`localspec show`: what a model is, as far as its header tells."""

import os
import sys
from collections.abc import Sequence

import click

from localspec.cli.ls_pairs import pair_record
from localspec.cli.output import Output
from localspec.cli.show_output import (
    adapter_record,
    adapter_rows,
    blocks_text,
    model_record,
    model_rows,
    own_drafter_rows,
    pair_rows,
    projector_record,
    projector_rows,
    reads_text,
)
from localspec.cli.show_sampling import sampling_record, sampling_text
from localspec.errors import InvalidValueError, ModelNotFoundError
from localspec.gguf.facts import Facts, facts_of
from localspec.gguf.heads import kind_of
from localspec.gguf.lora import Lora, check_lora, is_adapter
from localspec.gguf.projectors import PROJECTOR, check_projector
from localspec.loading.config import RuntimeConfig
from localspec.loading.equal_digits import remembered
from localspec.models import registry
from localspec.models.heads_elsewhere import heads_elsewhere
from localspec.models.locate import locate
from localspec.models.own_drafters import OwnDrafter, is_no_target, own_drafters
from localspec.models.projectors import find_projector
from localspec.models.registry import Pair
from localspec.speculation.equal_digits import EqualDigits
from localspec.utils.format import printable


@click.command()
@click.argument("name")
@click.option("--template", is_flag=True, help="Print only the chat template, in full.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, not lines.")
def show(*, name: str, template: bool, as_json: bool) -> None:
    """Show a model's shape, quantisation, vocabulary, chat template and licence.

    NAME is a path, user/repo[:quant], or a pair of models.toml; of a pair both models are shown,
    and what is known of its drafters. No weights are loaded.
    """
    output = Output()
    pair = _pair_called(name)
    model = _facts(name, pair)
    if template and not as_json:
        output.data(_template(name, model))
        return
    own = own_drafters(model.files[0]) if model and not kind_of(model.header) else []
    drafter = _first_on_disk(own) if pair else None
    is_target = model and not is_no_target(model.files[0].as_posix())
    projector, left_out = (
        find_projector(None, model.files[0]) if model and is_target else (None, None)
    )
    adapter = check_lora(Lora(model.files[0])) if model and is_adapter(model.header) else None
    writes = (is_target and not adapter) or not model
    if as_json:
        output.record(
            {
                "name": name,
                "model": model_record(model, _digits(model)) if model else None,
                "pair": pair_record(pair) if pair else None,
                "drafter": model_record(drafter, _digits(drafter)) if drafter else None,
                "drafters": [each.name for each in own if each.file],
                "projector": projector_record(projector) if projector else None,
                "sampling": sampling_record(name, model, pair) if writes else None,
                "adapter": adapter_record(adapter) if adapter else None,
            }
        )
        return
    drawn = [("sampling", text)] if writes and (text := sampling_text(name, model, pair)) else []
    blocks = [pair_rows(pair)] if pair else []
    elsewhere = heads_elsewhere(model) if model else None
    if found := own_drafter_rows([each for each in own if each.listed is None], elsewhere):
        blocks.append(found)
    rows = [model_rows(facts, _digits(facts)) for facts in (model, drafter) if facts]
    if model and model.header.architecture == PROJECTOR:
        rows[0] = projector_rows(rows[0], check_projector(model.files[0]))
    elif is_target and not adapter:
        rows[0] += [("reads", left_out or reads_text(projector)), *drawn]
    elif not model:
        blocks[0] += drawn
    if adapter:
        rows[0] = adapter_rows(rows[0], adapter)
    blocks += rows
    output.data(blocks_text(blocks))
    if pair and (not model or (pair.drafters and not any(each.file for each in own))):
        output.note(
            f"the pair is not complete on this machine; localspec pull {pair.name} fetches it"
        )


def _pair_called(name: str) -> Pair | None:
    return None if os.path.exists(name) else registry.pair_named(name)


def _facts(name: str, pair: Pair | None) -> Facts | None:
    """Return what the model's header says; None for a pair whose target was not fetched."""
    try:
        return facts_of(locate(name))
    except ModelNotFoundError:
        if pair is None:
            raise
        return None


def _first_on_disk(drafters: Sequence[OwnDrafter]) -> Facts | None:
    """Return the facts of the first drafter in a file of its own."""
    files = (each.file for each in drafters if each.reference and each.file)
    first = next(files, None)
    return facts_of(first) if first else None


def _digits(facts: Facts) -> EqualDigits | None:
    """What a load with the default options found out about the logits of this file."""
    return remembered(facts.files[0], RuntimeConfig())


def _template(name: str, model: Facts | None) -> str:
    if model is None:
        raise ModelNotFoundError(f"{name} is not on this machine; localspec pull {name} fetches it")
    if not model.chat_template:
        raise InvalidValueError(f"{name} has no chat template; it only continues texts")
    template = model.chat_template.rstrip("\n") + "\n"
    return printable(template, also="\n\t") if sys.stdout.isatty() else template
