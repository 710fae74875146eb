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
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.engine.prompt import Prompt
from localspec.stats import Stats

# In no prompt set: after it, no cache shares a beginning with a prompt to come.
_OTHER_TEXT = "1 2 3 4 5 6 7 8 9"
WARM_UP_TOKENS = 24
_SEEDS = 2**64


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
    configurations: Sequence[LoadedConfiguration],
    prompts: Sequence[Sequence[int]],
    *,
    rounds: int,
    options: Mapping[str, Any],
    seed: int,
    cancel: threading.Event,
) -> Iterator[Run]:
    """Warm up, then yield each run as it ends, until `cancel` is set.

    options: those of GenerationConfig, without seed and depth. seed: of the first prompt in the
    first round; each further prompt and round has the next.

    Every other round has the configurations in reverse order: A B, B A, A B. A run that was
    cancelled halfway is not yielded.
    """
    for each in configurations:
        settings = {**options, "seed": seed, "depth": each.configuration.depth}
        warm_up(each.engine, cancel, **settings)
    for number in range(rounds):
        for task, prompt in enumerate(prompts):
            settings = {**options, "seed": seed_of(seed, number * len(prompts) + task)}
            for each in configurations if number % 2 == 0 else reversed(configurations):
                result = write_text(each, prompt, settings, cancel)
                if cancel.is_set():
                    return
                yield Run(each.name, task, number, result.token_ids, result.stats)


def warm_up(engine: Engine, cancel: threading.Event | None = None, **options: Any) -> None:
    """Generate a few tokens: the first passes of a model are slow. options: of GenerationConfig."""
    engine.generate(_OTHER_TEXT, cancel=cancel, **{**options, "max_tokens": WARM_UP_TOKENS})


def seed_of(first: int, texts: int) -> int:
    """The seed of the text after so many texts. first: that of the first one."""
    return (first + texts) % _SEEDS


def write_text(
    configuration: LoadedConfiguration,
    prompt: Prompt,
    settings: Mapping[str, Any],
    cancel: threading.Event,
) -> Result:
    """Generate with empty caches. settings: of GenerationConfig, without the depth."""
    _clear_caches(configuration, settings, cancel)
    return _generate(configuration, prompt, settings, cancel)


def _generate(
    configuration: LoadedConfiguration,
    prompt: Prompt,
    settings: Mapping[str, Any],
    cancel: threading.Event,
) -> Result:
    depth = configuration.configuration.depth
    return configuration.engine.generate(prompt, cancel=cancel, **{**settings, "depth": depth})


def _clear_caches(
    configuration: LoadedConfiguration, settings: Mapping[str, Any], cancel: threading.Event
) -> None:
    """Remove the last prompt from all caches: it may be the next one, too."""
    _generate(configuration, _OTHER_TEXT, {**settings, "max_tokens": 1}, cancel)
    for cache in configuration.engine.drafter_set.sequences.values():
        cache.truncate(0)
