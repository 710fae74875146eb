"""Confirmation: a question at the terminal before something is deleted."""

import sys

import click

from localspec.errors import InvalidValueError


def agreed(question: str) -> bool:
    """Ask, and return whether the answer is yes. Raises InvalidValueError without a terminal."""
    if not at_terminal():
        raise InvalidValueError("there is no terminal to ask at; --yes deletes without asking")
    return click.confirm(question, err=True)


def at_terminal() -> bool:
    """Whether there is somebody to ask."""
    return bool(sys.stdin and sys.stdin.isatty())
