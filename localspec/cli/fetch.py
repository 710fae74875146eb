"""Fetching from the Hub, with its progress on the screen."""

import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localspec.cli.interrupt import cancel_first, on_interrupt
from localspec.cli.output import Output
from localspec.cli.pull_output import NoDisplay, display_for
from localspec.hub.cache_layout import cached_files
from localspec.hub.download import download, require_space
from localspec.hub.listing import RemoteModel
from localspec.utils.progress import watched


def fetch(models: Sequence[RemoteModel]) -> list[Path]:
    """Fetch what is missing; return the first file of each. Raises KeyboardInterrupt."""
    require_space(models)
    cancel = threading.Event()
    complete = all(file.is_complete for model in models for file in cached_files(model))
    shown = NoDisplay() if complete else display_for(models)
    with on_interrupt(cancel_first(cancel)), shown:
        return download(models, shown, cancel.is_set)


@contextmanager
def waits_told(output: Output) -> Iterator[None]:
    """Tell why the Hub is asked again inside the block, or that it is silent, each reason once."""
    told: set[str] = set()

    def tell(reason: str, _share: float | None) -> None:
        if reason not in told:
            told.add(reason)
            output.note(reason)

    with watched(tell):
        yield


def quieten_hub() -> None:
    """Keep huggingface_hub's warnings off the screen, unless the user chose its log level.

    That there are no links on Windows without its developer mode is no news for every download.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"huggingface_hub\.")
    logger = logging.getLogger("huggingface_hub")
    if logger.level == logging.WARNING:
        logger.setLevel(logging.ERROR)
