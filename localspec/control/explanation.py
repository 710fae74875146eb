"""Explanation: the reason of a decision, as `--explain` shows it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.control.candidate import Candidate
from localspec.control.running_draft import Option


@dataclass(frozen=True, slots=True)
class Explanation:
    """The reason of a decision.

    expected: the expected number of committed tokens. rate, plain_rate: expected tokens per second
    of the chosen step, and of a plain step. ready: how many tokens of the draft are drawn already.
    """

    drafter: str | None
    depth: int
    expected: float
    rate: float
    plain_rate: float
    reason: str
    ready: int = 0


Explain = Callable[[Explanation], None]


def why_nobody(candidates: Sequence[Candidate]) -> str | None:
    """Why no drafter can be asked in this text; None where that is not all of the reason."""
    if not all(each.is_shown for each in candidates):
        return "a head that had not paid for long reads no more"
    return None


def explanation(option: Option | None, plain: float, reason: str) -> Explanation:
    """Explain the choice of an option; None: of a plain step. plain: the seconds of that."""
    if option is None:
        return Explanation(None, 0, 1.0, 1 / plain, 1 / plain, reason)
    name = option.candidate.drafter.name
    if option.candidate.from_end:
        reason += ", from the end of the prompt"
    ready = min(option.candidate.ready, option.depth)
    return Explanation(name, option.depth, option.expected, option.rate, 1 / plain, reason, ready)
