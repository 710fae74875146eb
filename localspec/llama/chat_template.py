"""A GGUF's own chat template: Jinja, run in its sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import InvalidValueError

Message = Mapping[str, str]


def render(template: str, messages: Sequence[Message], *, bos: str, eos: str) -> str:
    """The prompt for these messages ({"role": ..., "content": ...}), ready for the answer.

    Raises InvalidValueError when the template refuses them or is itself broken.
    """
    try:
        return (
            _environment()
            .from_string(template)
            .render(
                messages=[dict(message) for message in messages],
                bos_token=bos,
                eos_token=eos,
                add_generation_prompt=True,
                tools=None,
                documents=None,
            )
        )
    # A template is a program: what it can raise has no end.
    except Exception as error:
        raise InvalidValueError(
            f"the model's chat template refuses these messages ({error}); try a raw prompt"
        ) from error


class _GenerationBlock(Extension):
    """`{% generation %}` marks the assistant's words for training; here it changes nothing."""

    tags = {"generation"}  # noqa: RUF012 (as jinja2 declares it)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    # Templates are written for transformers, which renders them with these settings and names.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
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


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
