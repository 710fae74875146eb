"""Workload: the texts that everything which is measured writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SEEDS = 2**64
# The first tokens may come at once.
_LEAST_TOKENS = 4


def speed_behind_first(tokens: int, first: float, last: float) -> float | None:
    """Tokens per second from the first token on; None for a text that is too short to tell.

    first, last: when these tokens came, in seconds.
    """
    return (tokens - 1) / (last - first) if tokens >= _LEAST_TOKENS and last > first else None


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts, how often they are measured, and how their texts are written.

    prompts: the token ids of each. rounds: the most. options: those of GenerationConfig, without
    seed and depth. seed: of the first text in the first round; each further text has the next.
    """

    prompts: Sequence[Sequence[int]]
    rounds: int
    options: Mapping[str, Any]
    seed: int

    def options_of(self, number: int) -> dict[str, Any]:
        """The options of a text, without the depth. number: how many texts come before it."""
        return {**self.options, "seed": (self.seed + number) % _SEEDS}
