"""Replays: what a rejected draft costs where it cannot be cut off alone.

A running state is put back as a whole, and what was accepted of the draft is evaluated once more,
in front of the next pass. If the first i tokens of a draft of d are accepted with probability S(i),
S(0) = 1, that pass has on average

    (1 S(0) - 1 S(1)) + (2 S(1) - 2 S(2)) + ... = S(0) + ... + S(d - 1) - d S(d)

more rows: the token before the draft and the accepted ones, but none if the whole draft was right.
"""

from collections.abc import Sequence
from dataclasses import replace

from localspec.control.joint_drafting import Drafting


def with_replays(
    drafting: Drafting,
    survivals: Sequence[float],
    takes_back: int | None,
    passes: Sequence[float],
) -> Drafting:
    """Add what it will take to evaluate tokens again."""
    if takes_back is None or takes_back >= len(survivals):
        return drafting
    return replace(drafting, replays=replay_seconds(survivals, takes_back, passes))


def replay_seconds(
    survivals: Sequence[float], takes_back: int | None, passes: Sequence[float]
) -> list[float]:
    """What it will take to evaluate tokens again, by the tokens of the draft from 0 on.

    survivals: S(1), S(2), .... takes_back: as in Limit. passes: seconds of a pass by its rows;
    entry 0 is unused.
    """
    replays, accepted, before = [0.0], 0.0, 1.0
    for depth, survival in enumerate(survivals, start=1):
        accepted, before = accepted + before, survival
        again = accepted - depth * survival
        costs = takes_back is not None and depth > takes_back
        replays.append(_seconds(passes, depth + 1 + again) - passes[depth + 1] if costs else 0.0)
    return replays


def _seconds(passes: Sequence[float], rows: float) -> float:
    """Seconds of a pass over a number of rows that is an average."""
    whole, widest = int(rows), len(passes) - 1
    if whole >= widest:
        return passes[widest] * rows / widest
    return passes[whole] + (rows - whole) * (passes[whole + 1] - passes[whole])
