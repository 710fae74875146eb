"""The engine thread, with the bundled pair."""

from pathlib import Path

import pytest
from fakes.event_recorder import EventRecorder, event_names, events_of

from localspec.conversation.events import Ended
from localspec.errors import LocalspecError
from localspec_tui.engine_events import CommandFailed, ModelReady
from localspec_tui.engine_thread import EngineThread

CODE = "def add(a, b):\n    return"


@pytest.mark.usefixtures("held_until_stopped")
def test_an_answer_is_stopped_and_its_question_edited(bundled_pair: EventRecorder) -> None:
    bundled_pair.engine_thread.switch(max_tokens=400, ignore_eos=True)
    bundled_pair.engine_thread.send(CODE)
    bundled_pair.wait_pieces(3)
    bundled_pair.engine_thread.stop()
    (ended,) = events_of(Ended, bundled_pair.wait_done())
    assert ended.stop_reason == "cancelled"
    bundled_pair.engine_thread.switch(max_tokens=8)
    bundled_pair.engine_thread.edit(0, CODE + " a")
    assert event_names(bundled_pair.wait_done())[-1] == "Ended"
    assert bundled_pair.contents[0] == CODE + " a"
    assert len(bundled_pair.conversation.variants(bundled_pair.conversation.turns[0])) == 2


def test_the_text_stays_when_drafters_are_switched(bundled_pair: EventRecorder) -> None:
    drafted, texts = [], []
    bundled_pair.send(CODE)
    for draft in ("auto", "suffix", "none"):
        bundled_pair.engine_thread.switch(draft=draft)
        assert isinstance(bundled_pair.wait_done()[-1], ModelReady)
        bundled_pair.engine_thread.regenerate()
        bundled_pair.wait_done()
        assert bundled_pair.engine_thread.stats
        drafted.append(bundled_pair.engine_thread.stats.drafted)
        texts.append(bundled_pair.contents[-1])
    assert drafted[0] > 0 == drafted[-1]
    assert texts == [texts[0]] * 3


def test_a_failed_switch_returns_to_the_loaded_model(
    bundled_pair: EventRecorder, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    bundled_pair.send(CODE)
    before = bundled_pair.contents[-1]
    for wrong, complaint in ((broken, "broken.gguf"), (tmp_path / "none.gguf", "none.gguf")):
        bundled_pair.engine_thread.switch(wrong)
        _, failed, ready = bundled_pair.wait_done()
        assert isinstance(failed, CommandFailed) and complaint in failed.error
        assert isinstance(ready, ModelReady) and ready.bundled
        bundled_pair.engine_thread.regenerate()
        bundled_pair.wait_done()
        assert bundled_pair.contents[-1] == before


def test_a_context_beyond_the_model_is_its_own_and_said() -> None:
    recorder = EventRecorder(EngineThread())
    recorder.engine_thread.load(context=1_000_000, threads=1)
    ready = recorder.wait_done()[-1]
    recorder.engine_thread.close()
    assert isinstance(ready, ModelReady) and ready.context == 2048
    assert any(note.startswith("context 2048: 1000000 is more than") for note in ready.notes)


@pytest.mark.usefixtures("held_until_stopped")
def test_close_ends_an_answer_and_frees_the_models() -> None:
    recorder = EventRecorder(EngineThread())
    recorder.engine_thread.load(context=2048, threads=1, ignore_eos=True)
    recorder.engine_thread.send(CODE)
    recorder.wait_pieces(3)
    session = recorder.engine_thread.session
    recorder.engine_thread.close()
    assert session
    with pytest.raises(LocalspecError, match="closed"):
        session.engine.generate(CODE)
    assert recorder.contents[0] == CODE
    assert recorder.conversation.turns[-1].stop_reason == "cancelled"
