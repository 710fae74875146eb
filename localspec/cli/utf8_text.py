"""Texts on the command line, which are UTF-8 also where the locale is C."""

import os
from typing import TypeVar

import click

from localspec.errors import InvalidValueError
from localspec.utils.text_file import undecodable

_Value = TypeVar("_Value", None, str, tuple[str, ...])


def utf8_text(_context: click.Context, parameter: click.Parameter, value: _Value) -> _Value:
    """The callback of a parameter that is a text, or several. Raises InvalidValueError."""

    def decoded(text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:  # the locale could not decode all of it
            pass
        else:
            return text
        try:
            return os.fsencode(text).decode()
        except UnicodeDecodeError as error:
            what = parameter.opts[0] if isinstance(parameter, click.Option) else "the prompt"
            raise InvalidValueError(f"{what}: {undecodable(error)}; retype it") from error

    if isinstance(value, str):
        return decoded(value)
    return value if value is None else tuple(map(decoded, value))
