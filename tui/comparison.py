"""Comparison: an answer once more, without drafts."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, cast

from localspec.conversation.answer import Answer
from localspec.conversation.events import Ended
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig, GenerationOptions
from localspec.utils.tokens import common_prefix
from localspec_tui.engine_events import Compared


def compare(session: Session, answer: Answer, watch: Callable[[Answer], None]) -> Compared:
    """Write what the session answered last once more, as it was drawn but plainly.

    watch: is given the answer to compare with, before its first token. Whatever happens, the
    conversation stays as it is. Raises InvalidValueError where a difference would mean nothing,
    and LocalspecError if it is stopped.
    """
    if not answer.settings.verification.same_text:
        raise InvalidValueError(
            f"by rule {answer.settings.rule} a text without drafts is another one; "
            "compare answers of rule coupled"
        )
    plain = _begun(session, answer.settings)
    watch(plain)
    _write(plain, session.conversation, len(answer.origins))
    tokens, again = _tokens(answer.turn), _tokens(plain.turn)
    same = common_prefix(tokens, again)
    identical = same == len(tokens) == len(again)
    return Compared(
        plain_rate=plain.stats.tokens_per_second or 0.0,
        rate=answer.stats.tokens_per_second or 0.0,
        identical=identical,
        first_difference=None if identical else same,
    )


def _begun(session: Session, settings: GenerationConfig) -> Answer:
    """Another answer to the question answered last; the branch stays as it is."""
    conversation = session.conversation
    last = conversation.last
    variants = len(conversation.variants(last)) if last else 0
    try:
        return session.regenerate(**_plainly(settings, variants))
    finally:
        conversation.back_to(last)


def _plainly(settings: GenerationConfig, variants: int) -> GenerationOptions:
    """These very settings, but without drafts; what they leave open is the default."""
    named: dict[str, Any] = {each.name: getattr(settings, each.name) for each in fields(settings)}
    sampling = named.pop("sampling")
    # To the seed it is given, a session adds how many variants of the answer there are.
    changed = {"depth": 0, "seed": (settings.seed - variants) % 2**64}
    unset = dict.fromkeys(GenerationOptions.__annotations__)
    return cast("GenerationOptions", {**unset, **named, **sampling, **changed})


def _write(plain: Answer, conversation: Conversation, count: int) -> None:
    """Write so many tokens of it, or as many as there are, and leave no turn behind."""
    last = conversation.last
    with plain:
        for event in plain:
            _take_back(plain.turn, conversation, last)
            if len(plain.origins) >= count:
                return
            if isinstance(event, Ended) and event.stop_reason == "cancelled":
                raise LocalspecError("the comparison was stopped")


def _take_back(turn: Turn | None, conversation: Conversation, last: Turn | None) -> None:
    if turn and turn is conversation.last:
        conversation.remove(turn)
        conversation.back_to(last)


def _tokens(turn: Turn | None) -> tuple[int, ...]:
    return turn.written.tokens if turn else ()
