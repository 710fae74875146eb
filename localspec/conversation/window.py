"""Window: the turns of a long conversation that a model still sees, and the prompt they make."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from localspec.conversation.reasoning import opens_thinking
from localspec.conversation.transcript import Transcript
from localspec.conversation.turns import TokenizedText, Turn
from localspec.engine.prompt import Wording
from localspec.errors import ContextFullError, InvalidValueError
from localspec.utils.option_names import option

# The share of the context that the remaining turns may fill after a drop. With a larger share, the
# next turns would soon cause another drop, and each drop evaluates the prompt again.
_KEPT_SHARE = 0.5
# The share of the context kept free for the answer; the oldest turns are dropped for it.
_ANSWER_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class Window:
    """The turns of a branch that a model sees.

    turns: the whole branch. size: of the context, in tokens. dropped: the number of oldest turns
    that the model does not see. continues: whether the last turn is an answer that goes on.
    """

    transcript: Transcript
    system: str | None
    turns: Sequence[Turn]
    size: int
    dropped: int = 0
    continues: bool = False

    @cached_property
    def whole(self) -> TokenizedText:
        """All turns that the model sees, as text and tokens."""
        return self.transcript.prompt(self.system, self.turns[self.dropped :])

    @cached_property
    def prompt(self) -> TokenizedText:
        """The whole without the answer that goes on.

        Raises InvalidValueError if that is not at its end.
        """
        if not self.continues:
            return self.whole
        text, tokens = self.turns[-1].written
        if self.whole.tokens[-len(tokens) :] != tokens:
            raise InvalidValueError(
                "the chat template of this model refuses the messages before the last answer; "
                "regenerate the answer"
            )
        kept = len(self.whole.tokens) - len(tokens)
        return TokenizedText(self.whole.text.removesuffix(text), self.whole.tokens[:kept])

    @property
    def seen(self) -> Sequence[Turn]:
        """The turns of the prompt."""
        return self.turns[self.dropped : -1 if self.continues else None]

    @property
    def wording(self) -> Wording | None:
        """The prompt for drafters that have a chat template of their own."""
        return self.transcript.wording(self.system, self.seen)

    @property
    def template_fingerprint(self) -> str:
        """Tells how the turns become a prompt, dropped ones, too; see `Transcript.fingerprint`."""
        return self.transcript.fingerprint(self.turns)

    @cached_property
    def thinking(self) -> bool:
        """Whether the prompt ends with an opening reasoning tag."""
        template, tags = self.transcript.template, self.transcript.tags
        return bool(template) and opens_thinking(self.prompt.text, tags)

    @property
    def is_full(self) -> bool:
        """Whether the context has no room for another token."""
        return len(self.whole.tokens) >= self.size

    def new_answer(self, seed: int, thinking_budget: int | None) -> Turn:
        """An empty answer to the last turn, which is not in the conversation yet.

        seed: of the first answer. A variant has another one, or its text would be the same.
        """
        question = self.turns[-1]
        return Turn(
            "assistant",
            "",
            vocabulary=self.transcript.model.vocabulary_fingerprint,
            seed=(seed + question.next_variant) % 2**64,
            thinking=self.thinking,
            switch=self.transcript.switch,
            template=self.template_fingerprint,
            thinking_budget=thinking_budget,
            variant=question.next_variant,
            before=question,
        )

    def behind(self, answer: Turn) -> "Window":
        """The window with an answer to its last turn, which goes on."""
        return replace(self, turns=answer.path, continues=True)

    def with_room(self, most_tokens: int, *, drops: bool) -> "Window":
        """The window for an answer of so many tokens. Raises InvalidValueError if there is no room.

        drops: whether the oldest turns may be dropped.
        """
        window = self
        room = 1 if self.continues else min(most_tokens, int(self.size * _ANSWER_SHARE))
        if drops and len(self.whole.tokens) + room > self.size:
            window = self.without_oldest() or self
        if window.is_full:
            raise window._too_long_error()
        return window

    def without_oldest(self) -> "Window | None":
        """The window without the oldest turns, so that the rest fills at most half of the context.

        The last question is never dropped. None if no turn can be dropped.
        """
        window = None
        for first in _questions(self.turns, self.dropped + 1):
            window = replace(self, dropped=first)
            if len(window.whole.tokens) <= self.size * _KEPT_SHARE:
                break
        return window

    def _too_long_error(self) -> InvalidValueError:
        """The error of a prompt that does not fit the context."""
        way_out = f"raise {option('context')}"
        last = len(replace(self, dropped=last_question(self.turns)).whole.tokens)
        if last >= self.size and self.continues:
            return InvalidValueError(
                f"the answer and its question fill the context of {self.size:,} tokens; {way_out}"
            )
        if last >= self.size:
            return InvalidValueError(
                f"the message has {last:,} tokens, system prompt and template included, and the "
                f"context holds {self.size:,}; shorten the message or {way_out}"
            )
        if self.continues:
            return ContextFullError(
                f"the context of {self.size:,} tokens is full, so the answer cannot go on; let the "
                f"oldest turns be dropped, or {way_out}"
            )
        return ContextFullError(
            f"the conversation has {len(self.whole.tokens):,} tokens with this message, and the "
            f"context holds {self.size:,}; let the oldest turns be dropped, begin another "
            f"conversation, or {way_out}"
        )


def last_question(turns: Sequence[Turn]) -> int:
    """The number of the user's last turn; 0 if there is none."""
    return max(_questions(turns, 0), default=0)


def _questions(turns: Sequence[Turn], start: int) -> Iterator[int]:
    return (n for n in range(start, len(turns)) if turns[n].role == "user")
