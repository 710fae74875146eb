"""Wanted: which models are to be loaded, and how."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.engine import engine
from localspec.loading.drafter_loader import AUTO, Choice

Model = str | Path | None
Draft = Choice | Sequence[Choice]

_OF_ENGINE = frozenset(inspect.signature(engine.load).parameters)
_OF_TALK = frozenset({"conversation", "system"})


@dataclass(frozen=True, slots=True)
class Wanted:
    """model, draft: as `localspec.load` takes them. options: its others, and those of Session."""

    model: Model = None
    draft: Draft = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def of_engine(self) -> dict[str, Any]:
        """The options of `localspec.load`."""
        return {name: value for name, value in self.options.items() if name in _OF_ENGINE}

    @property
    def of_session(self) -> dict[str, Any]:
        """The options of Session."""
        return {name: value for name, value in self.options.items() if name not in _OF_ENGINE}

    @property
    def again(self) -> "Wanted":
        """Without what was said, as more may have been said since."""
        kept = {name: self.options[name] for name in self.options.keys() - _OF_TALK}
        return Wanted(self.model, self.draft, kept)

    def but(self, model: Model, draft: Draft | None, options: Mapping[str, Any]) -> "Wanted":
        """With these changes; what is None, or no option named, stays."""
        return Wanted(
            self.model if model is None else model,
            self.draft if draft is None else draft,
            {**self.options, **options},
        )
