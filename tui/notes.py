"""Notes: texts that the chat itself shows between the turns of a conversation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import indent

from localspec.conversation.events import Dropped
from localspec.utils.format import printable
from localspec_tui.engine_events import Comparison, ModelReady
from localspec_tui.labels import gain_text, model_label, speed_text
from localspec_tui.session_settings import SessionSettings, in_words

FIRST_MESSAGE = "How do I list files by size?"
# Letters of a session's key that are shown, for --resume.
KEY_LETTERS = 8
_REAL = "qwen3-8b"


def first_launch() -> str:
    """What the chat is, for a user who has no model yet."""
    return (
        "A chat with a model on this machine: a small one drafts, the large one decides.\n"
        "The pair that comes along is tiny: it answers questions about the terminal, in English. "
        "Check a command before you run it.\n"
        f"For real answers: localspec pull {_REAL}, then localspec chat {_REAL}"
    )


def missing_drafter(ready: ModelReady) -> str | None:
    """Why there is no drafter, or no drafter model; None if nothing is missing."""
    if not ready.reason:
        return None
    off = "no drafter model" if ready.draft else "draft: off"
    return f"{off} ({ready.reason})"


def another_model(before: str, now: str) -> str:
    """Which model has answered in a conversation, and which one will."""
    return (
        f"this conversation is with {model_label(before)}, and {model_label(now)} goes on with it; "
        f"to change that: /model {before}"
    )


def written_otherwise(key: str, saved: SessionSettings, ready: ModelReady | None) -> str | None:
    """How to go on with a conversation's chat template, cache types, rotations and adapters.

    None if those of now are the same.
    """
    if ready is None:
        return None
    template = "another chat template" if ready.chat_template != saved.chat_template else ""
    found = [*filter(None, (template, in_words(saved.runtime, ready.runtime)))]
    if not found:
        return None
    return (
        f"this conversation was written with {' and '.join(found)}; to go on with that: "
        f"{_command(plain=False)} --resume {key[:KEY_LETTERS]}"
    )


def dropped_turns(event: Dropped) -> str:
    """How many turns the model does not see any more."""
    return (
        f"the context is full: the oldest {event.turns} messages were dropped, and the model "
        f"reads the remaining {event.tokens:,} tokens again"
    )


def comparison(event: Comparison) -> str:
    """Both speeds, whether the two answers are identical, and whether the digits of passes are.

    Of a busy machine the speeds are ranges: a single figure would be chance.
    """
    lowest, highest = event.range
    plain, gain = speed_text(event.plain_rate), ""
    if not event.is_steady:
        plain = f"{lowest:.1f} to {speed_text(highest)} (the machine is busy, or was)"
        gain = f" ({event.rate / highest:.1f}x to {gain_text(event.rate / lowest)})"
    elif event.plain_rate:
        gain = f" ({gain_text(event.rate / event.plain_rate)})"
    different = event.first_difference
    identical = "yes" if different is None else f"no, from token {different + 1}"
    digits = f" · {event.digits}" if event.digits else ""
    return (
        f"plain {plain} · with drafts {speed_text(event.rate)}{gain} · "
        f"identical: {identical}{digits}"
    )


def context_full(size: int, most: int, key: str | None, *, plain: bool = False) -> str:
    """The question of the dialog.

    size: of the context, in tokens. most: that the model was made for; 0 if that is not known. key:
    of the session, if it is kept. plain: whether the chat has no screen.
    """
    question = f"The context of {size:,} tokens is full."
    if most <= size:
        return f"{question} The model was made for no more." if most else question
    resume = f" --resume {key[:KEY_LETTERS]}" if key else ""
    return (
        f"{question} The model was made for up to {most:,}; to begin with more:\n"
        f"{_command(plain)}{resume} --ctx {min(2 * size, most)}"
    )


def context_full_choices(size: int, larger: int, *, drops: bool = False) -> Mapping[str, str]:
    """The answers of the dialog. larger: a context to load the model with, if it is larger.

    drops: whether the oldest messages are dropped already.
    """
    choices = {"stop": "Leave it as it is"}
    if not drops:
        choices["drop"] = "Drop oldest messages from now on"
    if larger > size:
        choices["larger"] = f"Load with {larger:,} tokens and go on"
    return {**choices, "new": "Begin another conversation"}


def last_words(
    unsent: Sequence[str],
    key: str | None,
    failure: str | None = None,
    lost: Iterable[tuple[str, str]] = (),
    *,
    edit: str = "",
    unkept: str | None = None,
    plain: bool = False,
) -> Iterator[str]:
    """Lines for the terminal after the chat.

    unsent: messages. key: of the session, if at least a part of it is kept. failure: why the last
    part is not. lost: titles of other sessions, and why not all of them is kept. edit: another text
    of an answer, which Enter did not confirm. unkept: why what the model has read is not kept.
    plain: whether the chat had no screen.
    """
    if unsent:
        yield f"{len(unsent)} message{'s were' if len(unsent) > 1 else ' was'} not sent:"
        yield from (indent(printable(message, also="\n"), "  ") for message in unsent)
    if edit:
        yield "the edited text of an answer was not sent:"
        yield indent(printable(edit, also="\n"), "  ")
    for title, why in lost:
        yield f"not all of “{title}” was saved: {why}"
    if failure:
        what = "the last part of this conversation" if key else "this conversation"
        yield f"{what} was not saved: {failure}"
    if unkept:
        yield f"what was read is not kept: {unkept}"
    if key:
        yield f"continue with: {_command(plain)} --resume {key[:KEY_LETTERS]}"


def _command(plain: bool) -> str:
    return f"localspec chat{' --plain' if plain else ''}"
