"""Window: the turns of a long conversation that the model still sees."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from localspec.conversation.turns import TokenizedText, Turn
from localspec.errors import ContextFullError, InvalidValueError
from localspec.utils.option_names import option

# The share of the context that the remaining turns may fill after a drop. With a larger share, the
# next turns would soon cause another drop, and each drop evaluates the prompt again.
_KEPT_SHARE = 0.5


class Window(NamedTuple):
    """The turns from number `first` on, counted from 0, and their prompt as text and tokens."""

    first: int
    prompt: TokenizedText


def drop_oldest(
    turns: Sequence[Turn],
    first: int,
    n_ctx: int,
    prompt_from: Callable[[int], TokenizedText],
) -> Window | None:
    """Drop the oldest turns until the rest fills at most half of the context.

    The last question is never dropped. None if no turn can be dropped.

    first: the number of the first turn in the present window. n_ctx: the context size in tokens.
    prompt_from: renders the turns from a number on.
    """
    window = None
    for start in _questions(turns, first + 1):
        window = Window(start, prompt_from(start))
        if len(window.prompt.tokens) <= n_ctx * _KEPT_SHARE:
            break
    return window


def last_question(turns: Sequence[Turn]) -> int:
    """The number of the user's last turn; 0 if there is none."""
    return max(_questions(turns, 0), default=0)


def _questions(turns: Sequence[Turn], start: int) -> Iterator[int]:
    return (n for n in range(start, len(turns)) if turns[n].role == "user")


def too_long_error(
    question: int, prompt: int, n_ctx: int, *, drops: bool, continues: bool
) -> InvalidValueError:
    """The error of a prompt that does not fit the context.

    question: the tokens of the last question alone, template and the answer to continue included.
    prompt: those of the whole prompt. drops: whether the oldest turns were dropped already.
    continues: whether an answer is to be continued.
    """
    if continues and (question >= n_ctx or drops):
        return InvalidValueError(
            f"the answer and its question fill the context of {n_ctx} tokens; "
            f"raise {option('context')}"
        )
    if continues:
        return ContextFullError(
            f"the context of {n_ctx} tokens is full, so the answer cannot go on; let the oldest "
            f"turns be dropped, or raise {option('context')}"
        )
    if question >= n_ctx:
        return InvalidValueError(
            f"the message has {question} tokens, system prompt and template included, and the "
            f"context holds {n_ctx}; shorten the message or raise {option('context')}"
        )
    way_out = "shorten the message" if drops else "let the oldest turns be dropped"
    return ContextFullError(
        f"the conversation has {prompt} tokens with this message, and the context holds {n_ctx}"
        f"; {way_out}, begin another conversation, or raise {option('context')}"
    )
