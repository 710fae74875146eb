"""Interruption: what ended a text that its reader had not ended."""

from dataclasses import dataclass

from localspec.errors import LocalspecError


class InterruptedTextError(LocalspecError):
    """A text was ended by another party than its reader: its engine was closed or switched."""


@dataclass(frozen=True, slots=True)
class Interruption:
    """event: what has happened. remedy: what must be done before a text can be written again."""

    event: str
    remedy: str = ""

    def error(self, what: str, way: str) -> InterruptedTextError:
        """The error for the reader. what: what was ended. way: how to get the rest of it."""
        ways = " and ".join(filter(None, (self.remedy, way)))
        return InterruptedTextError(f"{self.event} before {what} had ended; {ways}")


CLOSED = Interruption("the engine was closed", "load another with localspec.load")
SWITCHED = Interruption("the engine was switched to another model or drafter")
WARMED_UP = Interruption("the engine was warmed up")


def in_a_step(what: str) -> LocalspecError:
    """The error of what cannot be done in the middle of a step. what: it."""
    return LocalspecError(
        f"{what} in the middle of a step, as in `explain`: take a note there, and do it when the "
        "next token has come"
    )
