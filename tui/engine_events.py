"""Engine events: what the engine thread reports to the screen, beside the events of a session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.conversation.events import Event
from localspec.conversation.thinking import has_thinking_switch, reads_effort
from localspec.conversation.turns import Turn
from localspec.drafters.spec import AUTO
from localspec.engine.engine import Engine
from localspec.errors import LocalspecError
from localspec.models import registry
from localspec.models.pair_finder import pair_of
from localspec_tui.load_request import Draft, LoadRequest
from localspec_tui.sampling_defaults import Recommended, models_own
from localspec_tui.session_settings import kept_of

# Speeds of the same work that differ by more are those of a busy machine.
_STEADY = 1.25


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
    could not be met in full, one line each. context: its size in tokens. longest_context: what the
    model was made for; 0 if that is not known. bundled: whether this is
    the bundled pair. has_template: whether the model has a chat template. has_thinking_switch:
    whether that can switch its reasoning on and off. reads_effort: whether it knows levels of it.
    chat_template: that was given in place of the model's own, if one was. mmproj: the file that
    reads images, if one was given. runtime: options of `localspec.load` that a session keeps.
    draft_option: the drafters as they were asked for. sampling: the options
    of GenerationConfig for which a value is recommended for the model.
    """

    model: str
    draft: tuple[str, ...]
    reason: str | None
    notes: tuple[str, ...]
    context: int
    longest_context: int
    bundled: bool
    has_template: bool
    has_thinking_switch: bool
    reads_effort: bool = False
    chat_template: str | None = None
    mmproj: str | None = None
    runtime: Mapping[str, Any] = field(default_factory=dict)
    draft_option: Draft = AUTO
    sampling: Mapping[str, Recommended] = field(default_factory=dict)

    @classmethod
    def of(cls, engine: Engine, request: LoadRequest) -> "ModelReady":
        """Describe a loaded engine. request: what it was loaded for."""
        name = request.model
        path, drafter_set = engine.model.path, engine.drafter_set
        loaded = engine.slots.own.loaded
        pair = pair_of(path) if name is None else None
        return cls(
            model=str(name or (pair.name if pair else path.stem)),
            draft=tuple(drafter_set.names),
            reason=drafter_set.reason,
            notes=tuple(engine.notes),
            context=engine.context,
            longest_context=loaded.longest_context,
            bundled=path == registry.bundled().target,
            has_template=engine.prefers_chat,
            has_thinking_switch=engine.prefers_chat
            and has_thinking_switch(engine.model.chat_template or ""),
            reads_effort=engine.prefers_chat and reads_effort(engine.model.chat_template or ""),
            draft_option=request.draft,
            chat_template=request.options.get("chat_template"),
            mmproj=request.options.get("mmproj"),
            runtime=kept_of(request.options),
            sampling=models_own(loaded.header.metadata, loaded.listed),
        )


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """A command raised an error.

    error: one line. command: the name of the `EngineThread` method. context_full: whether the
    earlier turns alone are too long for the context, so that dropping some of them would help.
    exit_code: of a command that ends with this error.
    """

    error: str
    command: str
    context_full: bool = False
    exit_code: int = LocalspecError.exit_code


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A user turn was added to the conversation."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    """The first token of an answer is there. The answer's own events follow.

    kept: the letters of the turn that were there before, because the answer is continued.
    """

    turn: Turn
    kept: int = 0


@dataclass(frozen=True, slots=True)
class AnswerEdited:
    """A text of the user was put beside an answer. turn: with this text. original: the answer."""

    turn: Turn
    original: Turn


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """Another branch was chosen, or another conversation was opened. turns: its active branch."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The last answer was generated again without drafts, once or several times.

    plain_rates: tokens per second of each run without drafts. expected_rate: tokens per second of
    plain steps while the answer was written, as its own passes tell; None if they do not. rate:
    tokens per second of the answer. first_difference: index of the first token that differs, from
    0; None if all answers are identical. digits: a line on which passes of the target have logits
    of equal bits; None if that was never tried.
    """

    plain_rates: Sequence[float]
    rate: float
    first_difference: int | None
    expected_rate: float | None = None
    digits: str | None = None

    @property
    def plain_rate(self) -> float:
        """Tokens per second without drafts, of all runs together; 0 if there are none."""
        seconds = sum(1 / rate for rate in self.plain_rates)
        return len(self.plain_rates) / seconds if seconds else 0.0

    @property
    def range(self) -> tuple[float, float]:
        """The lowest and the highest speed without drafts, then or now."""
        rates = [*self.plain_rates, *([self.expected_rate] if self.expected_rate else [])]
        return min(rates, default=0.0), max(rates, default=0.0)

    @property
    def is_steady(self) -> bool:
        """Whether the machine was about as fast in all runs as while the answer was written."""
        lowest, highest = self.range
        return highest <= _STEADY * lowest


EngineEvent = (
    Event
    | ModelLoading
    | ModelReady
    | CommandFailed
    | QuestionAsked
    | AnswerStarted
    | AnswerEdited
    | ConversationChanged
    | Comparison
)
