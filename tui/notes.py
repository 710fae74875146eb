"""Notes: texts that the chat itself shows between the turns of a conversation."""

from pathlib import Path

from localspec.conversation.events import Dropped
from localspec_tui.engine_events import Comparison, ModelReady

FIRST_MESSAGE = "def fibonacci(n):"
_REAL = "qwen3-8b"


def first_launch() -> str:
    """What the chat is, for a user who has no model yet."""
    return (
        "A chat with a model on this machine: a small one drafts, the large one decides.\n"
        f"The pair that comes along is tiny: it continues Python code, such as {FIRST_MESSAGE}\n"
        f"For real answers: localspec pull {_REAL}, then localspec chat {_REAL}"
    )


def missing_drafter(ready: ModelReady) -> str | None:
    """Why there is no drafter, or no drafter model; None if nothing is missing."""
    if not ready.reason:
        return None
    off = "no drafter model" if ready.draft else "draft: off"
    return f"{off} ({ready.reason})"


def dropped_turns(event: Dropped) -> str:
    """How many turns the model does not see any more."""
    return (
        f"the context is full: the model does not see the oldest {event.turns} messages any more, "
        f"and reads the {event.tokens:,} tokens that are left again"
    )


def comparison(event: Comparison) -> str:
    """Both speeds, whether the two answers are identical, and whether the digits of passes are."""
    gain = f" ({event.rate / event.plain_rate:.2f}x)" if event.plain_rate else ""
    where = "" if event.first_difference is None else f", from token {event.first_difference + 1}"
    digits = f" · {event.digits}" if event.digits else ""
    return (
        f"plain {event.plain_rate:.1f} tok/s · with drafts {event.rate:.1f} tok/s{gain} · "
        f"identical: {'yes' if event.identical else 'no' + where}{digits}"
    )


def context_full(size: int) -> str:
    """The question of the dialog. size: of the context, in tokens."""
    return f"The context of {size:,} tokens is full."


def model_label(name: str) -> str:
    """A short name of a model: the file name of a path, else the name itself."""
    return Path(name).name if name.endswith(".gguf") else name
