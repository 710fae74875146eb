"""Replay: from two passes over sampled texts, what each rule would accept.

Take a text that the target itself sampled. Given its token x_t, a draft made there would have been
accepted with a probability w_t that both models' distributions tell:

    token       min(1, q(x_t) / p(x_t)), for the joint law of (x, accepted) is min(p, q)
    coupled     1 / (p(x_t) sum_y max(p(y) / p(x_t), q(y) / q(x_t))), a race of exponentials
    match       1 if x_t is the drafter's likeliest token, else 0
    block       after i tokens of a step the draft still stands with probability
                min over 0 <= j <= i of prod_{k <= j} q(x_k) / p(x_k), for the path x_1..x_i is
                both drafted and accepted with probability q(x_1..x_i) a_i (Sun et al. 2025)

and a step ends at the first token that does not stand, or one past its draft. So with S_i the
probability that i tokens of a step from s stand (a product of w, or block's running minimum), and
u[s] that position s starts a step,

    u[0] = 1
    u[s + i + 1] += u[s] (S_i - S_{i+1})   for i < depth
    u[s + depth + 1] += u[s] S_depth

gives the expected number of target passes over this text, sum u, for every rule and depth, however
the tokens depend on each other. (A mean acceptance rate raised to powers does not: steps start
where tokens are hard.) The texts must come from the target at the sampler in question; on other
texts w_t is no acceptance probability.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.llama.context import Context
from localspec.sampling.distribution import Distribution
from localspec.sampling.filters import distribution
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import MAX_DEPTH, Draft

Floats = NDArray[np.float64]
Row = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scored:
    """What target and drafter make of each token of one text; all arrays are (n,).

    log_p, log_q: natural logarithms of their filtered probabilities; log_q may be -inf.
    coupled: the probability that a draft of shared noise is this token, given that the text has it.
    match: whether the drafter's likeliest token is this one.
    limit: how many tokens the text might have had; it has fewer where it ended by itself.
    """

    log_p: Floats
    log_q: Floats
    coupled: Floats
    match: NDArray[np.bool_]
    limit: int

    def __len__(self) -> int:
        return self.log_p.size


@dataclass(frozen=True, slots=True)
class Walk:
    """Expected counts over one text: target passes, tokens drafted, tokens accepted.

    by_depth: (depth + 1,) the passes over drafts of 0, 1, ... tokens. switches: how many of them
    are over another number than the pass before; those at a text's end are not counted.
    """

    calls: float
    drafted: float
    accepted: float
    by_depth: Floats
    switches: float = 0.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """A ratio and its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """What decoding these texts would have taken.

    calls: target passes in all. tokens_per_step: tokens per target pass (block efficiency).
    acceptance: accepted part of the drafted tokens.
    """

    calls: float
    tokens_per_step: Estimate
    acceptance: Estimate


# The probabilities that 1, 2, ... tokens of a step stand, from its tokens.
Survival = Callable[[Scored, slice], Floats]


def _token(text: Scored, step: slice) -> Floats:
    return np.asarray(np.cumprod(np.exp(np.minimum(text.log_q[step] - text.log_p[step], 0))))


def _block(text: Scored, step: slice) -> Floats:
    products = np.cumsum(text.log_q[step] - text.log_p[step])
    return np.asarray(np.exp(np.minimum.accumulate(np.minimum(products, 0))))


def _coupled(text: Scored, step: slice) -> Floats:
    return np.asarray(np.cumprod(text.coupled[step]))


def _match(text: Scored, step: slice) -> Floats:
    return np.asarray(np.cumprod(text.match[step], dtype=np.float64))


SURVIVAL: dict[str, Survival] = {
    "coupled": _coupled,
    "token": _token,
    "block": _block,
    "match": _match,
}


def walk(text: Scored, rule: str, depth: int, *, hurried: bool = False) -> Walk:
    """The dynamic programme over one text; `rule` is a key of SURVIVAL.

    hurried: whether the first token comes without a draft, as for a drafter with a prompt to read.
    """
    n = len(text)
    starts = np.zeros(n + depth + 2)
    starts[0] = 1
    by_depth = np.zeros(depth + 1)
    drafted = accepted = 0.0
    for start in range(n):
        # As in the loop: a pass yields one token more than its draft.
        depth_here = min(depth, text.limit - start - 1) if start or not hurried else 0
        stand = SURVIVAL[rule](text, slice(start, min(start + depth_here, n)))
        reached = starts[start] * np.concatenate(([1.0], stand))
        starts[start + 1 : start + reached.size] += reached[:-1] - reached[1:]
        starts[start + reached.size] += reached[-1]
        drafted += float(starts[start]) * depth_here
        accepted += float(reached[1:].sum())
        by_depth[depth_here] += starts[start]
    return Walk(float(starts[:n].sum()), drafted, accepted, by_depth)


def predict(prompts: Sequence[Sequence[Scored]], rule: str, depth: int) -> Prediction:
    """Acceptance and tokens per step of a rule at a depth.

    prompts: for each prompt, two at least, the texts sampled from it. Texts of one prompt are
    alike, so the intervals are over prompts.
    """
    tokens = [sum(len(text) for text in texts) for texts in prompts]
    walks = [[walk(text, rule, depth) for text in texts] for texts in prompts]
    calls = [sum(each.calls for each in texts) for texts in walks]
    drafted = [sum(each.drafted for each in texts) for texts in walks]
    accepted = [sum(each.accepted for each in texts) for texts in walks]
    return Prediction(sum(calls), ratio(tokens, calls), ratio(accepted, drafted))


