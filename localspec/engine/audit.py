"""Audit: score a recorded text again and check that its seed gives each of its tokens.

Two contexts score the text. One evaluates a token per pass, as plain decoding does; the other
repeats the passes that the text was generated in. Where plain decoding would have drawn another
token, there are two explanations. Either the two tokens are a near-tie, within the rounding
difference measured between the two contexts (the divergence certificate), or there is a bug.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from localspec.engine.engine import Engine
from localspec.engine.recipe import Recipe
from localspec.gguf.long_rope import rotated_alike
from localspec.llama.context_params import DRAFT_ROWS
from localspec.llama.sequence import KVSequence
from localspec.loading.places import most_texts
from localspec.sampling.block_maxima import Ids, Row
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import Noise
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.sampling.stateful import Stateful
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.rules import BONUS, CORRECTED, PLAIN

DivergenceKind = Literal["NUMERIC", "BUG"]
# So many divergences are judged at the end, when the largest difference is known; where there are
# more, the earliest by what was found until then, as each keeps two rows of the vocabulary.
_MOST_ROWS = 64
# Of so many tokens that are drawn instead of the recorded one, rounding may leave out each.
_MOST_RIVALS = 32
# So many rows between the extremes are tried.
_RANDOM_ROWS = 32
# exp of more is no float64.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class Divergence:
    """A token that plain decoding would not have drawn.

    index: the number of the generated token, from 0. recorded: the token in the text. plain: the
    token of plain decoding. gap: the plain token's score (logit / temperature + noise) minus the
    recorded token's; infinite if plain decoding's filters leave the latter out. verdict: NUMERIC if
    the logits of the repeated pass give the recorded token, or plain decoding's may when none is
    changed by more than `AuditReport.largest_difference` (as far as it is known by then, where
    there are many divergences): then some keep it, and for each token before it some leave that
    one out, or give it a lower score. Else BUG.
    """

    index: int
    recorded: int
    plain: int
    gap: float
    verdict: DivergenceKind


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The result of an audit.

    tokens: the number of scored tokens. same_text: whether each token had to be the one that the
    seed gives; if False, it only had to be possible. largest_difference: the largest difference of
    a logit between the two contexts. tolerance: the largest gap of a near-tie of two tokens that
    the filters keep: 2 * largest_difference / temperature.
    """

    tokens: int
    same_text: bool
    largest_difference: float
    tolerance: float
    divergences: list[Divergence]

    @property
    def has_bug(self) -> bool:
        """Whether rounding does not explain one of the divergences."""
        return any(each.verdict == "BUG" for each in self.divergences)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A generated text as `--json` records it."""

    recipe: Recipe
    token_ids: Sequence[int]
    origins: Sequence[str]
    seed: int
    rule: str


@dataclass(frozen=True, slots=True)
class _Scored:
    """One recorded token, with its logits from plain decoding and from the repeated pass.

    prefix: the text before it, as plain decoding knows it. state: of the sampler, by the repeated
    passes.
    """

    index: int
    token: int
    prefix: Prefix
    plain: Row
    stepped: Row
    state: float | None

    @property
    def stepped_prefix(self) -> Prefix:
        """The text before it, as the repeated pass knows it."""
        return replace(self.prefix, state=self.state)

    @property
    def violates_grammar(self) -> bool:
        """Whether there is a grammar that forbids this token."""
        constraint = self.prefix.constraint
        return constraint is not None and not constraint.allowed()[self.token]

    @property
    def difference(self) -> float:
        """The largest absolute difference between the two rows of logits."""
        both = np.isfinite(self.plain) & np.isfinite(self.stepped)
        return float(np.abs(self.plain[both] - self.stepped[both]).max(initial=0.0))

    def copied(self) -> "_Scored":
        """The same with rows of its own, which the next pass leaves alone."""
        return replace(self, plain=self.plain.copy(), stepped=self.stepped.copy())


def audit(engine: Engine, recorded: Recorded) -> AuditReport:
    """Score a recorded text again with the engine's target.

    Under the rules `token` and `block` a seed does not give one text, so the audit only checks that
    each token could have been drawn.
    """
    recipe = recorded.recipe
    settings = recipe.settings(seed=recorded.seed, rule=recorded.rule)
    sampler = engine.slots.own.sampler(settings, len(recipe.prompt_token_ids))
    same_text = settings.verification.same_text
    judge = _Judge(sampler, same_text=same_text)
    scored_tokens, difference = 0, 0.0
    divergences, unjudged = list[Divergence](), list[_Scored]()
    text = len(recipe.prompt_token_ids) + len(recorded.token_ids)
    n_ctx = max(text + 1, min(text + DRAFT_ROWS, engine.model.n_ctx_train))
    n_ctx = rotated_alike(engine.slots.own.loaded.header, n_ctx, recipe.cache_tokens)
    with (
        engine.slots.own.new_context(settings, n_ctx) as plain,
        engine.slots.own.new_context(settings, n_ctx) as stepped,
    ):
        most = most_texts(engine.slots.own.loaded.header, n_ctx, stepped.context.params.branches)
        for scored in _score_again(recorded, sampler, plain, stepped, may_share=most > 1):
            scored_tokens += 1
            difference = max(difference, scored.difference)
            if not judge.plain_gives(scored):
                unjudged.append(scored.copied())
            if len(unjudged) > _MOST_ROWS:
                divergences.append(judge.divergence(unjudged.pop(0), difference))
            if scored.violates_grammar:
                break  # after this token the grammar allows none, so nothing can be checked
    divergences += (judge.divergence(each, difference) for each in unjudged)
    tolerance = 2 * difference / (sampler.params.temperature or 1.0)
    return AuditReport(scored_tokens, same_text, difference, tolerance, divergences)


def _score_again(
    recorded: Recorded,
    sampler: Sampler,
    plain: KVSequence,
    stepped: KVSequence,
    *,
    may_share: bool,
) -> Iterator[_Scored]:
    """Score the text with both contexts, step by step.

    may_share: whether texts of this size may be in one cache.
    """
    text = list(recorded.recipe.prompt_token_ids)
    prefix = sampler.prefix(text)
    state = prefix.state
    shares = may_share and recorded.recipe.shared_cache
    with _cells_in_front(stepped, recorded) if shares else nullcontext():
        for context in (plain, stepped):
            if len(text) > 1:
                context.extend(text[:-1])
    # The recorded widths already include padding.
    stepped.set_width(1)
    index = 0
    for tokens, width in _recorded_steps(recorded):
        # Rejected tokens are not recorded; zeros stand for them, as only the row count matters.
        room = stepped.n_ctx - len(stepped.tokens)
        draft = Draft([*tokens[:-1], *[0] * (min(width, room) - len(tokens))])
        rows = stepped.score(text[-1], draft).logits
        for row, token in zip(rows, tokens, strict=False):
            plain_row = plain.score(text[-1], NOTHING).logits[0]
            scored = _Scored(index, token, prefix, plain_row, row, state)
            yield scored
            plain.commit([])
            text.append(token)
            moved = _state_after(sampler, row, scored.stepped_prefix, token)
            state = state if moved is None else moved
            prefix = prefix.then(token, _state_after(sampler, plain_row, prefix, token))
            index += 1
        stepped.commit(range(len(tokens) - 1))


def _state_after(sampler: Sampler, row: Row, prefix: Prefix, token: int) -> float | None:
    """The sampler's state after a token that this row gave; None where it stays as it is."""
    if prefix.state is None:
        return None
    return sampler.distribution(row, prefix).state_after(token)


