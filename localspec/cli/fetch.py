"""Fetching from the Hub, with its progress on the screen."""

import logging
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

from localspec.cli.interrupt import cancel_first, on_interrupt
from localspec.cli.pull_output import NoDisplay, display_for
from localspec.hub.download import bytes_on_disk, download, require_space
from localspec.hub.listing import RemoteModel


def fetch(models: Sequence[RemoteModel]) -> list[Path]:
    """Fetch what is missing; return the first file of each. Raises KeyboardInterrupt."""
    require_space(models)
    cancel = threading.Event()
    missing = any(bytes_on_disk(model) < model.size for model in models)
    shown = display_for(models) if missing else NoDisplay()
    with on_interrupt(cancel_first(cancel)), shown:
        return download(models, shown, cancel.is_set)


def quieten_hub() -> None:
    """Keep huggingface_hub's warnings off the screen, unless the user chose its log level.

    That there are no links on Windows without its developer mode is no news for every download.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"huggingface_hub\.")
    logger = logging.getLogger("huggingface_hub")
    if logger.level == logging.WARNING:
        logger.setLevel(logging.ERROR)
