"""Workload: the texts that everything which is measured writes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SEEDS = 2**64


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
