"""Hub probe: reports what huggingface_hub is set to, and what it has on disk."""

import os
from typing import Any

from huggingface_hub import __version__, constants

from localspec.doctor.probe import report_facts
from localspec.hub import store
from localspec.hub.environment import offline_setting
from localspec.hub.partial_files import partial_files


def hub_facts() -> dict[str, Any]:
    """Return its settings; of a token only the file, not the text.

    offline: the variable by which nothing may be fetched, if one is set so.
    """
    file = constants.HF_TOKEN_PATH
    return {
        "version": __version__,
        "cache": str(store.hub_cache()),
        "token_file": file if os.path.isfile(file) and os.path.getsize(file) else None,
        "offline": offline_setting() if constants.HF_HUB_OFFLINE else None,
    }


def interrupted_facts() -> list[dict[str, Any]]:
    """Return what interrupted downloads left on the disk, one entry per file."""
    return [
        {"model": part.model or repository, "bytes": part.size, "resumable": part.resumable}
        for repository in store.repositories()
        for part in partial_files(repository)
    ]


if __name__ == "__main__":
    report_facts("hub", hub_facts())
    report_facts("interrupted", interrupted_facts())
