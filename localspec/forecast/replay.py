"""Replay: what each rule would accept, from two passes over texts sampled from the target.

Take a text that the target itself sampled, and its token x_t at one position. A draft made there
would have been accepted with a probability w_t that follows from the distributions of target (p)
and drafter (q):

    token       min(1, q(x_t) / p(x_t)), because the joint law of (x, accepted) is min(p, q)
    coupled     1 / (p(x_t) sum_y max(p(y) / p(x_t), q(y) / q(x_t))), a race of exponentials
    block       after i tokens of a step the draft still stands with probability
                min over 0 <= j <= i of prod_{k <= j} q(x_k) / p(x_k), because the path x_1..x_i is
                both drafted and accepted with probability q(x_1..x_i) a_i (Sun et al. 2025)

A step ends at the first token that is not accepted, or one past its draft. Let S_i be the
probability that the first i tokens of a step from s are accepted (a product of w, or the running
minimum of block), and u[s] the probability that a step starts at s. Then

    u[0] = 1
    u[s + i + 1] += u[s] (S_i - S_{i+1})   for i < depth
    u[s + depth + 1] += u[s] S_depth

and sum u is the expected number of steps over this text, for every rule and depth, however the
tokens depend on each other. (Powers of a mean acceptance rate are not: steps start where tokens are
hard.) The texts must be sampled from the target with the same sampler; on other texts w_t is no
acceptance probability.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import InvalidValueError
from localspec.llama.sequence import KVSequence
from localspec.sampling.distribution import Distribution
from localspec.sampling.sampler import Sampler
from localspec.speculation.draft import MAX_DEPTH, Draft

_Floats = NDArray[np.float64]
_Row = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ScoredText:
    """The probabilities that target and drafter give each token of one text; arrays are (n,).

    log_p, log_q: natural logarithms of the filtered probabilities; log_q may be -inf.
    coupled: the probability that a draft with the same noise is this token, given that the text has
    this token.
    limit: the most tokens the text could have had; it has fewer if it ended by itself.
    drawn: whether the drafter draws this token with the noise of the text; None if that is not
        known.
    """

    log_p: _Floats
    log_q: _Floats
    coupled: _Floats
    limit: int
    drawn: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return self.log_p.size


@dataclass(frozen=True, slots=True)
class StepCounts:
    """Expected counts over one text: steps, tokens drafted, tokens accepted.

    by_depth: (depth + 1,) the steps with drafts of 0, 1, ... tokens. switches: how many steps have
    a draft of another length than the step before; those at the end of a text are not counted.
    """

    steps: float
    drafted: float
    accepted: float
    by_depth: _Floats
    switches: float = 0.0


# The probabilities that the first 1, 2, ... tokens of a step are accepted.
_Acceptance = Callable[[ScoredText, slice], _Floats]


def _token(text: ScoredText, step: slice) -> _Floats:
    return np.asarray(np.cumprod(np.exp(np.minimum(text.log_q[step] - text.log_p[step], 0))))


def _block(text: ScoredText, step: slice) -> _Floats:
    products = np.cumsum(text.log_q[step] - text.log_p[step])
    return np.asarray(np.exp(np.minimum.accumulate(np.minimum(products, 0))))


def _coupled(text: ScoredText, step: slice) -> _Floats:
    return np.asarray(np.cumprod(text.coupled[step]))


_ACCEPTANCE: dict[str, _Acceptance] = {
    "coupled": _coupled,
    "token": _token,
    "block": _block,
}


def expected_steps(
    text: ScoredText, rule: str, depth: int, *, first_plain: bool = False
) -> StepCounts:
    """Count the expected steps over one text by dynamic programming.

    rule: `coupled`, `token` or `block`. first_plain: whether the first step has no draft,
    as with a drafter that has a prompt to read.
    """
    n = len(text)
    starts = np.zeros(n + depth + 2)
    starts[0] = 1
    by_depth = np.zeros(depth + 1)
    drafted = accepted = 0.0
    for start in range(n):
        # As in the decoder: a step yields one token more than its draft.
        depth_here = min(depth, text.limit - start - 1) if start or not first_plain else 0
        accepted_here = _ACCEPTANCE[rule](text, slice(start, min(start + depth_here, n)))
        reached = starts[start] * np.concatenate(([1.0], accepted_here))
        starts[start + 1 : start + reached.size] += reached[:-1] - reached[1:]
        starts[start + reached.size] += reached[-1]
        drafted += float(starts[start]) * depth_here
        accepted += float(reached[1:].sum())
        by_depth[depth_here] += starts[start]
    return StepCounts(float(starts[:n].sum()), drafted, accepted, by_depth)


def score_text(
    target: KVSequence,
    drafter: KVSequence,
    prompt: Sequence[int],
    text: Sequence[int],
    sampler: Sampler,
    *,
    limit: int | None = None,
    drafting: Sampler | None = None,
) -> ScoredText:
    """Score a text with both models, whose logits are filtered as in generation.

    prompt, text: token ids; the text was drawn from the target after the prompt by `sampler`.
    limit: the `max_tokens` it was sampled with; None is its length. drafting: with which tokens are
    drafted; None is the same sampler.

    Raises InvalidValueError for a text that the target cannot have sampled.
    """
    rows = zip(_rows(target, prompt, text), _rows(drafter, prompt, text), strict=True)
    prefix = sampler.prefix(prompt)
    scored: list[tuple[float, float, float]] = []
    for token, (target_row, drafter_row) in zip(text, rows, strict=True):
        p = sampler.distribution(target_row, prefix)
        # A drafter may know a few more tokens, which it must not propose.
        q = (drafting or sampler).distribution(drafter_row[: target.n_vocab], prefix)
        scored.append(_scored(p, q, token, target.n_vocab))
        if scored[-1][0] == -math.inf:
            raise InvalidValueError(
                f"token {len(scored) - 1} of the text is {token}, which the target "
                "cannot choose there; the text must be sampled from it with the same settings"
            )
        prefix = prefix.then(token, p.state_after(token))
    log_p, log_q, shared = np.array(scored, np.float64).reshape(-1, 3).T
    return ScoredText(log_p, log_q, shared, len(text) if limit is None else limit)


def score_with_drafter(
    drafter: KVSequence,
    prompt: Sequence[int],
    text: Sequence[int],
    distributions: Sequence[Distribution],
    sampler: Sampler,
    *,
    n_vocab: int,
    limit: int,
) -> ScoredText:
    """Score a text of which the target's distributions are known; only the drafter is run.

    distributions: from which each token was drawn. n_vocab: the target's. Else as `score_text`.
    """
    scored: list[tuple[float, float, float]] = []
    drawn: list[bool] = []
    prefix = sampler.prefix(prompt)
    rows = _rows(drafter, prompt, text)
    for row, p, token in zip(rows, distributions, text, strict=True):
        q = sampler.distribution(row[:n_vocab], prefix)
        scored.append(_scored(p, q, token, n_vocab))
        drawn.append(sampler.sample(q, prefix) == token)
        prefix = prefix.then(token, p.state_after(token))
    log_p, log_q, shared = np.array(scored, np.float64).reshape(-1, 3).T
    return ScoredText(log_p, log_q, shared, limit, np.array(drawn, bool))


def _scored(
    p: Distribution, q: Distribution, token: int, n_vocab: int
) -> tuple[float, float, float]:
    """The entries of ScoredText for one token: log_p, log_q, coupled."""
    dense_p, dense_q = p.dense(n_vocab), q.dense(n_vocab)
    p_x, q_x = float(dense_p[token]), float(dense_q[token])
    if not p_x or not q_x:
        return math.log(p_x) if p_x else -math.inf, -math.inf, 0.0
    weight = 1 / float(np.maximum(dense_p, dense_q * (p_x / q_x)).sum())
    return math.log(p_x), math.log(q_x), min(weight, 1.0)


def _rows(context: KVSequence, prompt: Sequence[int], text: Sequence[int]) -> Iterator[_Row]:
    """Yield the logits from which each token was chosen; a row is valid until the next one."""
    context.set_tokens(prompt[:-1])
    pending = prompt[-1]
    for start in range(0, len(text), MAX_DEPTH + 1):
        chunk = text[start : start + MAX_DEPTH + 1]
        scores = context.score(pending, Draft(chunk[:-1]))
        yield from scores.logits
        context.commit(range(len(chunk) - 1))
        pending = chunk[-1]
