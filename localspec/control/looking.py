"""Looking: what it is worth to draw one token, whose confidence decides about the rest of a draft.

A draft whose average does not pay may still pay where the drafter is sure, and a single token,
which costs little, tells. Let s_b be the share of tokens that are drawn with confidence b, c_b
their acceptance rate, r = sum s_b c_b that of a token not drawn yet, C(w) the seconds of a pass of
w rows, f and g those of the first and of each further drafted token. Then drawing one token gains

    sum over b of s_b max(0, max over k >= 1 of (c_b (1 + r + ... + r^(k-1)) C(1)
                                                 - (C(k + 1) - C(1)) - (k - 1) g)) - f

seconds over a plain step, as each accepted token saves one.
"""

from collections.abc import Iterable, Sequence

# The most tokens of a draft that are considered.
_DEEPEST = 12


def gain_of_looking(
    outcomes: Sequence[tuple[float, float]],
    passes: Sequence[float],
    first: float,
    further: float,
    deepest: int,
) -> float:
    """Seconds that it gains to draw one token and then to decide.

    outcomes: (share, acceptance rate) by confidence. passes: seconds by rows, entry 0 unused.
    first, further: seconds of drafted tokens. deepest: the most tokens of the draft.
    """
    plain, rate = passes[1], sum(share * chance for share, chance in outcomes)
    choices = list(_choices(passes, further, rate, min(deepest, _DEEPEST)))
    gain = 0.0
    for share, chance in outcomes:
        best = max((chance * tokens * plain - seconds for tokens, seconds in choices), default=0.0)
        gain += share * max(0.0, best)
    return gain - first


def _choices(
    passes: Sequence[float], further: float, rate: float, deepest: int
) -> Iterable[tuple[float, float]]:
    """By depth: the expected tokens if the first one is right, and the seconds beyond that one."""
    tokens, survival = 0.0, 1.0
    for depth in range(1, deepest + 1):
        tokens += survival
        survival *= rate
        yield tokens, passes[depth + 1] - passes[1] + (depth - 1) * further
