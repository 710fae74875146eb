"""Running: every contender on every prompt, by turns, so that a drifting machine slows all alike.

Tokens per second are those of generation: the target's evaluation of the prompt is apart, as it is
the same for all; what drafters do with the prompt is their own time, and counts.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.bench.configurations import Lane
from localspec.engine.generation import Result
from localspec.engine.prompt import Prompt
from localspec.stats import Stats

# Of no prompt set. What comes before it in a cache is gone after it.
_OTHER_TEXT = "1 2 3 4 5 6 7 8 9"
_WARM_UP = 24
_SEEDS = 2**64


@dataclass(frozen=True, slots=True)
class Run:
    """One text. task: which prompt, from 0. round: from 0.

    All contenders have the same seed there; another task or round has another.
    """

    contender: str
    task: int
    round: int
    token_ids: list[int]
    stats: Stats


def runs(
    lanes: Sequence[Lane],
    prompts: Sequence[Sequence[int]],
    *,
    rounds: int,
    options: Mapping[str, Any],
    seed: int,
    cancel: threading.Event,
) -> Iterator[Run]:
    """Warm up, then give each run as it ends; setting `cancel` ends them all.

    options: as for GenerationConfig, but for seed and depth. seed: of the first prompt, round one;
    each further prompt and round has the next.

    Each round turns the order of the contenders around: A B, B A, A B. A run that was cancelled
    half way is not given.
    """
    for lane in lanes:
        _generate(lane, _OTHER_TEXT, {**options, "max_tokens": _WARM_UP, "seed": seed}, cancel)
    for number in range(rounds):
        for task, prompt in enumerate(prompts):
            own_seed = (seed + number * len(prompts) + task) % _SEEDS
            settings = {**options, "seed": own_seed}
            for lane in lanes if number % 2 == 0 else reversed(lanes):
                _forget(lane, settings, cancel)
                result = _generate(lane, prompt, settings, cancel)
                if cancel.is_set():
                    return
                yield Run(lane.name, task, number, result.token_ids, result.stats)


def _generate(
    lane: Lane, prompt: Prompt, settings: Mapping[str, Any], cancel: threading.Event
) -> Result:
    return lane.engine.generate(
        prompt, cancel=cancel, **{**settings, "depth": lane.contender.depth}
    )


def _forget(lane: Lane, settings: Mapping[str, Any], cancel: threading.Event) -> None:
    """No cache holds anything of the prompt to come, whichever was the last one."""
    _generate(lane, _OTHER_TEXT, {**settings, "max_tokens": 1}, cancel)
    if lane.engine.drafting.context:
        lane.engine.drafting.context.truncate(0)
