"""The engine's thread with the pair that comes along."""

from pathlib import Path

import pytest
from fakes.event_recorder import EventRecorder, kinds, of

from localspec.conversation.events import Ended
from localspec.errors import LocalspecError
from localspec_tui.engine_events import CommandFailed, ModelReady
from localspec_tui.engine_thread import EngineThread

CODE = "def add(a, b):\n    return"


def test_with_the_real_pair_stop_edit_and_going_on(pair: EventRecorder) -> None:
    pair.engine_thread.switch(max_tokens=400, ignore_eos=True)
    pair.engine_thread.send(CODE)
    pair.pieces(3)
    pair.engine_thread.stop()
    (ended,) = of(Ended, pair.done())
    assert ended.stop_reason == "cancelled"
    pair.engine_thread.switch(max_tokens=8)
    pair.engine_thread.edit(0, CODE + " a")
    assert kinds(pair.done())[-1] == "Ended"
    assert pair.contents[0] == CODE + " a"
    assert len(pair.conversation.variants(pair.conversation.turns[0])) == 2


def test_with_the_real_pair_drafters_switch_and_the_text_stays(pair: EventRecorder) -> None:
    drafted, texts = [], []
    pair.send(CODE)
    for draft in ("auto", "suffix", "none"):
        pair.engine_thread.switch(draft=draft)
        assert isinstance(pair.done()[-1], ModelReady)
        pair.engine_thread.regenerate()
        pair.done()
        assert pair.engine_thread.stats
        drafted.append(pair.engine_thread.stats.drafted)
        texts.append(pair.contents[-1])
    assert drafted[0] > 0 == drafted[-1]
    assert texts == [texts[0]] * 3


def test_with_the_real_pair_a_failed_switch_goes_back(pair: EventRecorder, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    pair.send(CODE)
    before = pair.contents[-1]
    for wrong, complaint in ((broken, "broken.gguf"), (tmp_path / "none.gguf", "none.gguf")):
        pair.engine_thread.switch(wrong)
        _, failed, ready = pair.done()
        assert isinstance(failed, CommandFailed) and complaint in failed.error
        assert isinstance(ready, ModelReady) and ready.bundled
        pair.engine_thread.regenerate()
        pair.done()
        assert pair.contents[-1] == before


def test_with_the_real_pair_close_in_the_middle_of_an_answer() -> None:
    watched = EventRecorder(EngineThread())
    watched.engine_thread.load(context=2048, threads=1, ignore_eos=True)
    watched.engine_thread.send(CODE)
    watched.pieces(3)
    session = watched.engine_thread.session
    watched.engine_thread.close()
    assert session
    with pytest.raises(LocalspecError, match="closed"):
        session.engine.generate(CODE)
    assert watched.contents[0] == CODE
    assert watched.conversation.turns[-1].stop_reason == "cancelled"
