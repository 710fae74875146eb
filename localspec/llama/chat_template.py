"""A GGUF's own chat template: Jinja, run in its sandbox."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import InvalidValueError
from localspec.utils.format import printable

Message = Mapping[str, Any]


def render(
    template: str,
    messages: Sequence[Message],
    *,
    bos: str,
    eos: str,
    tools: Sequence[Mapping[str, Any]] | None = None,
    now: datetime | None = None,
    options: Mapping[str, Any] = {},
) -> str:
    """The prompt for these messages ({"role": ..., "content": ...}, and whatever it reads of them).

    now: the time it may tell; None means the clock's. options: further variables, such as
    enable_thinking; they come before all others.

    Raises InvalidValueError when the template refuses them, lacks a variable or is itself broken.
    """
    given = {
        "messages": messages,
        "tools": tools,
        "documents": None,
        "bos_token": bos,
        "eos_token": eos,
        "add_generation_prompt": True,
        "strftime_now": (now or datetime.now()).strftime,
        **options,
    }
    try:
        return _compiled(template).render(_copied(given))
    # A template is a program: what it can raise has no end.
    except Exception as error:
        raise InvalidValueError(_complaint(error, template, given)) from error


def mentions(template: str, name: str) -> bool:
    """Whether a template reads an attribute or key of this name, such as `reasoning_content`.

    Raises InvalidValueError when it is broken.
    """
    return name in _names(template)


@lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


@lru_cache(maxsize=16)
def _names(template: str) -> frozenset[str]:
    """Every attribute that is read, and every string: a key, or an argument of `get` or `attr`."""
    try:
        tree = _environment().parse(template)
        attributes = {node.attr for node in tree.find_all(nodes.Getattr)}
        constants = {node.value for node in tree.find_all(nodes.Const)}
    except (jinja2.TemplateSyntaxError, RecursionError) as error:
        raise InvalidValueError(_complaint(error, template, ())) from error
    return frozenset(attributes | {value for value in constants if isinstance(value, str)})


def _copied(value: Any) -> Any:
    """The same in dicts and lists of its own, for the template to do with as it likes."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_copied(item) for item in value]
    return value


def _complaint(error: Exception, template: str, given: Collection[str]) -> str:
    message = getattr(error, "message", None)  # without the lines jinja2 adds
    said = f"{printable(str(message or error), instead=' '):.300}"
    way_out = "try a raw prompt"
    if isinstance(error, jinja2.TemplateSyntaxError):
        trouble = f"is broken in line {error.lineno} ({said})"
    elif missing := _missing(error, template, given):
        trouble = f"needs {' or '.join(missing)}, which it was not given"
        way_out = "give it with template_options or try a raw prompt"
    else:
        trouble = f"refuses these messages ({said})"
    return f"the model's chat template {trouble}; {way_out}"


def _missing(error: Exception, template: str, given: Collection[str]) -> list[str]:
    """The variables it reads without having been given them, if that is what went wrong."""
    named = re.fullmatch(r"'(\w+)' is undefined", str(error))
    if isinstance(error, _RefusalError) or not (named or "Undefined" in str(error)):
        return []
    unknown = meta.find_undeclared_variables(_environment().parse(template)) - set(given)
    return sorted(unknown & {named[1]} if named else unknown)


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here it changes nothing."""

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


class _RefusalError(jinja2.TemplateError):
    """What a template says of messages that it does not take."""


def _raise(message: Any) -> None:
    raise _RefusalError(str(message))
