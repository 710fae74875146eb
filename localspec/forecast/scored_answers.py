"""Scored answers: answers of the target, and how often each drafter would have been right."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.control.base_costs import WIDEST
from localspec.drafters.model_free import MODEL_FREE
from localspec.engine.engine import Engine
from localspec.engine.prompt import Prompt
from localspec.forecast.answers import RecordedAnswer, write_answer
from localspec.forecast.model_free import ReplayedDrafts, first_token_accuracy, replay_drafts
from localspec.forecast.recorded_drafts import (
    RecordedDraft,
    ReplayedDrafter,
    must_be_recorded,
    record_drafts,
)
from localspec.forecast.replay import ScoredText, score_with_drafter
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.llama.sequence import KVSequence
from localspec.speculation.drafter import Drafter

# Is called with what is being done now.
Progress = Callable[[str], None]


@dataclass(slots=True)
class ScoredAnswers:
    """Answers, and the drafters tried on them.

    drafts: of each model-free drafter, by name: one entry per answer. model: the drafter that is a
    model, if there is one. scored: by it, one entry per answer; empty without it. recorded: the
    drafters that drafted while the answers were written, such as heads. drafters: those of the
    engine that were tried; of several draft models only the first is.
    """

    answers: list[RecordedAnswer]
    drafts: dict[str, list[ReplayedDrafts]] = field(default_factory=dict)
    scored: list[ScoredText] = field(default_factory=list)
    model: Drafter | None = None
    recorded: list[ReplayedDrafter] = field(default_factory=list)
    drafters: list[Drafter] = field(default_factory=list)

    @property
    def rates(self) -> dict[str, float]:
        """The share of each drafter's tokens that are right, at any place, by name."""
        rates = {name: first_token_accuracy(each) for name, each in self.drafts.items()}
        for head in self.recorded:
            replayed = [head.replayed(number) for number in range(len(self.answers))]
            rates[head.name] = first_token_accuracy(replayed)
        if self.model:
            rates[self.model.name] = float(
                np.concatenate([each.coupled for each in self.scored]).mean()
            )
        return {name: rate for name, rate in rates.items() if rate is not None}


def score_answers(
    engine: Engine,
    context: KVSequence,
    prompts: Sequence[Prompt],
    options: GenerationOptions,
    progress: Progress = lambda _: None,
) -> ScoredAnswers:
    """Generate an answer to each prompt, and try the drafters on it.

    Drafters that cannot be tried are left out, and `progress` is told which. context: another cache
    of the engine's target. options: the seed is that of the first answer; each further one has the
    next.
    """
    with_model = next(
        (
            each
            for each in engine.drafter_set.members
            if each.sequence and not must_be_recorded(each)
        ),
        None,
    )
    small = with_model.sequence if with_model else None
    found = ScoredAnswers([], model=with_model.drafter if with_model else None)
    heads = [each.drafter for each in engine.drafter_set.members if must_be_recorded(each)]
    tried = {*MODEL_FREE, *([found.model.name] if found.model else []), *(h.name for h in heads)}
    found.drafters = [each for each in engine.drafter_set.drafters if each.name in tried]
    if left_out := [name for name in engine.drafter_set.names if name not in tried]:
        progress(f"left out: {', '.join(left_out)}; a plan tries only the first draft model")
    recorded: list[list[list[RecordedDraft]]] = [[] for _ in heads]
    first_seed = GenerationConfig.of(**options).seed
    for number, prompt in enumerate(prompts):
        progress(f"writing answer {number + 1} of {len(prompts)}")
        seeded: GenerationOptions = {**options, "seed": (first_seed + number) % 2**64}
        answer, distributions = write_answer(engine, context, prompt, **seeded)
        found.answers.append(answer)
        if small:
            scored = score_with_drafter(
                small,
                answer.prompt,
                answer.tokens,
                distributions,
                answer.sampler,
                n_vocab=engine.model.n_vocab,
                limit=answer.limit,
            )
            found.scored.append(scored)
        for head, drafts in zip(heads, recorded, strict=True):
            drafts.append(record_drafts(engine, head, prompt, **seeded)[1])
    found.recorded = [
        ReplayedDrafter(head, found.answers, drafts)
        for head, drafts in zip(heads, recorded, strict=True)
    ]
    for name, drafter in MODEL_FREE.items():
        # A new one for each answer: what a drafter copies from earlier answers is luck.
        found.drafts[name] = [replay_drafts(drafter(), each, WIDEST - 1) for each in found.answers]
    return found
