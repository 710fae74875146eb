"""Workers, over scripts and over the pair that comes along; an archive in a folder of its own."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fakes.event_recorder import EventRecorder, kinds
from fakes.scripted import Script

from localspec_tui.archive import Archive
from localspec_tui.engine_events import ModelReady
from localspec_tui.engine_thread import EngineThread


@pytest.fixture
def begin() -> Iterator[Callable[..., EventRecorder]]:
    """Workers over a script, loaded unless told otherwise."""
    made: list[EngineThread] = []

    def make(script: Script, *, load: bool = True, **options: object) -> EventRecorder:
        made.append(EngineThread(script.load))
        watched = EventRecorder(made[-1])
        if load:
            watched.engine_thread.load(**options)  # type: ignore[arg-type]
            assert kinds(watched.done()) == ["ModelLoading", "ModelReady"]
        return watched

    yield make
    for engine_thread in made:
        engine_thread.close()


@pytest.fixture(scope="module")
def real() -> Iterator[EventRecorder]:
    """The pair that comes along, in one thread, whose numbers are the same at every width."""
    engine_thread = EngineThread()
    watched = EventRecorder(engine_thread)
    engine_thread.load(context=512, threads=1, flash_attention=True, max_tokens=24, temperature=0)
    ready = watched.done()[-1]
    assert isinstance(ready, ModelReady), ready
    assert ready.bundled and ready.model == "pycode"
    yield watched
    engine_thread.close()


@pytest.fixture
def pair(real: EventRecorder) -> EventRecorder:
    """It, with nothing said yet."""
    real.engine_thread.reset()
    real.engine_thread.switch(
        draft="auto", depth=3, temperature=0, seed=None, max_tokens=24, ignore_eos=False
    )
    assert isinstance(real.done()[-1], ModelReady)
    return real


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "sessions.sqlite3"


@pytest.fixture
def archive(file: Path) -> Iterator[Archive]:
    with closing(Archive(file)) as archive:
        yield archive
