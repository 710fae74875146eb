"""Audit: score a text again, plainly, and say whether its seed really gives it.

Two caches go through the recorded text side by side. One takes a token per pass, as plain decoding
does; the other takes the steps the text was made in. Where the plain one would have drawn another
token, either floats explain it, because both tokens are as near a tie as floats differ between the
two (the divergence certificate), or it is a bug.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from localspec.engine.engine import Engine
from localspec.engine.recipe import Recipe
from localspec.llama.context import Context
from localspec.sampling.filters import Row
from localspec.sampling.noise import Noise
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.rules import BONUS, CORRECTED, PLAIN

Verdict = Literal["NUMERIC", "BUG"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """A token that plain decoding would not have drawn.

    index: which generated token, from 0. recorded, plain: the token in the text, and plain
    decoding's. gap: by how much the plain one's score (logit over temperature, plus noise) is
    above. verdict: NUMERIC if `gap` is within `tolerance`, or if the logits of the step itself
    give the recorded token; else BUG.
    """

    index: int
    recorded: int
    plain: int
    gap: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Report:
    """What the audit found.

    tokens: how many were scored. same_text: whether each was asked to be what the seed gives, or
    only to be possible. largest_difference: of any logit between the two ways of scoring.
    tolerance: how near a tie counts as one: twice that, over the temperature.
    """

    tokens: int
    same_text: bool
    largest_difference: float
    tolerance: float
    divergences: list[Divergence]

    @property
    def has_bug(self) -> bool:
        """Whether something is there that floats do not explain."""
        return any(each.verdict == "BUG" for each in self.divergences)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A text as `--json` records it."""

    recipe: Recipe
    token_ids: Sequence[int]
    origins: Sequence[str]
    seed: int
    rule: str


@dataclass(frozen=True, slots=True)
class _Scored:
    """One generated token with the logits that decided it, scored plainly and by step."""

    index: int
    token: int
    prefix: Prefix
    plain: Row
    stepped: Row

    @property
    def leaves_the_grammar(self) -> bool:
        """Whether there is a grammar, and this token has no place in it."""
        constraint = self.prefix.constraint
        return constraint is not None and not constraint.allowed()[self.token]

    @property
    def difference(self) -> float:
        """The largest difference of any logit between the two."""
        both = np.isfinite(self.plain) & np.isfinite(self.stepped)
        return float(np.abs(self.plain[both] - self.stepped[both]).max(initial=0.0))


def audit(engine: Engine, recorded: Recorded) -> Report:
    """Score a recorded text again with the engine's target.

    Under the rules `token` and `block` a seed does not give one text; there the audit asks whether
    each token could have been drawn at all.
    """
    recipe = recorded.recipe
    settings = recipe.settings(seed=recorded.seed, rule=recorded.rule)
    sampler = engine.slot.sampler(settings, len(recipe.prompt_token_ids))
    same_text = settings.verification.same_text
    judge = _drawn if same_text else _possible
    scored_tokens, difference, divergences = 0, 0.0, []
    with engine.slot.new_context(settings) as plain, engine.slot.new_context(settings) as stepped:
        for scored in _rescored(recorded, sampler, plain, stepped):
            scored_tokens += 1
            difference = max(difference, scored.difference)
            divergence = judge(scored, sampler)
            if divergence:
                divergences.append(divergence)
            if scored.leaves_the_grammar:
                break  # after that nothing is right or wrong
    tolerance = 2 * difference / (sampler.params.temperature or 1.0)
    judged = [_forgiven(each, tolerance) for each in divergences]
    return Report(scored_tokens, same_text, difference, tolerance, judged)


def _rescored(
    recorded: Recorded, sampler: Sampler, plain: Context, stepped: Context
) -> Iterator[_Scored]:
    """Both caches over the text, step by step."""
    text = list(recorded.recipe.prompt_token_ids)
    prefix = sampler.prefix(text)
    for context in (plain, stepped):
        if len(text) > 1:
            context.extend(text[:-1])
    # The widths of its passes are recorded, padding included.
    stepped.least_rows = 1
    index = 0
    for tokens, width in _steps(recorded):
        # What was drafted and rejected is not recorded; only that its rows were there matters.
        draft = Draft([*tokens[:-1], *[0] * (width - len(tokens))])
        rows = stepped.score(text[-1], draft).logits
        for row, token in zip(rows, tokens, strict=False):
            yield _Scored(index, token, prefix, plain.score(text[-1], NOTHING).logits[0], row)
            plain.commit([])
            text.append(token)
            prefix = prefix.then(token)
            index += 1
        stepped.commit(range(len(tokens) - 1))


def _steps(recorded: Recorded) -> Iterator[tuple[list[int], int]]:
    """The tokens of each step, and the rows of its pass."""
    widths = iter(recorded.recipe.widths)
    tokens: list[int] = []
    for token, origin in zip(recorded.token_ids, recorded.origins, strict=True):
        tokens.append(token)
        if origin in (CORRECTED, BONUS, PLAIN):
            yield tokens, max(len(tokens), next(widths, 0))
            tokens = []
    if tokens:
        yield tokens, max(len(tokens), next(widths, 0))


def _drawn(scored: _Scored, sampler: Sampler) -> Divergence | None:
    """Whether the seed draws this token; NUMERIC if the step's own logits explain another."""
    plain = sampler.distribution(scored.plain, scored.prefix)
    drawn = sampler.sample(plain, scored.prefix)
    if drawn == scored.token:
        return None
    stepped = sampler.distribution(scored.stepped, scored.prefix)
    explained = sampler.sample(stepped, scored.prefix) == scored.token
    gap = _gap(scored, drawn, sampler) if plain.index(scored.token) is not None else math.inf
    return Divergence(scored.index, scored.token, drawn, gap, "NUMERIC" if explained else "BUG")


def _gap(scored: _Scored, drawn: int, sampler: Sampler) -> float:
    """How much the plain token's score is above the recorded one's."""
    ids = np.array([drawn, scored.token])
    scores = scored.plain[ids].astype(np.float64)
    if sampler.params.temperature and isinstance(sampler.randomness, Noise):
        scores = scores / sampler.params.temperature
        scores += sampler.randomness.gumbel(scored.prefix.position, ids)
    return float(scores[0] - scores[1])


def _possible(scored: _Scored, sampler: Sampler) -> Divergence | None:
    """Whether this token can be drawn; NUMERIC if only by the step's own logits."""
    plain = sampler.distribution(scored.plain, scored.prefix)
    if plain.index(scored.token) is not None:
        return None
    stepped = sampler.distribution(scored.stepped, scored.prefix)
    verdict: Verdict = "BUG" if stepped.index(scored.token) is None else "NUMERIC"
    return Divergence(scored.index, scored.token, plain.token(0), math.inf, verdict)


def _forgiven(divergence: Divergence, tolerance: float) -> Divergence:
    """The same, but NUMERIC where the two tokens are a near-tie."""
    if divergence.gap > tolerance:
        return divergence
    return replace(divergence, verdict="NUMERIC")
