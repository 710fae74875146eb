"""Session settings: how the answers of a saved session are written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.drafters.spec import NAMES, split_kind, split_names
from localspec.errors import LocalspecError
from localspec.generation_config import GenerationConfig
from localspec.models.locate import locate
from localspec_tui.labels import model_label
from localspec_tui.row_values import UNREADABLE


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How answers of a session are written. draft: names of the drafters; None if not known.

    sampling: options of GenerationConfig that are not the default. drop_oldest: whether the oldest
    turns are dropped when the context is full; if not, the answer stops.
    """

    draft: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    drop_oldest: bool = False

    @classmethod
    def parse(cls, text: str | None) -> "SessionSettings":
        """Read what `as_json` wrote; what cannot be used is left out."""
        try:
            found = json.loads(text or "{}")
            draft, sampling = found.get("draft"), found.get("sampling", {})
            GenerationConfig.of(**sampling)
        except (*UNREADABLE, LocalspecError):
            return cls()
        drops = found.get("drop_oldest") is True
        return cls(draft if isinstance(draft, str) else None, sampling, drops)

    def as_json(self) -> str:
        """The settings as a text."""
        values = {"sampling": dict(self.sampling), "drop_oldest": self.drop_oldest}
        return json.dumps({"draft": self.draft, **values})

    @property
    def when_full(self) -> Literal["stop", "drop"]:
        """What Session does when the context is full."""
        return "drop" if self.drop_oldest else "stop"

    def usable_draft(self) -> tuple[str | None, str | None]:
        """The drafters, and None; or None, and a note that names those that are gone."""
        if not self.draft:
            return None, None
        names = split_names(self.draft)
        missing = [name for name in names if not is_there(split_kind(name)[1])]
        if not missing:
            return self.draft, None
        return None, f"{gone(*missing)}; the drafters are those of --draft auto"


def is_there(name: str) -> bool:
    """Whether it is a drafter without a model, or a model on this disk."""
    try:
        return name in NAMES or locate(name).is_file()
    except LocalspecError:
        return False


def gone(*names: str) -> str:
    """Say that these models are not on this disk."""
    labels = " and ".join(map(model_label, names))
    return f"{labels} {'is' if len(names) == 1 else 'are'} not on this machine any more"
