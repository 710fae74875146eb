"""Finding: one result of a check, how bad it is, and what to do about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """OK; NOTE: worth knowing; WARNING: works, but worse than it could; ERROR: does not work."""

    OK = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """topic: what was checked, a word or two. text: what was found.

    remedy: a command or a sentence; None where there is nothing to do. exit_code: with which a
    command ends that meets this error.
    """

    severity: Severity
    topic: str
    text: str
    remedy: str | None = None
    exit_code: int = 0


def ok(topic: str, text: str) -> Finding:
    """Return a finding that is as it should be."""
    return Finding(Severity.OK, topic, text)


def note(topic: str, text: str, remedy: str | None = None) -> Finding:
    """Return a finding that is worth knowing; nothing is wrong."""
    return Finding(Severity.NOTE, topic, text, remedy)


def warning(topic: str, text: str, remedy: str) -> Finding:
    """Return a finding about what works, but worse than it could, or not for long."""
    return Finding(Severity.WARNING, topic, text, remedy)


def error(topic: str, text: str, remedy: str, exit_code: int = 1) -> Finding:
    """Return a finding about what does not work."""
    return Finding(Severity.ERROR, topic, text, remedy, exit_code)


def exit_code_of(findings: Sequence[Finding]) -> int:
    """Return the exit code of the first error, or 0."""
    return next((found.exit_code for found in findings if found.severity is Severity.ERROR), 0)
