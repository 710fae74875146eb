"""Texts on the command line, in locales of any encoding."""

import os

import click
import pytest

from localspec.cli.utf8_text import utf8_text
from localspec.errors import InvalidValueError

OPTION = click.Option(["--system"])
CONTEXT = click.Context(click.Command("generate"))


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_text_is_what_was_typed(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """What a locale could not decode is UTF-8; what it decoded stays."""
    monkeypatch.setattr(os, "fsencode", lambda text: text.encode(encoding, "surrogateescape"))
    typed = "café".encode("latin-1" if encoding == "latin-1" else "utf-8")
    given = typed.decode(encoding, "surrogateescape")
    assert utf8_text(CONTEXT, OPTION, given) == "café"
    assert utf8_text(CONTEXT, OPTION, (given, "b")) == ("café", "b")
    assert utf8_text(CONTEXT, OPTION, None) is None


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"^--system: .*0xe9.*; retype it"):
        utf8_text(CONTEXT, OPTION, b"caf\xe9".decode("utf-8", "surrogateescape"))