def ratio(above: Sequence[float], below: Sequence[float], level: float = 0.95) -> Estimate:
    """sum(above) / sum(below) with its t interval, from one pair per prompt.

    The residuals e = above - ratio * below give the standard error, sqrt(n / (n - 1) sum e^2) over
    sum(below); the usual ratio estimator, whose t interval covers well from ten prompts on.
    NaN when `below` is all 0.
    """
    if len(above) < 2:
        raise InvalidValueError(f"there are {len(above)} prompts; an interval takes 2 or more")
    a, b = np.asarray(above, np.float64), np.asarray(below, np.float64)
    n, total = a.size, float(b.sum())
    if not total:
        return Estimate(math.nan, math.nan, math.nan)
    value = float(a.sum()) / total
    spread = math.sqrt(n / (n - 1) * float(((a - value * b) ** 2).sum())) / total
    half = t_quantile((1 + level) / 2, n - 1) * spread
    return Estimate(value, value - half, value + half)


def t_quantile(probability: float, df: int) -> float:
    """The quantile, probability > 1/2, of Student's t with a whole number of degrees of freedom."""
    low, high = 0.0, 1.0
    while _t_within(high, df) < 2 * probability - 1:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        below = _t_within(middle, df) < 2 * probability - 1
        low, high = (middle, high) if below else (low, middle)
    return high


def _t_within(t: float, df: int) -> float:
    """Pr[-t < T < t], by the finite sums of Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan2(t, math.sqrt(df))
    cosine = math.cos(angle)
    odd = df % 2
    term, total = (cosine, 0.0) if odd else (1.0, 0.0)
    for k in range(1 + odd, df, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def score_text(
    target: Context,
    drafter: Context,
    prompt: Sequence[int],
    text: Sequence[int],
    params: SamplingParams,
    *,
    limit: int | None = None,
) -> Scored:
    """Run both models over a text, and filter each row as generating it does.

    prompt, text: token ids; the text was sampled from the target after the prompt with `params`.
    limit: the `max_tokens` it was sampled with; None is its length.

    Raises InvalidValueError for a text that the target cannot have sampled.
    """
    rows = zip(_rows(target, prompt, text), _rows(drafter, prompt, text), strict=True)
    places = range(len(prompt), len(prompt) + len(text))
    whole = [*prompt, *text]
    scored: list[tuple[float, float, float, bool]] = []
    for place, (target_row, drafter_row) in zip(places, rows, strict=True):
        p = distribution(target_row, params, whole[:place])
        # A drafter may know a few more tokens, which it must not propose.
        q = distribution(drafter_row[: target.n_vocab], params, whole[:place])
        scored.append(_scored(p, q, whole[place], target.n_vocab))
        if scored[-1][0] == -math.inf:
            raise InvalidValueError(
                f"token {place - len(prompt)} of the text is {whole[place]}, which the target "
                "cannot choose there; the text must be sampled from it with the same settings"
            )
    log_p, log_q, shared, match = np.array(scored, np.float64).reshape(-1, 4).T
    return Scored(log_p, log_q, shared, match > 0, len(text) if limit is None else limit)


def score_laws(
    drafter: Context,
    prompt: Sequence[int],
    text: Sequence[int],
    laws: Sequence[Distribution],
    sampler: Sampler,
    *,
    n_vocab: int,
    limit: int,
) -> Scored:
    """As `score_text`, for a text of which the target's own distributions were kept.

    laws: what each token was drawn from. n_vocab: the target's vocabulary.
    """
    scored: list[tuple[float, float, float, bool]] = []
    prefix = sampler.prefix(prompt)
    for row, law, token in zip(_rows(drafter, prompt, text), laws, text, strict=True):
        q = sampler.distribution(row[:n_vocab], prefix)
        scored.append(_scored(law, q, token, n_vocab))
        prefix = prefix.then(token)
    log_p, log_q, shared, match = np.array(scored, np.float64).reshape(-1, 4).T
    return Scored(log_p, log_q, shared, match > 0, limit)


def _scored(
    p: Distribution, q: Distribution, token: int, n_vocab: int
) -> tuple[float, float, float, bool]:
    """log p(x), log q(x), the weight of `coupled`, and whether q likes x best."""
    dense_p, dense_q = p.dense(n_vocab), q.dense(n_vocab)
    p_x, q_x = float(dense_p[token]), float(dense_q[token])
    # The likeliest token goes by its logit, the first of equals, as in greedy decoding.
    match = q.token(int(q.logits.argmax())) == token
    if not p_x or not q_x:
        return math.log(p_x) if p_x else -math.inf, -math.inf, 0.0, match
    weight = 1 / float(np.maximum(dense_p, dense_q * (p_x / q_x)).sum())
    return math.log(p_x), math.log(q_x), min(weight, 1.0), match


def _rows(context: Context, prompt: Sequence[int], text: Sequence[int]) -> Iterator[Row]:
    """The logits each token of the text was chosen from; each is a view until the next."""
    context.hold(prompt[:-1])
    pending = prompt[-1]
    for start in range(0, len(text), MAX_DEPTH + 1):
        chunk = text[start : start + MAX_DEPTH + 1]
        scores = context.score(pending, Draft(chunk[:-1]))
        yield from scores.logits
        context.commit(range(len(chunk) - 1))
        pending = chunk[-1]
