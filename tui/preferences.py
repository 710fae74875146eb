"""Preferences: what the chat remembers between runs."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localspec.utils.paths import config_folder, write_atomically


@dataclass(frozen=True, slots=True)
class Preferences:
    """The theme, and the model that was loaded last; None is what comes first."""

    theme: str | None = None
    model: str | None = None

    @classmethod
    def read(cls) -> "Preferences":
        """What was remembered; the first ones where there is nothing that can be read."""
        try:
            found: Any = json.loads(_file().read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls()
        known = found if isinstance(found, dict) else {}
        texts = {name: known.get(name) for name in ("theme", "model")}
        return cls(**{name: text for name, text in texts.items() if isinstance(text, str)})

    def remember(self, **changed: str | None) -> "Preferences":
        """These with some changed, written down. Raises OSError where nothing can be written."""
        now = replace(self, **changed)
        if now != self:
            write_atomically(_file(), json.dumps({"theme": now.theme, "model": now.model}) + "\n")
        return now


def _file() -> Path:
    return config_folder() / "chat.json"
