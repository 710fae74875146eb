"""Last trial: what the target really accepts of drafters, on prompts nobody was trained on."""

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

from localspec.distillation.texts import Stopped
from localspec.engine.engine import Engine
from localspec.generation_config import GenerationOptions

# Tokens of each text, and of each draft.
TOKENS, DEPTH = 96, 4
# The temperatures at which drafts are tried: the likeliest token, and what many people chat at.
TEMPERATURES = (0.0, 0.8)
_SEED = 1


@dataclass(frozen=True, slots=True)
class Trial:
    """What one configuration did at one temperature.

    accepted: the share of drafted tokens that became text; 0 for plain decoding. tokens_per_step:
    of the target's passes.
    """

    name: str
    temperature: float
    accepted: float
    tokens_per_step: float
    tokens_per_second: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def try_drafter(
    engine: Engine,
    name: str,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    cancel: threading.Event,
) -> Trial:
    """Let the target write texts with the drafts of the engine's drafters, DEPTH tokens each.

    cancel: set to end it early. Raises Stopped then.
    """
    options: GenerationOptions = {
        "max_tokens": TOKENS,
        "temperature": temperature,
        "seed": _SEED,
    }
    if engine.drafter_set.names:
        options["depth"] = DEPTH
    # The first text takes longer than later ones.
    warm_up: GenerationOptions = {**options, "max_tokens": DEPTH}
    engine.generate(list(prompts[0]), **warm_up)
    began = perf_counter()
    stats = [engine.generate(list(prompt), cancel=cancel, **options).stats for prompt in prompts]
    seconds = perf_counter() - began
    if cancel.is_set():
        raise Stopped
    drafted, steps = sum(each.drafted for each in stats), sum(each.steps for each in stats)
    tokens = sum(each.generated_tokens for each in stats)
    return Trial(
        name,
        temperature,
        sum(each.accepted for each in stats) / max(1, drafted),
        tokens / max(1, steps),
        tokens / seconds,
    )