@contextmanager
def _cells_in_front(stepped: KVSequence, recorded: Recorded) -> Iterator[None]:
    """Let the text's tokens lie in another order than they have, as beside other texts.

    There it took cells that others had left. Attention adds in the order of the cells, so that its
    last digits depend on it. Here another text leaves cells in front of the prompt.
    """
    stepped.context.resize(2)
    with stepped.context.new_sequence() as other:
        other.extend([0] * min(len(recorded.token_ids), other.n_ctx))
        yield


def _recorded_steps(recorded: Recorded) -> Iterator[tuple[list[int], int]]:
    """The tokens of each step and the number of rows of its pass."""
    # Rows of other texts count too: the library chooses kernels by all rows of a decode.
    widths = (min(each, DRAFT_ROWS) for each in recorded.recipe.decode_rows)
    tokens: list[int] = []
    for token, origin in zip(recorded.token_ids, recorded.origins, strict=True):
        tokens.append(token)
        if origin in (CORRECTED, BONUS, PLAIN):
            yield tokens, max(len(tokens), next(widths, 0))
            tokens = []
    if tokens:
        yield tokens, max(len(tokens), next(widths, 0))


class _Judge:
    """Tells whether rounding explains a token that plain decoding's logits do not give.

    same_text: whether the seed must draw the recorded token; else it must only be possible.
    """

    def __init__(self, sampler: Sampler, *, same_text: bool) -> None:
        self._sampler = sampler
        self._same_text = same_text

    def plain_gives(self, scored: _Scored) -> bool:
        """Whether plain decoding's logits give the recorded token."""
        return self._holds(self._sampler.distribution(scored.plain, scored.prefix), scored)

    def stepped_gives(self, scored: _Scored) -> bool:
        """Whether those of the repeated pass give it."""
        law = self._sampler.distribution(scored.stepped, scored.stepped_prefix)
        return self._holds(law, scored)

    def divergence(self, scored: _Scored, difference: float) -> Divergence:
        """Describe the token. difference: how much logits differ by rounding."""
        sampler = self._sampler
        plain = sampler.distribution(scored.plain, scored.prefix)
        drawn = sampler.sample(plain, scored.prefix) if self._same_text else plain.token(0)
        has_gap = plain.index(scored.token) is not None or not sampler.params.temperature
        gap = _gap(scored, drawn, sampler, plain) if has_gap else math.inf
        explained = self.stepped_gives(scored)
        explained = explained or self._is_rounding(scored, plain, difference)
        return Divergence(scored.index, scored.token, drawn, gap, "NUMERIC" if explained else "BUG")

    def _is_rounding(self, scored: _Scored, plain: Distribution, difference: float) -> bool:
        """Whether the token is within rounding: no logit differs from plain decoding's by more.

        Then some row keeps it, and for each token that would be drawn in its place, also where this
        is lower and the recorded one higher, some row leaves it out.
        """
        kept = [
            (_logit(law, scored.token), law.temperature)
            for law in self._near(scored, scored.token, difference)
        ]
        own = max(logit for logit, _ in kept)
        if own == -math.inf or not self._same_text:
            return own > -math.inf
        temperatures = {each for logit, each in kept if logit > -math.inf}

        def is_ahead(logits: Row, ids: Ids) -> NDArray[np.bool_]:
            noise = _noise(self._sampler, scored, np.append(ids, scored.token))
            gains = logits.astype(np.float64) - own
            gaps = [gains / each + noise[:-1] - noise[-1] for each in temperatures]
            return np.asarray(np.min(gaps, axis=0) > 0)

        ids = np.arange(len(plain)) if plain.ids is None else plain.ids
        rivals = ids[is_ahead(plain.logits, ids)]
        return rivals.size <= _MOST_RIVALS and not any(
            all(
                is_ahead(np.array([_logit(law, rival)]), np.array([rival])).all()
                for law in self._near(scored, rival, difference)
            )
            for rival in rivals.tolist()
        )

    def _near(self, scored: _Scored, token: int, difference: float) -> Iterator[Distribution]:
        """Distributions of rows that differ by rounding, those where a filter turns to the token.

        The token is lower or higher. So are those ahead of a place and, the other way, those behind
        it, for several places: that moves the mass ahead of the token, as top-p and typical-p see
        it, the entropy and the deviation. In some rows all are anything between.
        """
        plain = scored.plain
        low, high = plain - difference, plain + difference
        ranked = np.sort(plain)[::-1]
        places = ranked[[2**each - 1 for each in range(ranked.size.bit_length())]]
        random = np.random.default_rng(scored.index)
        rows = chain(
            (
                np.where(plain > place, *both)
                for place in (np.inf, plain[token], *places)
                for both in ((low, high), (high, low))
            ),
            (random.uniform(low, high).astype(np.float32) for _ in range(_RANDOM_ROWS)),
        )
        samplers, prefixes = self._samplers(difference), [scored.prefix]
        if scored.state != scored.prefix.state:
            prefixes.append(scored.stepped_prefix)
        for start, own in product(rows, (low, high)):
            row = start.copy()
            row[token] = own[token]
            yield from (each.distribution(row, at) for each, at in product(samplers, prefixes))

    def _samplers(self, difference: float) -> list[Sampler]:
        """Such with thresholds of XTC that are as far off as rounding may move a probability."""
        params, factor = self._sampler.params, math.exp(min(4 * difference, _LARGEST_EXPONENT))
        # The filters come before the temperature: one of 0 would hide what they keep.
        params = replace(params, temperature=params.temperature or 1.0)
        factors = (1.0, 1 / factor, factor) if params.has_xtc else (1.0,)
        thresholds = (min(1.0, params.xtc_threshold * each) for each in factors)
        return [
            replace(self._sampler, params=replace(params, xtc_threshold=each))
            for each in thresholds
        ]

    def _holds(self, law: Distribution, scored: _Scored) -> bool:
        """Whether the recorded token is the one that is drawn, or is possible where that is all."""
        if self._same_text:
            return self._sampler.sample(law, scored.prefix) == scored.token
        return law.index(scored.token) is not None


def _logit(law: Distribution, token: int) -> float:
    """The token's logit; -infinity if the filters leave it out."""
    index = law.index(token)
    return -math.inf if index is None else float(law.logits[index])


def _noise(sampler: Sampler, scored: _Scored, ids: Ids) -> NDArray[np.float64]:
    """What is added to the scores of these tokens: nothing where the likeliest is taken."""
    if sampler.params.temperature and isinstance(sampler.randomness, Noise):
        return sampler.randomness.gumbel(scored.prefix.position, ids)
    return np.zeros(ids.size)


def _gap(scored: _Scored, drawn: int, sampler: Sampler, plain: Distribution) -> float:
    """The score of `drawn` minus the score of the recorded token, by plain decoding's logits."""
    ids = np.array([drawn, scored.token])
    # Adaptive-p draws by other logits than the model's.
    kept = isinstance(plain, Stateful)
    logits = [_logit(plain, each) for each in ids] if kept else scored.plain[ids]
    scores = np.array(logits, np.float64) / plain.temperature
    scores += _noise(sampler, scored, ids)
    return float(scores[0] - scores[1])
