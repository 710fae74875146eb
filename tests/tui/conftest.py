"""Workers, over scripts and over the pair that comes along; an archive in a folder of its own."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fakes.scripted import Script
from fakes.watched import Watched, kinds

from localspec_tui.archive import Archive
from localspec_tui.engine_events import Ready
from localspec_tui.worker import Worker


@pytest.fixture
def begin() -> Iterator[Callable[..., Watched]]:
    """Workers over a script, loaded unless told otherwise."""
    made: list[Worker] = []

    def make(script: Script, *, load: bool = True, **options: object) -> Watched:
        made.append(Worker(script.load))
        watched = Watched(made[-1])
        if load:
            watched.worker.load(**options)  # type: ignore[arg-type]
            assert kinds(watched.done()) == ["Loading", "Ready"]
        return watched

    yield make
    for worker in made:
        worker.close()


@pytest.fixture(scope="module")
def real() -> Iterator[Watched]:
    """The pair that comes along, in one thread, whose numbers are the same at every width."""
    worker = Worker()
    watched = Watched(worker)
    worker.load(context=512, threads=1, flash_attention=True, max_tokens=24, temperature=0)
    ready = watched.done()[-1]
    assert isinstance(ready, Ready), ready
    assert ready.bundled and ready.model == "pycode"
    yield watched
    worker.close()


@pytest.fixture
def pair(real: Watched) -> Watched:
    """It, with nothing said yet."""
    real.worker.reset()
    real.worker.switch(
        draft="auto", depth=3, temperature=0, seed=None, max_tokens=24, ignore_eos=False
    )
    assert isinstance(real.done()[-1], Ready)
    return real


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "sessions.sqlite3"


@pytest.fixture
def archive(file: Path) -> Iterator[Archive]:
    with closing(Archive(file)) as archive:
        yield archive
