"""Unfinished answers: those that were stopped, cut off or edited, and can be continued."""

from localspec.conversation.turns import Turn
from localspec.conversation.window import Window
from localspec.errors import InvalidValueError
from localspec.utils.option_names import option

# The stop reason of an answer whose end the user has written.
EDITED = "edited"
# Stop reasons of answers that the model has not ended by itself.
_UNFINISHED = frozenset({"cancelled", "length", "context", EDITED})


def is_unfinished(turn: Turn | None) -> bool:
    """Whether a turn is an answer that could go on, and the last one of its branch."""
    return (
        turn is not None
        and turn.role == "assistant"
        and turn.stop_reason in _UNFINISHED
        and bool(turn.written.tokens)
        and not turn.after
    )


def require_unfinished(turn: Turn, vocabulary: str) -> None:
    """Raises InvalidValueError unless a model with this vocabulary can continue the turn."""
    if turn.role != "assistant":
        raise InvalidValueError("the last message has no answer to continue; regenerate answers it")
    if turn.stop_reason in {*_UNFINISHED, "interrupted"} and not turn.written.tokens:
        raise InvalidValueError(
            "the tokens of the last answer were not kept, as of one that a crash has interrupted; "
            "edit or regenerate the answer"
        )
    if not is_unfinished(turn):
        raise InvalidValueError(
            "the last answer is complete; send a message, or regenerate or edit it"
        )
    if turn.vocabulary != vocabulary:
        raise InvalidValueError(
            "the last answer is in the tokens of another model, which alone can continue it; "
            "edit or regenerate the answer"
        )


def require_same_settings(
    turn: Turn, window: Window, budget: int | None, seed: int | None = None
) -> None:
    """Raises InvalidValueError unless the rest of a turn is what it would have been.

    window: what the model would see now. budget: the thinking budget now. seed: the one that is
    asked for; None: the turn's own.
    """
    _require_same_seed(turn, seed)
    transcript = window.transcript
    if turn.template not in ("", window.template_fingerprint):
        raise InvalidValueError(
            "the last answer was begun with another chat template, with other rotations (RoPE) or "
            "adapters (LoRA), or where other images were read; load the model as then "
            f"({option('chat_template')}, {option('rope_scale')} and its kin, {option('lora')}, "
            f"{option('mmproj')}) or regenerate the answer"
        )
    _require_same_thinking(turn, window.thinking, transcript.switch)
    # Once the reasoning has ended, its budget is of no matter.
    may_reason = transcript.tags.opening.startswith(turn.content.strip())
    if turn.template and may_reason and turn.thinking_budget != budget:
        then, now = _budget_text(turn.thinking_budget), _budget_text(budget)
        raise InvalidValueError(
            f"the last answer was begun with {then}, and there is {now} now; begin with the same "
            f"again ({option('thinking_budget')}) or regenerate the answer"
        )


def _require_same_thinking(turn: Turn, thinking: bool, switch: bool | None) -> None:
    """Raises InvalidValueError if reasoning was switched on, and is off now, or vice versa.

    The answer would stand behind another prompt, and where that one opens reasoning, the text so
    far would be split in another way: reasoning would become the answer, or the answer reasoning.

    thinking, switch: of the prompt now, as those of a `Turn`.
    """
    is_switched = None not in (turn.switch, switch) and turn.switch != switch
    if is_switched or turn.thinking not in (None, thinking):
        was_on = turn.switch if is_switched else turn.thinking
        then, now = ("on", "off") if was_on else ("off", "on")
        raise InvalidValueError(
            f"the last answer was begun with reasoning {then}, and it is {now} now; switch it "
            f"{then} again (/think {then} in the chat) or regenerate the answer"
        )


def _require_same_seed(turn: Turn, seed: int | None) -> None:
    """Raises InvalidValueError for another seed than that of the turn.

    A variant of an answer is written with the seed that was asked for plus its number.
    """
    own = turn.seed
    if seed is None or own is None or own in (seed, (seed + turn.variant) % 2**64):
        return
    other = "regenerate the answer with another one"
    if turn.stop_reason == EDITED:
        other = "switch the session to another one before the answer is edited"
    raise InvalidValueError(
        f"seed is {seed}; the answer goes on with its own seed, {own}, so that its text is what it "
        f"would have been: leave the seed out, or {other}"
    )


def _budget_text(budget: int | None) -> str:
    return "no thinking budget" if budget is None else f"a thinking budget of {budget:,}"
