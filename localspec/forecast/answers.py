"""Answers: texts the target writes plainly, and what each drafter makes of every token of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from localspec.engine.engine import Engine
from localspec.engine.generation import Generation
from localspec.engine.prompt import Prompt
from localspec.forecast.replay import Walk
from localspec.generation_config import GenerationOptions
from localspec.llama.context import Context
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Choice
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Drafter, Limit, Outcome
from localspec.speculation.policy import FixedDepth
from localspec.speculation.rules import RULES, Rows, Verdict, coupled
from localspec.stats import Stats
from localspec.utils.tokens import common_prefix


@dataclass(frozen=True, slots=True)
class Answer:
    """One text, written by the target alone.

    prompt, tokens: ids. limit: how many tokens it might have had. sampler: what chose them. stats:
    of writing it.
    """

    prompt: list[int]
    tokens: list[int]
    limit: int
    sampler: Sampler
    stats: Stats

    @property
    def text(self) -> list[int]:
        """Prompt and answer."""
        return [*self.prompt, *self.tokens]


def write(
    engine: Engine, context: Context, prompt: Prompt, **options: Unpack[GenerationOptions]
) -> tuple[Answer, list[Distribution]]:
    """An answer, and the distribution that each of its tokens was drawn from.

    context: another cache of the engine's target. The rule is `coupled`, whatever is asked for.
    """
    options |= {"logprobs": False, "rule": "coupled"}
    running = engine.stream(prompt, **options)
    settings, ids = running.settings, running.prompt
    sampler = engine.slot.sampler(settings, len(ids))
    laws: list[Distribution] = []

    def recorded(draft: Draft, target: Rows, position: int, choice: Choice) -> Verdict:
        laws.append(target(ROOT).kept())
        return coupled(draft, lambda _: laws[-1], position, choice)

    rule = replace(RULES["coupled"], verify=recorded)
    loop = Decoder(context, FixedDepth((), 0), rule, sampler, list(ids), Stats())
    written = Generation(loop, context, engine.model, settings, context=engine.context).result()
    limit = min(settings.max_tokens, engine.context - len(ids))
    return Answer(ids, written.token_ids, limit, sampler, written.stats), laws


@dataclass(frozen=True, slots=True)
class Copies:
    """What a drafter that only looks at the text would propose at each place of one answer.

    proposed, right: (n,) how many tokens, and how many of them, from the first on, are the
    answer's. limit: as in Answer.
    """

    proposed: NDArray[np.int_]
    right: NDArray[np.int_]
    limit: int

    def __len__(self) -> int:
        return self.proposed.size


def copies(drafter: Drafter, answer: Answer, deepest: int) -> Copies:
    """Run the drafter over an answer; it is deterministic, so this is what it will do.

    Shorter proposals are beginnings of longer ones, so one of `deepest` tokens tells all.
    """
    drafter.begin(answer.prompt)
    proposed, right = [], []
    limit = Limit(deepest, answer.sampler.prefix(answer.prompt), answer.sampler)
    for place, token in enumerate(answer.tokens):
        tokens = drafter.propose(limit).tokens
        proposed.append(len(tokens))
        right.append(common_prefix(tokens, answer.tokens[place:]))
        drafter.observe(Outcome([token], 0))
    return Copies(np.array(proposed), np.array(right), answer.limit)


def walk_copies(copies: Copies, depth: int) -> Walk:
    """The steps that decoding this answer takes; nothing about them is left to chance."""
    by_depth = np.zeros(depth + 1)
    drafted = accepted = calls = start = switches = 0
    depth_before = -1
    while start < len(copies):
        depth_here = min(depth, copies.limit - start - 1, int(copies.proposed[start]))
        stands = min(depth_here, int(copies.right[start]))
        by_depth[depth_here] += 1
        switches += depth_here != depth_before
        depth_before = depth_here
        drafted, accepted, calls = drafted + depth_here, accepted + stands, calls + 1
        start += stands + 1
    return Walk(calls, drafted, accepted, by_depth, switches)


def share_right(copies: Sequence[Copies]) -> float | None:
    """Of the first tokens it proposes, the share that is right; None if it proposes nothing."""
    tried = sum(int((each.proposed > 0).sum()) for each in copies)
    return sum(int((each.right > 0).sum()) for each in copies) / tried if tried else None
