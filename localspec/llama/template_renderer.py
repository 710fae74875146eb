"""Chat templates of GGUF files: Jinja, rendered in a sandbox, as the program of a worker process.

A template is a program out of a downloaded file. The sandbox keeps it from the files and functions
of this process, and the worker's limits keep it from computing without end.
"""

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.utils.format import printable
from localspec.utils.worker_process import serve

# A text may have so many characters, and so many more per character of template and messages.
_LONGEST, _GROWTH = 1_000_000, 8


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"text": ...} or {"names": ...}, or {"error": ...} with what the template does.

    request: "template"; with "given" (the "variables" and the time "now" in ISO 8601) the template
    is rendered, else the names that it reads are returned.
    """
    template, given = request["template"], request.get("given")
    try:
        if given is None:
            return {"names": _names_read(template)}
        return {"text": _rendered(template, given)}
    # A template is a program and may raise anything.
    except Exception as error:
        if isinstance(error, _TooLongError | MemoryError):
            _compiled.cache_clear()  # whose constants may be what is so large
        return {"error": _error_message(error, template, _variables(given) if given else ())}


def _rendered(template: str, given: Mapping[str, Any]) -> str:
    longest = _LONGEST + _GROWTH * (len(template) + len(json.dumps(given)))
    pieces, length = [], 0
    for piece in _compiled(template).generate(_variables(given)):
        length += len(piece)
        if length > longest:
            raise _TooLongError(f"more than {longest} characters")
        pieces.append(piece)
    return "".join(pieces)


def _variables(given: Mapping[str, Any]) -> dict[str, Any]:
    now = datetime.fromisoformat(given["now"])
    return {"strftime_now": now.strftime, **given["variables"]}


@lru_cache(maxsize=4)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


def _names_read(template: str) -> list[str]:
    """The variables that a template takes from outside, all attributes, and all strings.

    Such a variable may be assigned, too, as a default. Functions of Jinja are variables that
    anyone may give. Strings are keys, and arguments of `get` or `attr`.
    """
    tree = _environment().parse(template)
    attributes = {node.attr for node in tree.find_all(nodes.Getattr)}
    constants = {node.value for node in tree.find_all(nodes.Const)}
    variables = meta.find_undeclared_variables(tree) | _environment().globals.keys()
    return sorted(variables | attributes | {each for each in constants if isinstance(each, str)})


def _error_message(error: Exception, template: str, given: Collection[str]) -> str:
    message = getattr(error, "message", None)  # without the lines jinja2 adds
    reason = printable(str(message or error)[:300], instead=" ")
    if isinstance(error, _TooLongError | MemoryError):
        trouble = f"needs {reason or 'too much memory'} for these messages"
    elif isinstance(error, jinja2.TemplateSyntaxError):
        trouble = f"is broken in line {error.lineno} ({reason})"
    elif missing := _missing(error, template, given):
        trouble = f"needs {' or '.join(missing)}, which template_options did not give"
    else:
        trouble = f"refuses these messages ({reason})"
    return trouble


def _missing(error: Exception, template: str, given: Collection[str]) -> list[str]:
    """The variables that the template reads and was not given, if they caused the error."""
    named = re.fullmatch(r"'(\w+)' is undefined", str(error))
    if isinstance(error, _RefusalError) or not (named or "Undefined" in str(error)):
        return []
    unknown = meta.find_undeclared_variables(_environment().parse(template)) - set(given)
    return sorted(unknown & {named[1]} if named else unknown)


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's messages for training; rendering ignores it."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    # Templates are written for transformers, which renders them with these settings and names.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class _TooLongError(Exception):
    """The text is longer than any context needs it; the message says how long it may be."""


class _RefusalError(jinja2.TemplateError):
    """Raised by a template that refuses its messages."""


def _raise(message: Any) -> None:
    raise _RefusalError(str(message))


if __name__ == "__main__":
    serve(answer)
