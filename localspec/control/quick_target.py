"""Quick targets: those whose plain step takes so little that no draft can save much of it.

Deciding, drafting and judging take tens of microseconds per step, and a pass over several rows of a
small model takes clearly longer than one over one row, since its weights are in the cache anyway.
"""

# Seconds of a plain step.
_QUICK = 1e-3
# With less than this many times the speed of plain decoding, drafts do not pay.
_PAYS = 1.05


def too_quick_text(plain_seconds: float, ratio: float) -> str:
    """Return that a target is too quick for drafts, "" if it is not, or if they paid all the same.

    plain_seconds: of a step without a draft; 0 if unknown. ratio: the speed with drafts, over that
    of plain decoding.
    """
    if not 0 < plain_seconds < _QUICK or ratio >= _PAYS:
        return ""
    return f"target {plain_seconds * 1e3:.1g} ms/token: too quick for drafts to pay"
