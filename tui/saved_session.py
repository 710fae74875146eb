"""Saved session: a conversation as the archive has it, in a list or whole."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from localspec.conversation.turns import Conversation
from localspec_tui.origins import OriginSegment
from localspec_tui.session_settings import SessionSettings


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session as a list shows it. changed: with a time zone. turns: of the active branch."""

    key: str
    title: str
    model: str
    changed: datetime
    turns: int


@dataclass(frozen=True, slots=True)
class SavedSession:
    """A session with all its turns.

    settings: those that it was last continued with. origins: of its answers, by the key of the
    turn. unsent: what was in the text box when the session was left.
    """

    key: str
    title: str
    model: str
    system: str | None
    conversation: Conversation
    settings: SessionSettings
    origins: Mapping[str, Sequence[OriginSegment]]
    unsent: str
