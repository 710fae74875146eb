"""Load request: which model to load, with which drafters and options."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.drafters.spec import AUTO, DraftOption
from localspec.engine import engine

ModelOption = str | Path | None
Draft = DraftOption | Sequence[DraftOption]

_ENGINE_OPTIONS = frozenset(inspect.signature(engine.load).parameters)
_CONVERSATION_OPTIONS = frozenset({"conversation", "system"})


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """model, draft: as `localspec.load` takes them. options: its other options, and Session's."""

    model: ModelOption = None
    draft: Draft = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def engine_options(self) -> dict[str, Any]:
        """The options of `localspec.load`."""
        return {name: value for name, value in self.options.items() if name in _ENGINE_OPTIONS}

    @property
    def session_options(self) -> dict[str, Any]:
        """The options of Session."""
        return {name: value for name, value in self.options.items() if name not in _ENGINE_OPTIONS}

    def without_conversation(self) -> "LoadRequest":
        """The same request without the conversation and the system prompt, for a later load."""
        kept = {name: self.options[name] for name in self.options.keys() - _CONVERSATION_OPTIONS}
        return LoadRequest(self.model, self.draft, kept)

    def changed(
        self,
        options: Mapping[str, Any],
        *,
        model: ModelOption = None,
        draft: Draft | None = None,
    ) -> "LoadRequest":
        """A request with another model, drafter or options; None keeps what this request has."""
        if model not in (None, self.model):
            # They were given for the model before.
            options = {"chat_template": None, "mmproj": None, "lora": [], **options}
        return LoadRequest(
            self.model if model is None else model,
            self.draft if draft is None else draft,
            {**self.options, **options},
        )
