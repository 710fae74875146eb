"""Clairvoyant text: the bound and the losses, for people and for programs."""

from dataclasses import asdict
from typing import Any

from localspec.forecast.against_clairvoyant import AgainstClairvoyant
from localspec.forecast.clairvoyant import UNEXPECTED

# Smaller shares of the time are not told.
_NOTABLE = 0.002
# The bound rests on what passes took when they were learnt. It does not hold where this share of
# the time is otherwise, or where `auto` is so many times as fast.
_UNLIKE, _BEATEN = 0.1, 1.02


def clairvoyant_lines(found: AgainstClairvoyant) -> list[str]:
    """Return the speed of one who knew the right drafts, and where `auto` loses the rest."""
    losses, speed = found.losses, found.speed_up
    reasons = sorted(losses.by_reason.items(), key=lambda item: -item[1])
    shares = [(reason, seconds / losses.seconds) for reason, seconds in reasons]
    lost = " · ".join(f"{reason} {share:.1%}" for reason, share in shares if abs(share) >= _NOTABLE)
    interval = f" ({speed})" if speed.low != speed.high else ""
    return [
        f"who knew which of auto's drafts are right: {speed.value:.2f} x plain{interval}; "
        f"auto has {losses.share:.2f} of this speed",
        f"what auto loses of its time: {lost or '-'}",
    ]


def doubt(found: AgainstClairvoyant) -> str:
    """Return why neither bound nor losses can be told; "" where nothing speaks against them."""
    losses = found.losses
    unlike = losses.by_reason.get(UNEXPECTED, 0.0) / losses.seconds
    if abs(unlike) < _UNLIKE and losses.share < _BEATEN:
        return ""
    return (
        "what the right drafts would gain cannot be told: steps took other times than learnt "
        f"({unlike:+.1%}), as on a busy machine; measure again when it is quiet"
    )


def clairvoyant_record(found: AgainstClairvoyant) -> dict[str, Any]:
    """Return the same for `--json`. lost: shares of the time of `auto`, by reason."""
    losses = found.losses
    return {
        "speed_up": asdict(found.speed_up),
        "auto_share": losses.share,
        "lost": {reason: each / losses.seconds for reason, each in losses.by_reason.items()},
    }
