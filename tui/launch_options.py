"""Start: what a chat begins with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Start:
    """model: None is the one that comes along. draft: what may draft. runtime: the other options of
    `localspec.load`. sampling: settings that are not the default. system: what the model is told
    first. session: the key of the conversation to go on with. theme: None is what is remembered.
    notes: lines to be shown first.
    """

    model: str | None = None
    draft: str = "auto"
    runtime: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None
    session: str | None = None
    theme: str | None = None
    notes: tuple[str, ...] = ()
