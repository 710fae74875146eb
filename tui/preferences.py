"""Preferences: what the chat remembers between runs."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.utils.paths import cache_folder, config_folder, write_atomically
from localspec.utils.stored_json import DamagedFileError, read_stored


@dataclass(frozen=True, slots=True)
class Preferences:
    """theme, model: what was used last; None is the default."""

    theme: str | None = None
    model: str | None = None

    @classmethod
    def read(cls) -> "Preferences":
        """Read the file; the defaults if it is missing or cannot be read."""
        try:
            found = read_stored(_file())
        except (OSError, DamagedFileError):
            return cls()
        known = found if isinstance(found, dict) else {}
        texts = {name: known.get(name) for name in ("theme", "model")}
        return cls(**{name: text for name, text in texts.items() if isinstance(text, str)})

    def remember(self, **changed: str | None) -> "Preferences":
        """Change some of them and write the file. Raises OSError if it cannot be written."""
        new = replace(self, **changed)
        if new != self:
            write_atomically(_file(), json.dumps({"theme": new.theme, "model": new.model}) + "\n")
        return new

    def remember_model(self, name: str, *, bundled: bool) -> "Preferences":
        """Remember the model in use. Raises OSError. bundled: whether it is the bundled pair's."""
        # The demo's model is one for looking on, and may be deleted at any time.
        if Path(name).parent == cache_folder("demo"):
            return self
        return self.remember(model=None if bundled else name)


def _file() -> Path:
    return config_folder() / "chat.json"
