"""Engine events: what the engine thread reports to the screen, beside the events of a session."""

from dataclasses import dataclass
from pathlib import Path

from localspec.conversation.events import Event
from localspec.conversation.turns import Turn
from localspec.engine.engine import Engine
from localspec.models import registry
from localspec.models.pair_finder import pair_of


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """A model or a drafter is being loaded.

    action: one line for the user, such as "loading big.gguf". percent: how much of it is done, or
    None where that is not known.
    """

    action: str
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class ModelReady:
    """The model that answers from now on. After a failed switch, it is the model from before.

    model: a name or path that loads this model again. draft: names of the drafters. reason: why
    there is no drafter, or why one is missing; None if nothing is missing. notes: requests that
    could not be met in full, one line each. context: its size in tokens. bundled: whether this is
    the bundled pair. has_template: whether the model has a chat template.
    """

    model: str
    draft: tuple[str, ...]
    reason: str | None
    notes: tuple[str, ...]
    context: int
    bundled: bool
    has_template: bool

    @classmethod
    def of(cls, engine: Engine, name: str | Path | None) -> "ModelReady":
        """Describe a loaded engine. name: what the user asked for; None is the bundled pair."""
        path, drafter_set = engine.model.path, engine.drafter_set
        pair = pair_of(path) if name is None else None
        return cls(
            model=str(name or (pair.name if pair else path.stem)),
            draft=tuple(drafter_set.names),
            reason=drafter_set.reason,
            notes=tuple(engine.notes),
            context=engine.context,
            bundled=path == registry.bundled().target,
            has_template=engine.prefers_chat,
        )


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """A command raised an error.

    error: one line. command: the name of the `EngineThread` method. context_full: whether the
    earlier turns alone are too long for the context, so that dropping some of them would help.
    """

    error: str
    command: str
    context_full: bool = False


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A user turn was added to the conversation."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The first token of an answer is there. The answer's own events follow."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """Another branch was chosen, or another conversation was opened. turns: its active branch."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The last answer was generated a second time, without drafts.

    plain_rate, rate: tokens per second without and with drafts. first_difference: index of the
    first token that differs, from 0; None if the two answers are identical. digits: a line on which
    passes of the target have logits of equal bits; None if that was never tried.
    """

    plain_rate: float
    rate: float
    identical: bool
    first_difference: int | None
    digits: str | None = None


EngineEvent = (
    Event
    | ModelLoading
    | ModelReady
    | CommandFailed
    | QuestionAsked
    | AnswerStarted
    | ConversationChanged
    | Comparison
)
