"""Labels: models and speeds as short texts, the same on every screen."""

import os
from pathlib import Path

from localspec.drafters.spec import NAMES, join_names, split_kind, split_names


def model_label(name: str) -> str:
    """A short name of a model: the file name of a path, else the name itself."""
    return Path(name).name if name.endswith(".gguf") else name


def absolute(name: str) -> str:
    """The absolute path of a file, as a session keeps it; else the name as it is."""
    path = os.path.expanduser(name.strip())
    return os.path.abspath(path) if os.path.isfile(path) else name


def absolute_drafters(draft: str) -> str:
    """Names of drafters, separated by commas, with absolute paths."""
    kinds_and_models = map(split_kind, split_names(draft))
    return join_names(
        kind + (model if model in NAMES else absolute(model)) for kind, model in kinds_and_models
    )


def messages_text(count: int) -> str:
    """How many messages a session has."""
    return f"{count} message{'s' if count > 1 else ''}" if count else "not sent yet"


def speed_text(rate: float) -> str:
    """A speed in tokens per second."""
    return f"{rate:.1f} tok/s"


def gain_text(gain: float) -> str:
    """How many times faster than plain decoding."""
    return f"{gain:.1f}x plain"
