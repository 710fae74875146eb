"""Conversation: a tree of turns, because answers are regenerated and questions edited."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, NamedTuple, get_args
from uuid import uuid4

from localspec.conversation.media_spans import MediaSpan
from localspec.errors import InvalidValueError
from localspec.sampling.params import SamplerState
from localspec.utils.option_types import require_kind, whole_number

Role = Literal["system", "user", "assistant", "tool"]


class TokenizedText(NamedTuple):
    """A text and its token ids."""

    text: str
    tokens: tuple[int, ...]


EMPTY = TokenizedText("", ())


@dataclass(slots=True, eq=False)
class Turn:
    """One message.

    content: the message. media: its images and sounds, for which chips stand in it. thought: the
    model's reasoning before it. raw: an answer's text as it was generated, reasoning and tags
    included. written: the tokens of `raw` and their text, without the token that ended the answer
    and without those of a stop string. vocabulary: the fingerprint of the vocabulary of these
    tokens. stop_reason: why an answer ended; None while it is generated. seed: that the answer was
    written with; None if that is not known. thinking: whether the prompt of the answer ended with
    an opening reasoning tag; None if that is not known. switch: whether reasoning was switched on
    in that prompt; None if it cannot be switched, or is not known. template: the fingerprint of the
    chat template of that prompt; empty if that and the thinking budget are not known.
    thinking_budget: the most tokens of reasoning; None: no limit. sampler_state: what the tokens of
    `written` have made of mirostat's or adaptive-p's state, with which the answer goes on; None: it
    begins then. edited: how many tokens of `written`, from the first, are a text that the user has
    edited. key: a unique id, for storage. variant: the number, from 0, of an answer among the
    answers to one question. before: the turn that this turn follows. after: the turns that follow
    this one.

    Raises InvalidValueError for an unknown role and a content that is no text.
    """

    role: Role
    content: str
    thought: str = ""
    raw: str = ""
    written: TokenizedText = EMPTY
    vocabulary: str = ""
    stop_reason: str | None = None
    seed: int | None = None
    thinking: bool | None = None
    switch: bool | None = None
    template: str = ""
    thinking_budget: int | None = None
    sampler_state: SamplerState | None = None
    edited: int = 0
    media: tuple[MediaSpan, ...] = ()
    key: str = field(default_factory=lambda: uuid4().hex)
    variant: int = 0
    before: "Turn | None" = field(default=None, repr=False)
    after: list["Turn"] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        roles = get_args(Role)
        if self.role not in roles:
            choices = f"{', '.join(roles[:-1])} or {roles[-1]}"
            raise InvalidValueError(f"role is {self.role!r:.60}; it must be {choices}")
        require_kind("content", self.content, str, "a text")

    def copy(self) -> "Turn":
        """A copy with a key of its own, in no conversation yet."""
        return replace(self, key=uuid4().hex, before=None, after=[])

    @property
    def path(self) -> "list[Turn]":
        """All turns from the first of the conversation to this one."""
        turns = [self]
        while (before := turns[-1].before) is not None:
            turns.append(before)
        return turns[::-1]

    @property
    def next_variant(self) -> int:
        """The variant number of the next answer to this turn."""
        answers = [turn for turn in self.after if turn.role == "assistant"]
        return max([len(answers), *(turn.variant + 1 for turn in answers)])


class Conversation:
    """A tree of turns, and the branch that the next turn continues.

    Regenerating and editing delete nothing: the old turn stays beside the new one.

    began: the date and time that a chat template sees, so that the prompt stays the same.
    """

    def __init__(self, turns: Sequence[Turn] = (), *, began: datetime | None = None) -> None:
        """Begin with these turns. began: by default now."""
        self.began = began or datetime.now()
        self._first: list[Turn] = []
        self._last: Turn | None = None
        for turn in turns:
            self.add(turn)

    def __repr__(self) -> str:
        return f"<Conversation of {len(self.turns)} turns>"

    @classmethod
    def of(cls, given: "Conversation | None") -> "Conversation":
        """The given conversation, or a new one. Raises InvalidValueError for anything else."""
        require_kind("conversation", given, cls | None, "a Conversation")
        return given or cls()

    @property
    def last(self) -> Turn | None:
        """The last turn of the present branch: the next turn follows it. None at the beginning."""
        return self._last

    @property
    def turns(self) -> list[Turn]:
        """The present branch, from the first turn to the last."""
        return self._last.path if self._last else []

    def turn(self, number: int) -> Turn:
        """The turn with this number in `turns`, from 0. Raises InvalidValueError."""
        turns, number = self.turns, whole_number("number", number)
        if not 0 <= number < len(turns):
            raise InvalidValueError(f"there is no turn {number}; there are {len(turns)}, from 0 on")
        return turns[number]

    def require_last(self) -> Turn:
        """The last turn. Raises InvalidValueError at the beginning."""
        if self._last is None:
            raise InvalidValueError("there is no message yet; send one first")
        return self._last

    def copy_branch(self) -> "Conversation":
        """A conversation with copies of the turns of the present branch."""
        return Conversation([turn.copy() for turn in self.turns], began=self.began)

    def add(self, turn: Turn) -> Turn:
        """Add a turn after the last one; turns that followed it before stay as other branches."""
        turn.before = self._last
        self._siblings(turn).append(turn)
        self._last = turn
        return turn

    def back_to(self, turn: Turn | None) -> None:
        """Let the next turn follow this one; None: let it be a first turn."""
        self._last = turn

    def variants(self, turn: Turn) -> Sequence[Turn]:
        """This turn and the others after the same turn, oldest first."""
        return tuple(self._siblings(turn))

    def choose(self, turn: Turn) -> None:
        """Continue the branch of this turn; where it divides later, the newest branch."""
        while turn.after:
            turn = turn.after[-1]
        self._last = turn

    def remove(self, turn: Turn) -> None:
        """Delete a turn and all that follow it; the branch now ends before it."""
        self._siblings(turn).remove(turn)
        self._last = turn.before

    def everything(self) -> Iterator[Turn]:
        """Every turn of every branch; a turn comes after the turn that it follows."""
        waiting = self._first[::-1]
        while waiting:
            turn = waiting.pop()
            yield turn
            waiting.extend(reversed(turn.after))

    def _siblings(self, turn: Turn) -> list[Turn]:
        return turn.before.after if turn.before else self._first
