"""Finding: one thing that was looked at, how bad it is, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """OK, or worth knowing, or worth mending, or something does not work."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """topic: a word or two. remedy: a command or a sentence; None where there is nothing to do.

    exit_code: of an error, what a command that meets it would end with.
    """

    severity: Severity
    topic: str
    text: str
    remedy: str | None = None
    exit_code: int = 0


def ok(topic: str, text: str) -> Finding:
    """As it should be."""
    return Finding(Severity.OK, topic, text)


def note(topic: str, text: str, remedy: str | None = None) -> Finding:
    """Worth knowing; nothing is wrong."""
    return Finding(Severity.NOTE, topic, text, remedy)


def warning(topic: str, text: str, remedy: str) -> Finding:
    """Works, but slower or less than it could, or not for long."""
    return Finding(Severity.WARNING, topic, text, remedy)


def error(topic: str, text: str, remedy: str, exit_code: int = 1) -> Finding:
    """Does not work."""
    return Finding(Severity.ERROR, topic, text, remedy, exit_code)


def exit_code_of(findings: Sequence[Finding]) -> int:
    """That of the first error, or 0."""
    return next((found.exit_code for found in findings if found.severity is Severity.ERROR), 0)
