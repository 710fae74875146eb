"""Looking: what it is worth to draw one token, whose confidence decides about the rest of a draft.

A draft whose average does not pay may still pay where the drafter is sure, and a single token,
which costs little, tells. Let s_b be the share of tokens that are drawn with confidence b, c_b
their acceptance rate, r_2, r_3, ... those of the tokens behind it, C(w) the seconds of a pass of w
rows, f and g those of the first and of each further drafted token. Then drawing one token gains

    sum over b of s_b max(0, max over k >= 1 of (c_b (1 + r_2 + r_2 r_3 + ... + r_2 ... r_k) C(1)
                                                 - (C(k + 1) - C(1)) - (k - 1) g)) - f

seconds over a plain step, as each accepted token saves one.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

# The most tokens of a draft that are considered.
_DEEPEST = 12


def gain_of_looking(
    outcomes: Sequence[tuple[float, float]],
    rates: Sequence[float],
    passes: Sequence[float],
    first: float,
    further: float,
) -> float:
    """Seconds that it gains to draw one token and then to decide.

    outcomes: (share, acceptance rate) of the first token by confidence. rates: the acceptance rates
    of those that may be drawn behind it. passes: seconds by rows, entry 0 unused. first, further:
    seconds of drafted tokens.
    """
    plain, choices = passes[1], list(_choices(rates[: _DEEPEST - 1], passes, further))
    gain = 0.0
    for share, chance in outcomes:
        best = max(chance * tokens * plain - seconds for tokens, seconds in choices)
        gain += share * max(0.0, best)
    return gain - first


def _choices(
    rates: Sequence[float], passes: Sequence[float], further: float
) -> Iterable[tuple[float, float]]:
    """By depth: the expected tokens if the first one is right, and the seconds beyond that one."""
    survivals = accumulate(rates, mul, initial=1.0)
    for depth, tokens in enumerate(accumulate(survivals), start=1):
        yield tokens, passes[depth + 1] - passes[1] + (depth - 1) * further
