"""This process as a client of the fake Hub, and child processes that are."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fakes.hub import Hub
from huggingface_hub import close_session, constants

from localspec.errors import LocalspecError
from localspec.hub.download import download
from localspec.hub.listing import RemoteModel, look_up
from localspec.hub.reference import Repository

# What a child does: fetches what it is given, prints where it lies, or says why not.
_FETCH = """
import sys
from localspec.errors import LocalspecError
from localspec.hub.download import download
from localspec.hub.listing import look_up
from localspec.hub.reference import repository

try:
    models = [look_up(repository(name)) for name in sys.argv[1:]]
    print(*download(models, lambda progress: None, lambda: False), sep="\\n")
except LocalspecError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


@contextmanager
def asking(endpoint: str, folder: Path) -> Iterator[pytest.MonkeyPatch]:
    """While inside, this process has a Hub, a cache in a folder, no token, and little patience."""
    template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
            patch.delenv(name, raising=False)
        patch.setattr(constants, "ENDPOINT", endpoint)
        patch.setenv("HF_ENDPOINT", endpoint)
        patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        patch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
        patch.setattr(constants, "AGENT_HARNESSES_PATH", str(folder / "agents.json"))
        patch.setattr("localspec.hub.retry.FIRST_DELAY", 0.01)
        try:
            yield patch
        finally:
            close_session()


class Child:
    """Fetches in a process of its own, with the same cache for all of them."""

    def __init__(self, hub: Hub, folder: Path) -> None:
        self.cache = folder / "hub"
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("HF_", "HUGGING"))
        }
        self.environment = clean | {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(folder)}

    @contextmanager
    def running(
        self, *names: str, code: str = _FETCH, before: str = "", **environment: str
    ) -> Iterator["subprocess.Popen[str]"]:
        """before: what it does first."""
        with subprocess.Popen(
            [sys.executable, "-c", before + code, *names],
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def __call__(self, *names: str, before: str = "", **environment: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of a run to its end."""
        with self.running(*names, before=before, **environment) as process:
            out, err = process.communicate()
            return process.returncode, out, err


def fetch(*wanted: Repository | RemoteModel) -> list[Path]:
    """Download what the Hub has."""
    models = [look_up(each) if isinstance(each, Repository) else each for each in wanted]
    return download(models, lambda _: None, lambda: False)


def why_not(kind: type[LocalspecError], *wanted: Repository | RemoteModel) -> str:
    """The message of the error that fetching ends with."""
    with pytest.raises(kind) as caught:
        fetch(*wanted)
    assert caught.value.exit_code == kind.exit_code
    return str(caught.value)


def ranges(hub: Hub) -> list[str | None]:
    """What was asked of the storage."""
    return [request.range for request in hub.requests if request.origin == "cdn"]


def wait_for(reached: Callable[[], bool]) -> None:
    """Until it is so, for a minute at most."""
    for _ in range(6000):
        if reached():
            return
        time.sleep(0.01)
    raise AssertionError("it never came to that")
