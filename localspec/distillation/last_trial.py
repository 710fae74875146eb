"""Last trial: what the target really accepts of drafters, on prompts nobody was trained on."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from localspec.distillation.texts import Stopped
from localspec.engine.engine import Engine
from localspec.generation_config import GenerationOptions
from localspec.models.speed_up import best_speed
from localspec.stats import Stats, sum_of

# Tokens of each text, and of each draft.
TOKENS, DEPTH = 96, 4
# The temperatures at which drafts are tried: the likeliest token, and what many people chat at.
TEMPERATURES = (0.0, 0.8)
_SEED = 1
# Answers of a trial that are kept, and the letters of their prompts.
_SAMPLES, _PROMPT = 3, 400


@dataclass(frozen=True, slots=True)
class Sample:
    """An answer as it was written. prompt: its end. pieces: the text and origin of each token."""

    prompt: str
    pieces: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Trial:
    """What one configuration did at one temperature.

    accepted: the share of drafted tokens that became text; 0 for plain decoding. tokens_per_step:
    of the target's passes. drafting: the share of steps with a draft. by_place: the share of drafts
    whose 1st, 2nd, ... token became text. step_costs: the expected time of a step with a draft of
    1, 2, ... tokens, in steps of plain decoding. prompts: how many were answered. samples: a few
    answers.
    """

    name: str
    temperature: float
    accepted: float
    tokens_per_step: float
    tokens_per_second: float
    drafting: float = 1.0
    by_place: Sequence[float] = ()
    step_costs: Sequence[float] = ()
    prompts: int = 1
    samples: Sequence[Sample] = ()

    @property
    def expected_speed(self) -> float:
        """The speed to expect at the depth that pays most, as a multiple of plain decoding's."""
        return best_speed(
            [self.drafting * share for share in self.by_place],
            [1 + self.drafting * (cost - 1) for cost in self.step_costs],
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, without the texts."""
        return {
            "name": self.name,
            "temperature": self.temperature,
            "accepted": self.accepted,
            "tokens_per_step": self.tokens_per_step,
            "tokens_per_second": self.tokens_per_second,
            "expected_speed": self.expected_speed,
            "accepted_by_place": list(self.by_place),
            "prompts": self.prompts,
        }


def try_drafter(
    engine: Engine,
    name: str,
    prompts: Sequence[Sequence[int]],
    temperature: float,
    cancel: threading.Event,
    *,
    step_costs: Sequence[float] = (),
) -> Trial:
    """Let the target write texts with the drafts of the engine's drafters, DEPTH tokens each.

    cancel: set to end it early. Raises Stopped then. step_costs: as in Trial.
    """
    options: GenerationOptions = {
        "max_tokens": TOKENS,
        "temperature": temperature,
        "seed": _SEED,
        "logprobs": False,
    }
    if engine.drafter_set.names:
        options["depth"] = DEPTH
    # The first text takes longer than later ones.
    warm_up: GenerationOptions = {**options, "max_tokens": DEPTH}
    engine.generate(list(prompts[0]), **warm_up)
    stats, samples = list[Stats](), list[Sample]()
    began = perf_counter()
    for prompt in prompts:
        with engine.stream(list(prompt), cancel=cancel, **options) as running:
            stats.append(running.result().stats)
        if len(samples) < _SAMPLES:
            pieces = [(token.text, token.origin) for token in running.tokens]
            samples.append(Sample(engine.detokenize(list(prompt))[-_PROMPT:], pieces))
    seconds = perf_counter() - began
    if cancel.is_set():
        raise Stopped
    total = sum_of(stats)
    return Trial(
        name,
        temperature,
        total.acceptance_rate or 0.0,
        total.tokens_per_step or 0.0,
        total.generated_tokens / seconds,
        total.drafting_steps / max(1, total.steps),
        [accepted / total.drafting_steps for accepted in total.accepted_per_position],
        step_costs,
        len(prompts),
        samples,
    )
