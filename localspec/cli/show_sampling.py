"""What `localspec show` says of sampling: the values that count where nobody names others."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

from localspec.cli.settings import Settings, sampling_settings
from localspec.errors import InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.gguf.facts import Facts
from localspec.models.pair_finder import sampling_pair
from localspec.models.registry import Pair
from localspec.sampling.params import NUMERIC, recommending

_DEFAULT, _GGUF = "default", "the GGUF"
# Shown also where nobody says anything of them.
_USUAL = {"temperature", "top_k", "top_p", "min_p"}


class SamplingValue(NamedTuple):
    """A value, and where it comes from: an own setting, a pair, the GGUF, or the default."""

    value: float
    source: str


def sampling_values(
    name: str, model: Facts | None, known: Pair | None
) -> Mapping[str, SamplingValue]:
    """Return the usual values, and those that anybody recommends or has set.

    name: what the user called the model. model: None where its file is not here; then only what its
    pair says is known of it. known: its pair, by its name. Raises InvalidValueError for values that
    cannot be used.
    """
    pair = sampling_pair(model.files[0], name) if model else known
    listed = pair.sampling if pair else {}
    metadata = model.header.metadata if model else {}
    settings = Settings()
    own = {each: settings.find(each) for each in sampling_settings()}
    chosen = {each: found.value for each, found in own.items() if found.value is not None}
    params = GenerationConfig.of(**chosen).params(metadata, listed)
    sources = {
        **dict.fromkeys(_USUAL if model else (), _DEFAULT),
        **dict.fromkeys(recommending(metadata), _GGUF),
        **dict.fromkeys(listed, f"pair {pair.name}" if pair else ""),
        **{each: own[each].source for each in chosen},
    }
    return {
        each: SamplingValue(getattr(params, each), sources[each])
        for each in NUMERIC
        if each in sources
    }


def sampling_text(name: str, model: Facts | None, known: Pair | None) -> str:
    """Return `sampling_values` as one line for people, or why they cannot be used."""
    try:
        values = sampling_values(name, model, known).items()
    except InvalidValueError as error:
        return str(error)
    order = [*dict.fromkeys(each.source for _, each in values)]
    by_source = sorted(values, key=lambda item: order.index(item[1].source))
    return "; ".join(
        f"{', '.join(f'{each} {found.value:g}' for each, found in group)} ({source})"
        for source, group in groupby(by_source, key=lambda item: item[1].source)
    )


def sampling_record(
    name: str, model: Facts | None, known: Pair | None
) -> Mapping[str, Mapping[str, Any]] | None:
    """Return `sampling_values` as `--json` prints them; None where they cannot be used."""
    try:
        values = sampling_values(name, model, known)
    except InvalidValueError:
        return None
    return {each: found._asdict() for each, found in values.items()}
