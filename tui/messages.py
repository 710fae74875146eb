"""Words: what the chat says of itself."""

from pathlib import Path

from localspec.conversation.events import Dropped
from localspec_tui.engine_events import Compared, Ready

FIRST_PROMPT = "def fibonacci(n):"
_REAL = "qwen3-8b"


def first_run() -> str:
    """What somebody reads who has no model yet."""
    return (
        "A chat with a model on this machine: a small one drafts, the large one decides.\n"
        f"The pair that comes along is tiny: it continues Python code, such as {FIRST_PROMPT}\n"
        f"For real answers: localspec pull {_REAL}, then localspec chat {_REAL}"
    )


def missing(ready: Ready) -> str | None:
    """Why there is less drafting than there might be, if so."""
    if not ready.reason:
        return None
    off = "no drafter model" if ready.draft else "draft: off"
    return f"{off} ({ready.reason})"


def dropped(event: Dropped) -> str:
    """What the model does not see any more."""
    return (
        f"the context is full: the model does not see the oldest {event.turns} messages any more, "
        f"and reads the {event.tokens:,} tokens that are left again"
    )


def compared(event: Compared) -> str:
    """Both speeds, and whether the texts are the same."""
    gain = f" ({event.rate / event.plain_rate:.2f}x)" if event.plain_rate else ""
    where = "" if event.first_difference is None else f", from token {event.first_difference + 1}"
    return (
        f"plain {event.plain_rate:.1f} tok/s · with drafts {event.rate:.1f} tok/s{gain} · "
        f"identical: {'yes' if event.identical else 'no' + where}"
    )


def full(size: int) -> str:
    """What has to be decided upon. size: of the context, in tokens."""
    return f"The context of {size:,} tokens is full."


def model_name(name: str) -> str:
    """What a model is called where there is little room: of a path, the file."""
    return Path(name).name if name.endswith(".gguf") else name
