"""`localspec serve`: a server on this machine."""

import json
import logging
import os
import shlex
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.options import copy_from_option, model_options, pop_runtime_options
from localspec.cli.output import Output
from localspec.engine.engine import Engine, load
from localspec.errors import InvalidValueError
from localspec.models import registry
from localspec.models.pair_finder import pair_of
from localspec.server.client_setup import CLIENTS, claude_code_variables, key_shown
from localspec.server.client_setup import setup as settings_of_client
from localspec.utils.text_file import read_text_file

if TYPE_CHECKING:
    from localspec.server.run import Address
    from localspec.server.service import Service

_HOST, _PORT = "127.0.0.1", 8080
_KEY_VARIABLE = "LOCALSPEC_API_KEY"
# Loading that takes longer says what it is at.
_QUICK_SECONDS = 2.0


@click.command()
@click.argument("name", metavar="[MODEL]", required=False)
@model_options
@click.option("--host", default=_HOST, show_default=True, help="Address to listen on.")
@click.option("--port", type=int, default=_PORT, show_default=True, help="Port to listen on.")
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
@click.option(
    "--keep",
    is_flag=True,
    help="When it ends, keep on disk what its slots have read, and begin with that.",
)
@copy_from_option
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
    name: str | None,
    model: str | None,
    draft: str,
    depth: int | None,
    host: str,
    port: int,
    parallel: int,
    queue_limit: int,
    keep: bool,
    copied_texts: tuple[str, ...],
    alias: tuple[str, ...],
    api_key_file: Path | None,
    cors: tuple[str, ...],
    allow_host: tuple[str, ...],
    setup: str | None,
    json_logs: bool,
    **options: Any,
) -> int:
    """Serve MODEL to other programs, in the protocols of OpenAI and Anthropic.

    With no model named, it is the tiny bundled one.
    """
    from localspec.server.run import Address, listen
    from localspec.server.run import serve as run

    if name and model:
        raise InvalidValueError(f"model is {model!r} and {name!r}; name one")
    for setting, value, least in (("parallel", parallel, 1), ("queue", queue_limit, 0)):
        if not least <= value <= 1024:
            raise InvalidValueError(f"{setting} is {value}; it must be {least} to 1024")
    if not 0 < port < 65536:
        raise InvalidValueError(f"port is {port}; it must be 1 to 65535")
    asked = name or model
    address = Address(host, port, hosts=allow_host, origins=cors, key=_key(api_key_file))
    runtime = pop_runtime_options(options)
    output = Output(color=False)
    if setup:
        shown = alias[0] if alias else _shown_name(asked)
        output.data(f"{settings_of_client(setup, address.url, shown, key=bool(address.key))}\n")
        return 0
    _show_log(as_json=json_logs)
    opened = listen(address)

    def load_service() -> "Service":
        engine = load(asked, draft, copied_texts=copied_texts, texts=parallel, **runtime)
        try:
            service = _service(engine, asked, alias, parallel, queue_limit, keep=keep)
        except BaseException:
            engine.close()
            raise
        service.usual = {"depth": depth}
        return service

    def ready(service: "Service") -> None:
        for line in _greeting(service, address, _command(asked, alias, address)):
            output.note(line)

    run(load_service, address, opened, ready=ready, progress=_LoadingNotes(output, address.url))
    return 0


class _LoadingNotes:
    """Writes what loading is at, once it has taken a while."""

    def __init__(self, output: Output, url: str) -> None:
        self._output = output
        self._url = url
        self._began = monotonic()
        self._said: str | None = None

    def __call__(self, action: str, _share: float | None) -> None:
        if action != self._said and monotonic() - self._began > _QUICK_SECONDS:
            where = "" if self._said else f" ({self._url}/health says how far it is)"
            self._said = action
            self._output.note(f"{action}{where}")


def _service(
    engine: Engine,
    asked: str | None,
    alias: tuple[str, ...],
    parallel: int,
    queue_limit: int,
    *,
    keep: bool,
) -> "Service":
    from localspec.server.kept_states import KeptStates
    from localspec.server.service import Service
    from localspec.server.slot_pool import SlotPool

    path = engine.model.path
    pair = pair_of(path)
    known = [path.stem, *([pair.name] if pair else []), "localspec", "default"]
    names = dict.fromkeys([*alias, _shown_name(asked), *known])
    engine.warm_up()
    pool = SlotPool(engine, parallel, queue_limit)
    kept = KeptStates(path) if keep else None
    if kept:
        kept.restore(pool.slots)
    return Service(engine, pool, list(names), kept=kept)


def _shown_name(asked: str | None) -> str:
    """The model's name for clients: as it was asked for, without folders."""
    if asked is None:
        return registry.bundled().target.stem
    return Path(asked).stem if Path(asked).suffix == ".gguf" else asked


def _command(asked: str | None, alias: tuple[str, ...], address: "Address") -> str:
    """The part of the command line that the settings of clients depend on."""
    words = ["localspec", "serve", *([asked] if asked else [])]
    words += ["--alias", alias[0]] if alias else []
    words += ["--host", address.host] if address.host != _HOST else []
    words += ["--port", str(address.port)] if address.port != _PORT else []
    return shlex.join(words)


def _greeting(service: "Service", address: "Address", again: str) -> list[str]:
    """What is said once it answers. again: the command line that prints settings of clients."""
    name, url, engine, pool = service.name, address.url, service.engine, service.pool
    reason = engine.drafter_set.reason
    draft = (" or ".join(engine.drafter_set.names) or "off") + (f" ({reason})" if reason else "")
    key = key_shown(key=bool(address.key))
    claude = claude_code_variables(url, name, key)
    return [
        f"{name} · draft: {draft} · {len(pool.slots)} texts at once, {engine.context} tokens each",
        f"serving at {url}/v1 (OpenAI) and {url} (Anthropic); Ctrl-C ends it",
        f"chat in a browser: {url}",
        f"OpenAI clients: OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key}",
        f"Claude Code: {' '.join(f'{k}={shlex.quote(v)}' for k, v in claude.items())} claude",
        f"settings of other clients: {again} --setup {'|'.join(CLIENTS)}",
        *engine.notes,
        *([pool.note] if pool.note else []),
    ]


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


def _show_log(*, as_json: bool) -> None:
    """Write the log of the server, and of what it runs on, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines() if as_json else logging.Formatter("%(asctime)s %(message)s"))
    for name in ("localspec.server", "localspec.workers", "uvicorn.error", "asyncio"):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.propagate = False
    logging.getLogger("localspec.server").setLevel(logging.INFO)


class _JsonLines(logging.Formatter):
    """A log record as a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)
