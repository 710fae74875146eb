"""Hub facts, asked for in a child process: what huggingface_hub is set to, and has on disk."""

import os
from typing import Any

from huggingface_hub import __version__, constants

from localspec.doctor.child import tell
from localspec.hub import store
from localspec.hub.partial_files import parts_of


def hub_facts() -> dict[str, Any]:
    """Its settings. Of a token only where it lies, not what it is."""
    file = constants.HF_TOKEN_PATH
    return {
        "version": __version__,
        "cache": str(store.hub_cache()),
        "token_file": file if os.path.isfile(file) and os.path.getsize(file) else None,
        "offline": constants.HF_HUB_OFFLINE,
    }


def interrupted() -> list[dict[str, Any]]:
    """What interrupted downloads left, file by file."""
    return [
        {"model": part.model or repository, "bytes": part.size, "resumable": part.resumable}
        for repository in store.repositories()
        for part in parts_of(repository)
    ]


if __name__ == "__main__":
    tell("hub", hub_facts())
    tell("interrupted", interrupted())
