"""Row values: what a column holds, whatever the file holds there.

SQLite keeps values of any type in any column, and disks change bits.
"""

import json
import math
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from localspec.sampling.params import SamplerState

# What a value that is something else raises while it is read.
UNREADABLE = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
    OSError,
)
_LARGEST_TOKEN = 2**31 - 1
# The year 9999, which is the last that dates have.
_LATEST = 253_000_000_000


def decoded(data: bytes) -> str:
    """The text of a column; bytes that are no UTF-8 become replacement characters."""
    return data.decode("utf-8", "replace")


def required_text(value: object) -> str:
    """A text. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def text_or(value: object, other: str) -> str:
    """A text; for anything else, and for an empty one, `other`."""
    return value if isinstance(value, str) and value else other


def count_of(value: object) -> int:
    """A number of things; 0 for anything else."""
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


def moment_of(value: object) -> datetime:
    """A time of seconds since 1970, in the local time zone; 1970 for anything else."""
    seconds = value if isinstance(value, int | float) else 0
    if not (math.isfinite(seconds) and 0 <= seconds < _LATEST):
        seconds = 0
    return datetime.fromtimestamp(seconds, UTC).astimezone()


def state_of(value: object) -> SamplerState | None:
    """The state of a sampler, as JSON; None for anything else."""
    with suppress(*UNREADABLE):
        sampler, state = json.loads(required_text(value))
        if isinstance(state, float) and math.isfinite(state):
            return SamplerState(required_text(sampler), state)
    return None


def tokens_of(value: Any) -> tuple[int, ...]:
    """Token ids, as JSON. Raises one of UNREADABLE for anything else."""
    tokens = tuple(json.loads(value))
    if not all(type(token) is int and 0 <= token <= _LARGEST_TOKEN for token in tokens):
        raise ValueError("not token ids")
    return tokens
