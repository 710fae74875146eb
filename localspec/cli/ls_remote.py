"""What `localspec ls --remote` shows: whether the Hub has the models that models.toml names."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, NamedTuple

from localspec.cli.interrupt import exit_at_once, on_interrupt
from localspec.cli.output import Output
from localspec.cli.table import table_text
from localspec.errors import HubError, LocalspecError, ModelNotFoundError
from localspec.hub.reference import Repository
from localspec.models import registry
from localspec.utils.format import format_bytes

_REQUESTS_AT_ONCE = 8


class _Entry(NamedTuple):
    pair: str
    role: str
    repository: Repository


def show_remote(output: Output, *, as_json: bool) -> int:
    """Ask the Hub for every model of models.toml, and show its answers; return the exit code."""
    entries = [*_entries()]
    repositories = list(dict.fromkeys(entry.repository for entry in entries))
    # The network's client takes long to import, and no other form of `ls` needs it.
    from localspec.cli.fetch import waits_told

    at_once = ThreadPoolExecutor(_REQUESTS_AT_ONCE)
    with on_interrupt(exit_at_once), waits_told(output), at_once as pool:
        asked = [pool.submit(copy_context().run, _ask, each) for each in repositories]
        answers = dict(zip(repositories, (each.result() for each in asked), strict=True))
    answered = [(entry, answers[entry.repository]) for entry in entries]
    if as_json:
        output.record({"entries": [_record(*each) for each in answered]})
    else:
        rows = [_cells(*each) for each in answered]
        output.data(table_text(("name", "role", "model", "the Hub says"), rows))
    failures = [each.exit_code for each in answers.values() if isinstance(each, LocalspecError)]
    output.note(f"{len(answers) - len(failures)} of {len(answers)} models are on the Hub")
    return max(failures, default=0)


def _entries() -> Iterator[_Entry]:
    for pair in registry.pairs().values():
        roles = ["target", *("drafter" for _ in pair.files[1:])]
        for role, reference in zip(roles, pair.files, strict=True):
            if isinstance(reference, Repository):
                yield _Entry(pair.name, role, reference)


def _ask(repository: Repository) -> int | LocalspecError:
    """Return the bytes of the model, or why it cannot be fetched."""
    from localspec.hub.listing import look_up

    try:
        return look_up(repository).size
    except (HubError, ModelNotFoundError) as error:
        return error


def _cells(entry: _Entry, answer: int | LocalspecError) -> tuple[str, ...]:
    text = f"ok, {format_bytes(answer)}" if isinstance(answer, int) else str(answer)
    return entry.pair, entry.role, str(entry.repository), text


def _record(entry: _Entry, answer: int | LocalspecError) -> dict[str, Any]:
    found = isinstance(answer, int)
    return {
        "name": entry.pair,
        "role": entry.role,
        "model": str(entry.repository),
        "size": answer if found else None,
        "error": None if found else str(answer),
    }
