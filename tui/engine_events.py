"""Happenings: what the engine's thread has to tell the screen, beside a session's own events."""

from dataclasses import dataclass
from pathlib import Path

from localspec.conversation.events import Event
from localspec.conversation.turns import Turn
from localspec.engine.engine import Engine
from localspec.models import registry
from localspec.models.pair_finder import pair_of


@dataclass(frozen=True, slots=True)
class Loading:
    """Models are being loaded, which may take a while.

    doing: in words. percent: how much of that is done, where it is known.
    """

    doing: str
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """This is what answers from here on; after a failed switch, what did before.

    model: by which it can be named to load it again. draft: the names of the drafters. reason: why
    there are none, or why one is missing. notes: what is less than could be expected, a line each.
    context: tokens. bundled: whether it is the pair that comes along. has_template: whether it is
    made for chats.
    """

    model: str
    draft: tuple[str, ...]
    reason: str | None
    notes: tuple[str, ...]
    context: int
    bundled: bool
    has_template: bool

    @classmethod
    def of(cls, engine: Engine, name: str | Path | None) -> "Ready":
        """name: by which the model was asked for; None is the one that comes along."""
        path, drafting = engine.model.path, engine.drafting
        pair = pair_of(path) if name is None else None
        return cls(
            model=str(name or (pair.name if pair else path.stem)),
            draft=tuple(drafting.names),
            reason=drafting.reason,
            notes=tuple(engine.notes),
            context=engine.context,
            bundled=path == registry.bundled().target,
            has_template=engine.prefers_chat,
        )


@dataclass(frozen=True, slots=True)
class Failed:
    """Something was not done.

    error: a line. during: the name of the worker's method. full: only what was said before it is
    too much for the context.
    """

    error: str
    during: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A turn was said to the model."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Answering:
    """An answer has begun; its pieces follow."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Changed:
    """The conversation goes on with another branch, or is another. turns: of it."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """The last answer was written again without drafts.

    plain_rate, rate: tokens per second without and with. first_difference: the number, from 0, of
    the first token that is not the same; None if all are.
    """

    plain_rate: float
    rate: float
    identical: bool
    first_difference: int | None


Happening = Event | Loading | Ready | Failed | Asked | Answering | Changed | Compared
