"""Engine threads with scripted engines and with the bundled pair; an empty archive."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from fakes.event_recorder import TIMEOUT, EventRecorder, event_names
from fakes.plain_chat import Chat, plain_chat
from fakes.scripted import Script

from localspec.conversation.answer import Answer
from localspec.engine.scheduler import ScheduledText
from localspec.speculation.passes import Pass, Scores
from localspec_tui import event_handler
from localspec_tui.archive import Archive
from localspec_tui.engine_events import ModelReady
from localspec_tui.engine_thread import EngineThread


@pytest.fixture
def start() -> Iterator[Callable[..., EventRecorder]]:
    """Starts an engine thread with a script, and by default loads the model."""
    made: list[EngineThread] = []

    def make(script: Script, *, load: bool = True, **options: object) -> EventRecorder:
        made.append(EngineThread(script.load))
        recorder = EventRecorder(made[-1])
        if load:
            recorder.engine_thread.load(**options)  # type: ignore[arg-type]
            assert event_names(recorder.wait_done()) == ["ModelLoading", "ModelReady"]
        return recorder

    yield make
    for engine_thread in made:
        engine_thread.close()


@pytest.fixture(scope="module")
def loaded_pair() -> Iterator[EventRecorder]:
    """The bundled pair with one compute thread, so that logits are the same at every width."""
    engine_thread = EngineThread()
    recorder = EventRecorder(engine_thread)
    engine_thread.load(context=512, threads=1, flash_attention=True, max_tokens=24, temperature=0)
    ready = recorder.wait_done()[-1]
    assert isinstance(ready, ModelReady), ready
    assert ready.bundled and ready.model == "terminal"
    yield recorder
    engine_thread.close()


@pytest.fixture
def bundled_pair(loaded_pair: EventRecorder) -> EventRecorder:
    """The bundled pair with an empty conversation."""
    loaded_pair.engine_thread.reset()
    loaded_pair.engine_thread.switch(
        draft="auto", depth=3, temperature=0, seed=None, max_tokens=24, ignore_eos=False
    )
    assert isinstance(loaded_pair.wait_done()[-1], ModelReady)
    return loaded_pair


@pytest.fixture
def held_until_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The 60th pass waits until an answer is stopped, so that none has ended by itself before."""
    passes, stopped = count(1), threading.Event()
    compute, stop = ScheduledText.compute, Answer.stop

    def held(text: ScheduledText, requested: Pass) -> Scores:
        if next(passes) == 60:
            assert stopped.wait(TIMEOUT)
        return compute(text, requested)

    def noted(answer: Answer) -> None:
        stop(answer)
        stopped.set()

    monkeypatch.setattr(ScheduledText, "compute", held)
    monkeypatch.setattr(Answer, "stop", noted)


@pytest.fixture(autouse=True)
def no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests copy nothing to the desktop of who runs them."""
    monkeypatch.setenv("SSH_TTY", "/dev/null")
    for name in ("SSH_CONNECTION", "DISPLAY", "WAYLAND_DISPLAY", "TMUX"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def terminal_with_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where TERM is dumb, the chat is the plain one."""
    if os.environ.get("TERM") == "dumb":
        monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture(autouse=True)
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects of a test run are too many to go through in each test, or to keep for ever."""
    monkeypatch.setattr(event_handler, "freeze_garbage_collector", lambda: None)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as LOCALSPEC_HOME."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("LOCALSPEC_HOME", str(home))
    return home


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "sessions.sqlite3"


@pytest.fixture
def archive(file: Path) -> Iterator[Archive]:
    with closing(Archive(file)) as archive:
        yield archive


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path) -> Chat:
    """Runs a plain chat over a pipe with these bytes or lines in it."""
    return plain_chat(monkeypatch, capsys, file)
