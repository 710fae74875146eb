"""Setup of clients: what `localspec serve --setup` prints, and the command line that prints it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from localspec.cli.output import Output
from localspec.errors import ModelLoadError, ModelNotFoundError
from localspec.gguf.check import ranks
from localspec.gguf.reader import read_header
from localspec.models import registry
from localspec.models.locate import locate, reference_of
from localspec.server.address import HOST, PORT, Address
from localspec.server.client_setup import USUAL_CONTEXTS, too_small_for
from localspec.server.client_setup import setup as settings_of_client
from localspec.utils.option_names import typed_name
from localspec.utils.shell import command_line

# Options by which a model reads other contexts than it was made for.
_ROTATIONS = ("rope_scaling", "rope_scale", "rope_freq_base")


def print_setup(
    client: str,
    models: Sequence[str | None],
    alias: tuple[str, ...],
    address: Address,
    runtime: Mapping[str, Any],
    *,
    mmproj: str | None,
    embed: Sequence[str],
) -> None:
    """Print the settings of a client. Raises InvalidValueError for a wrong value of `runtime`."""
    # `--help` must not wait for this import.
    from localspec.loading.config import RuntimeConfig

    RuntimeConfig.of(**runtime)  # raises for a wrong value, as the server does
    output = Output(color=False)
    shown = alias[:1] or [shown_name(each) for each in models]
    reads = {
        name: read
        for name, each in zip(shown, models, strict=True)
        if len(read := _reads(each, mmproj)) > 1
    }
    made_for = [_made_for(each, runtime) for each in models]
    contexts = {
        name: context
        for name, most in zip(shown, made_for, strict=True)
        if (context := _context(client, most, runtime))
    }
    embedder = next((shown_name(each) for each in embed if not _ranks(each)), None)
    printed = settings_of_client(
        client,
        address.url,
        shown,
        key=bool(address.key),
        reads=reads,
        contexts=contexts,
        embedder=embedder,
    )
    output.data(f"{printed}\n")
    if others := address.others:
        output.note(f"on another machine it is {others} in place of {address.url}")
    for asked, most in zip(models, made_for, strict=True):
        if too_long := _too_long_for(client, most, runtime):
            output.note(too_long if len(models) == 1 else f"{shown_name(asked)}: {too_long}")
    for asked in [*([] if alias else models), *embed]:
        if asked and (unknown := _unknown(asked)):
            output.note(f"{unknown} (the settings are right if the server has it)")


def _reads(asked: str | None, mmproj: str | None) -> Sequence[str]:
    """What a model reads, if it is here."""
    # `--help` must not wait for this import.
    from localspec.server.modalities import modalities_on_disk

    with suppress(ModelNotFoundError, ModelLoadError):
        path = registry.bundled().target if asked is None else locate(asked)
        return modalities_on_disk(mmproj, path).names
    return ()


def _ranks(asked: str) -> bool:
    """Whether a model is one that ranks, as far as it is here."""
    with suppress(ModelNotFoundError, ModelLoadError):
        return ranks(read_header(locate(asked)))
    return False


def _unknown(name: str) -> str:
    """Return why a name means no model; empty for one that is known, though it is not here."""
    try:
        reference_of(name) if not Path(name).is_file() else None
    except ModelNotFoundError as error:
        return str(error)
    return ""


def _too_long_for(client: str, most: int | None, runtime: Mapping[str, Any]) -> str:
    """Return why a client's own words do not fit into the context; empty where they may.

    most: as `_made_for`.
    """
    context = _context(client, most, runtime)
    too_small = context and too_small_for(client, context)
    if not too_small:
        return ""
    other = most and too_small_for(client, most)
    return f"{too_small}, {'serve another model' if other else 'give a larger --ctx'}"


def _context(client: str, most: int | None, runtime: Mapping[str, Any]) -> int | None:
    """The tokens of a text: as asked for, or as a client should have, if the model reads so many.

    most: as `_made_for`. None where neither is known.
    """
    wanted = runtime["context"] or USUAL_CONTEXTS.get(client)
    return min(wanted, most) if wanted and most else wanted


def _made_for(asked: str | None, runtime: Mapping[str, Any]) -> int | None:
    """The tokens that a model was made for, also one that is not here; None if not known."""
    if any(runtime[name] is not None for name in _ROTATIONS):
        return None
    with suppress(ModelNotFoundError, ModelLoadError):
        return read_header(locate(asked) if asked else registry.bundled().target).context_length
    pair = registry.pair_named(asked) if asked else None
    return pair.context if pair else None


def shown_name(asked: str | None) -> str:
    """The model's name for clients: as it was asked for, without folders."""
    if asked is None:
        return registry.bundled().target.stem
    return Path(asked).stem if Path(asked).suffix == ".gguf" else asked


def setup_command(
    models: Sequence[str | None],
    alias: tuple[str, ...],
    address: Address,
    runtime: Mapping[str, Any],
    *,
    mmproj: str | None,
    embed: Sequence[str],
) -> str:
    """The part of the command line that the settings of clients depend on."""
    words = ["localspec", "serve", *filter(None, models)]
    words += ["--alias", alias[0]] if alias else []
    given = {name: runtime[name] for name in _ROTATIONS if runtime[name] is not None}
    words += [word for name, value in given.items() for word in (typed_name(name), str(value))]
    words += ["--mmproj", mmproj] if mmproj else []
    words += [word for each in embed for word in ("--embed", each)]
    words += ["--host", address.host] if address.host != HOST else []
    words += ["--port", str(address.port)] if address.port != PORT else []
    return command_line(words)
