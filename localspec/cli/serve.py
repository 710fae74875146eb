"""`localspec serve`: a server on this machine."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from localspec.cli.file_options import chat_template_option, copy_from_option, mmproj_option
from localspec.cli.options import keep_option, model_options, pop_runtime_options
from localspec.cli.sampling_options import sampling_options
from localspec.cli.serve_setup import print_setup, setup_command
from localspec.cli.settings import CommandDefaults
from localspec.cli.thinking_options import (
    TemplateOptions,
    pop_template_options,
    template_options,
)
from localspec.cli.utf8_text import utf8_text
from localspec.errors import InvalidValueError
from localspec.server.address import HOST, PORT, Address
from localspec.server.child import Job
from localspec.server.client_setup import CLIENTS
from localspec.server.log import show_log
from localspec.server.supervisor import supervise
from localspec.utils.text_file import read_text_file

if TYPE_CHECKING:
    from localspec.generation_config import GenerationOptions

# A week, in minutes.
_LONGEST_IDLE = 10_080
_KEY_VARIABLE = "LOCALSPEC_API_KEY"


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """What is to be served, and how.

    models, draft, parallel, queue_limit, keep, thinking_budget, system, embed and embed_ctx: as on
    the command line; a model None is the bundled one.
    usual: settings of texts whose requests do not say otherwise. told: what chat templates are told
    then. aliases: names for clients, beside the model's own. setup_command: prints settings of
    clients, once the context and the client are named behind it. unload_after: in seconds; None:
    never. runtime: options of `engine.load`. defaults: where the options are from that the command
    line does not name.
    """

    models: Sequence[str | None]
    draft: str
    usual: "GenerationOptions"
    told: TemplateOptions
    address: Address
    aliases: Sequence[str]
    setup_command: str
    parallel: int
    queue_limit: int
    keep: bool
    unload_after: float | None
    thinking_budget: int
    system: str | None
    remember: bool
    copied_texts: Sequence[str]
    chat_template: str | None
    mmproj: str | None
    embed: Sequence[str]
    embed_ctx: int | None
    json_logs: bool
    runtime: Mapping[str, Any]
    defaults: CommandDefaults | None


@click.command()
@click.argument("names", metavar="[MODEL]...", nargs=-1)
@model_options
@click.option("--host", default=HOST, show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=PORT, show_default=True, help="Port to listen on.")
@click.option(
    "--parallel",
    type=int,
    default=4,
    show_default=True,
    help="Texts that are written at once; fewer if memory is too small.",
)
@click.option(
    "--queue",
    "queue_limit",
    type=int,
    default=64,
    show_default=True,
    help="Requests that may wait; further ones are told to come again later.",
)
@keep_option("When it ends, keep on disk what its slots have read, and begin with that.")
@click.option(
    "--unload-after",
    type=float,
    metavar="MINUTES",
    help="Free the model's memory after so long without a request; the next one loads it again.",
)
@click.option(
    "--thinking-budget",
    type=int,
    default=-1,
    show_default=True,
    help="Tokens of reasoning per answer, where a request does not say; -1: no limit.",
)
@click.option(
    "--system",
    metavar="TEXT",
    callback=utf8_text,
    help="System prompt of chats that have none of their own.",
)
@template_options
@sampling_options
@click.option(
    "--remember",
    is_flag=True,
    help="Draft from the texts of earlier runs too, and store those that are written; `localspec "
    "forget` deletes them.",
)
@copy_from_option
@chat_template_option
@mmproj_option
@click.option(
    "--embed",
    multiple=True,
    metavar="MODEL",
    help="A model for embeddings, or a reranker, loaded beside MODEL and named like it. "
    "Repeatable.",
)
@click.option(
    "--embed-ctx",
    type=int,
    metavar="N",
    help="Tokens of a text that is embedded. [default: the model's, at most 2048]",
)
@click.option("--alias", multiple=True, help="A name that clients may use. Repeatable.")
@click.option(
    "--api-key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"Clients must send the key in this file (or in {_KEY_VARIABLE}).",
)
@click.option("--cors", multiple=True, metavar="ORIGIN", help="A page that may use it. Repeatable.")
@click.option(
    "--allow-host", multiple=True, metavar="NAME", help="A name it is reached by. Repeatable."
)
@click.option(
    "--setup",
    type=click.Choice(list(CLIENTS)),
    help="Print the settings that this client needs, and do not serve.",
)
@click.option("--json-logs", is_flag=True, help="Write the log as JSON, an object per line.")
def serve(
    *,
    names: tuple[str, ...],
    model: str | None,
    draft: str,
    depth: int | None,
    host: str,
    port: int,
    parallel: int,
    queue_limit: int,
    keep: bool,
    unload_after: float | None,
    thinking_budget: int,
    system: str | None,
    remember: bool,
    copied_texts: tuple[str, ...],
    chat_template: str | None,
    mmproj: str | None,
    embed: tuple[str, ...],
    embed_ctx: int | None,
    alias: tuple[str, ...],
    api_key_file: Path | None,
    cors: tuple[str, ...],
    allow_host: tuple[str, ...],
    setup: str | None,
    json_logs: bool,
    **options: Any,
) -> int:
    """Serve MODEL to other programs, in the protocols of OpenAI, Anthropic and Ollama.

    With no model named, it is the tiny bundled one. Of several, one is loaded at a time: the first
    at the start, another one when a request names it.
    """
    if names and model:
        raise InvalidValueError(f"model is {model!r} and {names[0]!r}; name one")
    of_one = {
        "alias": alias,
        "chat-template": chat_template,
        "mmproj": mmproj != "none" and mmproj,
        "lora": options["lora"],
    }
    if len(names) > 1 and (what := next(filter(of_one.get, of_one), None)):
        raise InvalidValueError(f"{what} is of one model, and {len(names)} are named; leave it out")
    if unload_after is not None and not 0 < unload_after <= _LONGEST_IDLE:
        raise InvalidValueError(
            f"unload-after is {unload_after:g}; it must be above 0, {_LONGEST_IDLE} minutes at most"
        )
    for setting, value, least in (("parallel", parallel, 1), ("queue", queue_limit, 0)):
        if not least <= value <= 1024:
            raise InvalidValueError(f"{setting} is {value}; it must be {least} to 1024")
    if thinking_budget < -1:
        raise InvalidValueError(
            f"thinking_budget is {thinking_budget}; it must be -1 (no limit), 0 or more"
        )
    if embed_ctx is not None and not embed:
        raise InvalidValueError(f"embed-ctx is {embed_ctx}, without a model; add --embed MODEL")
    if not 0 < port < 65536:
        raise InvalidValueError(f"port is {port}; it must be 1 to 65535")
    models = [*dict.fromkeys(names or (model,))]
    address = Address(host, port, hosts=allow_host, origins=cors, key=_key(api_key_file))
    runtime, told = pop_runtime_options(options), pop_template_options(options)
    usual = _usual({"depth": depth, **options})
    if setup:
        print_setup(setup, models, alias, address, runtime, mmproj=mmproj, embed=embed)
        return 0
    show_log(as_json=json_logs)
    request = ServeRequest(
        models,
        draft,
        usual,
        told,
        address,
        aliases=alias,
        setup_command=setup_command(models, alias, address, runtime, mmproj=mmproj, embed=embed),
        parallel=parallel,
        queue_limit=queue_limit,
        keep=keep,
        unload_after=None if unload_after is None else 60 * unload_after,
        thinking_budget=thinking_budget,
        system=system,
        remember=remember,
        copied_texts=copied_texts,
        chat_template=chat_template,
        mmproj=mmproj,
        embed=[*dict.fromkeys(embed)],
        embed_ctx=embed_ctx,
        json_logs=json_logs,
        runtime=runtime,
        defaults=_defaults(),
    )
    return supervise(Job("localspec.cli.serving:serve_model", request))


def _usual(options: Mapping[str, Any]) -> "GenerationOptions":
    """The settings that are named. Raises InvalidValueError for a wrong one."""
    # `--help` must not wait for this import.
    from localspec.generation_config import GenerationConfig

    GenerationConfig.of(**options)
    named = {name: value for name, value in options.items() if value is not None}
    return cast("GenerationOptions", named)


def _defaults() -> CommandDefaults | None:
    found = click.get_current_context().default_map
    return found if isinstance(found, CommandDefaults) else None


def _key(file: Path | None) -> str | None:
    """The API key, from a file or from the environment."""
    if file is None:
        key = os.environ.get(_KEY_VARIABLE)
    else:
        key = read_text_file("--api-key-file", file, "name a file that holds the key")
    if key is None:
        return None
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable():
        source = _KEY_VARIABLE if file is None else f"--api-key-file {file}"
        raise InvalidValueError(f"{source} holds no key; write one of ASCII characters into it")
    return key
