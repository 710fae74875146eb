"""Comparison: generates an answer again without drafts."""

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
from localspec_tui.engine_events import Comparison


def compare(session: Session, answer: Answer, on_start: Callable[[Answer], None]) -> Comparison:
    """Generate the last answer again, with the same options and seed but without drafts.

    on_start: called with the new answer before its first token. The conversation does not change.
    Raises InvalidValueError if the rule of the answer does not promise the same text, and
    LocalspecError if the new answer is stopped.
    """
    if not answer.settings.verification.same_text:
        raise InvalidValueError(
            f"by rule {answer.settings.rule} a text without drafts is another one; "
            "compare answers of rule coupled"
        )
    plain = _regenerate(session, answer.settings)
    on_start(plain)
    _generate(plain, session.conversation, len(answer.origins))
    tokens, plain_tokens = _tokens(answer.turn), _tokens(plain.turn)
    same = common_prefix(tokens, plain_tokens)
    identical = same == len(tokens) == len(plain_tokens)
    return Comparison(
        plain_rate=plain.stats.tokens_per_second or 0.0,
        rate=answer.stats.tokens_per_second or 0.0,
        identical=identical,
        first_difference=None if identical else same,
        digits=str(digits) if (digits := session.engine.equal_digits) else None,
    )


def _regenerate(session: Session, config: GenerationConfig) -> Answer:
    """Start another answer to the last question, but leave the active branch as it is."""
    conversation = session.conversation
    last = conversation.last
    variants = len(conversation.variants(last)) if last else 0
    try:
        return session.regenerate(**_plain_options(config, variants))
    finally:
        conversation.back_to(last)


def _plain_options(config: GenerationConfig, variants: int) -> GenerationOptions:
    """The options of a config, without drafts."""
    named: dict[str, Any] = {each.name: getattr(config, each.name) for each in fields(config)}
    sampling = named.pop("sampling")
    # The session adds the number of variants to the seed.
    changed = {"depth": 0, "seed": (config.seed - variants) % 2**64}
    unset = dict.fromkeys(GenerationOptions.__annotations__)
    return cast("GenerationOptions", {**unset, **named, **sampling, **changed})


def _generate(plain: Answer, conversation: Conversation, count: int) -> None:
    """Generate up to `count` tokens, and remove the turn of the answer from the conversation."""
    last = conversation.last
    with plain:
        for event in plain:
            _remove_turn(plain.turn, conversation, last)
            if len(plain.origins) >= count:
                return
            if isinstance(event, Ended) and event.stop_reason == "cancelled":
                raise LocalspecError("the comparison was stopped")


def _remove_turn(turn: Turn | None, conversation: Conversation, last: Turn | None) -> None:
    if turn and turn is conversation.last:
        conversation.remove(turn)
        conversation.back_to(last)


def _tokens(turn: Turn | None) -> tuple[int, ...]:
    return turn.written.tokens if turn else ()
