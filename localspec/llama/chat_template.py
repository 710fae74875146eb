"""Chat templates of GGUF files: Jinja, rendered in a sandbox."""

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
    """Render a chat template.

    messages: {"role": ..., "content": ...}, and other keys that the template reads. bos, eos: the
    texts of the special tokens. now: the time that the template sees; None is the present time.
    options: further variables, such as enable_thinking; they override the others.

    Raises InvalidValueError if the template refuses the messages, lacks a variable or is broken.
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
    # A template is a program and may raise anything.
    except Exception as error:
        raise InvalidValueError(_error_message(error, template, given)) from error


def mentions(template: str, name: str) -> bool:
    """Whether a template reads an attribute or key of this name, such as `reasoning_content`.

    Raises InvalidValueError if the template is broken.
    """
    return name in _names_read(template)


@lru_cache(maxsize=16)
def _compiled(template: str) -> jinja2.Template:
    return _environment().from_string(template)


@lru_cache(maxsize=16)
def _names_read(template: str) -> frozenset[str]:
    """All attributes and all strings in a template: keys, and arguments of `get` or `attr`."""
    try:
        tree = _environment().parse(template)
        attributes = {node.attr for node in tree.find_all(nodes.Getattr)}
        constants = {node.value for node in tree.find_all(nodes.Const)}
    except (jinja2.TemplateSyntaxError, RecursionError) as error:
        raise InvalidValueError(_error_message(error, template, ())) from error
    return frozenset(attributes | {value for value in constants if isinstance(value, str)})


def _copied(value: Any) -> Any:
    """A deep copy as dicts and lists, which the template may modify."""
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_copied(item) for item in value]
    return value


def _error_message(error: Exception, template: str, given: Collection[str]) -> str:
    message = getattr(error, "message", None)  # without the lines jinja2 adds
    reason = f"{printable(str(message or error), instead=' '):.300}"
    way_out = "try a raw prompt"
    if isinstance(error, jinja2.TemplateSyntaxError):
        trouble = f"is broken in line {error.lineno} ({reason})"
    elif missing := _missing(error, template, given):
        trouble = f"needs {' or '.join(missing)}, which it was not given"
        way_out = "give it with template_options or try a raw prompt"
    else:
        trouble = f"refuses these messages ({reason})"
    return f"the model's chat template {trouble}; {way_out}"


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


class _RefusalError(jinja2.TemplateError):
    """Raised by a template that refuses its messages."""


def _raise(message: Any) -> None:
    raise _RefusalError(str(message))
