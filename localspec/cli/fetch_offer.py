"""Fetch offer: a pair that is named and not on this machine is fetched, if the user agrees."""

import os
import sys

from localspec.cli.confirmation import agreed
from localspec.cli.output import Output
from localspec.drafters.spec import AUTO, NAMES, NONE, DraftRequest, parse_draft
from localspec.errors import ModelNotFoundError
from localspec.models.locate import locate
from localspec.models.pair_memory import stated_bytes
from localspec.models.registry import Pair, pair_and_quant
from localspec.utils.format import format_bytes


def offer_fetch(model: str | None, draft: str, output: Output) -> None:
    """Ask whether a pair of models.toml that is not here is fetched now, and fetch it.

    draft: which drafters are asked for, as of `parse_draft`; without `auto` none is fetched.

    Nothing is asked without a terminal or offline (`HF_HUB_OFFLINE`), nor of any other model: the
    command then says what it says. Raises InvalidValueError for a wrong `draft`,
    ModelNotFoundError for a drafter that is not here and a quantisation that models.toml does not
    list, HubError, and KeyboardInterrupt where the user stops it.
    """
    if model is None or os.path.exists(model) or not _can_ask():
        return
    found = pair_and_quant(model)
    if found is None or _is_here(model) or _is_offline():
        return
    _check_quant(model, *found)
    request = parse_draft(draft)
    for each in request.specs:
        if each.model is not None:
            locate(each.model, NAMES)
    if agreed(f"{model} is not on this machine; fetch {_size(*found, request)} now?"):
        # It imports what only a download needs.
        from localspec.cli.pull import fetch_named

        fetch_named(output, model, AUTO if request.auto else NONE)


def _can_ask() -> bool:
    return all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr))


def _is_here(model: str) -> bool:
    try:
        locate(model)
    except ModelNotFoundError:
        return False
    return True


def _is_offline() -> bool:
    from huggingface_hub import constants

    return constants.is_offline_mode()


def _check_quant(model: str, pair: Pair, quant: str) -> None:
    if quant and pair.sizes and quant.upper() not in pair.sizes:
        raise ModelNotFoundError(
            f"{model} is not on this machine, and models.toml lists no {quant} of {pair.name}, but "
            f"{', '.join(pair.sizes)}; localspec pull {model} looks for it on the Hub"
        )


def _size(pair: Pair, quant: str, request: DraftRequest) -> str:
    """The size of the target and of the drafter that comes with it, as far as it is known."""
    target = stated_bytes(pair, quant.upper())
    drafters = pair.drafters if request.auto else ()
    drafter = next((each.size for each in drafters if each.file), 0)
    return f"about {format_bytes(target + drafter)}" if target else "it"
