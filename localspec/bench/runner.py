"""Runner: measures every configuration on every prompt.

The configurations take turns, so that a machine that becomes slower slows all of them alike.

Tokens per second are those of generation. The time in which the target reads the prompt is not part
of it, as it is the same for all configurations; what drafters do with the prompt is.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from localspec.bench.configurations import LoadedConfiguration
from localspec.bench.workload import Workload
from localspec.drafters.suffix import Suffix
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.engine.slot import Slot
from localspec.stats import Stats

# In no prompt set.
_OTHER_TEXT = "1 2 3 4 5 6 7 8 9"
WARM_UP_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Run:
    """One measured text. configuration: its name. task: index of the prompt. round: from 0.

    The seed depends on task and round only, so all configurations have the same seeds.
    """

    configuration: str
    task: int
    round: int
    token_ids: list[int]
    stats: Stats

    @property
    def tokens_per_second(self) -> float:
        """The speed of generation."""
        return self.stats.generated_tokens / self.stats.seconds.generate


def run_rounds(
    configurations: Sequence[LoadedConfiguration], workload: Workload, cancel: threading.Event
) -> Iterator[Run]:
    """Warm up, then yield each run as it ends, until `cancel` is set.

    Every other round has the configurations in reverse order: A B, B A, A B. A run that was
    cancelled halfway is not yielded.
    """
    for each in configurations:
        warm_up(each.engine, cancel, **workload.options_of(0), depth=each.configuration.depth)
    for number in range(workload.rounds):
        for task, prompt in enumerate(workload.prompts):
            options = workload.options_of(number * len(workload.prompts) + task)
            for each in configurations if number % 2 == 0 else reversed(configurations):
                result = write_text(each, prompt, options, cancel)
                if cancel.is_set():
                    return
                yield Run(each.name, task, number, result.token_ids, result.stats)


def warm_up(engine: Engine, cancel: threading.Event | None = None, **options: Any) -> None:
    """Generate a few tokens: the first passes of a model are slow. options: of GenerationConfig."""
    engine.generate(_OTHER_TEXT, cancel=cancel, **{**options, "max_tokens": WARM_UP_TOKENS})


def write_text(
    configuration: LoadedConfiguration,
    prompt: Sequence[int],
    options: Mapping[str, Any],
    cancel: threading.Event,
) -> Result:
    """Generate with empty caches. options: of GenerationConfig, without the depth."""
    engine, depth = configuration.engine, configuration.configuration.depth
    clear(engine.slots.own)
    return engine.generate(prompt, cancel=cancel, **options, depth=depth)


def clear(slot: Slot) -> None:
    """Empty the caches of a slot, and let its drafters forget earlier texts."""
    with slot.lock:
        slot.stop()
        drafter_set = slot.loaded.drafter_set
        for cache in (slot.target, *drafter_set.sequences.values()):
            cache.truncate(0)
        for drafter in drafter_set.drafters:
            if isinstance(drafter, Suffix):
                drafter.forget()
