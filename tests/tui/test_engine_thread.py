"""The engine thread, with a scripted engine."""

import threading
import time
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

from fakes.event_recorder import TIMEOUT, EventRecorder, answer_text, event_names, events_of
from fakes.scripted import MISMATCH, Script, ScriptedEngine

from localspec.conversation.events import Dropped, Ended, Piece
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError, ModelLoadError
from localspec.utils.progress import report_progress
from localspec_tui.engine_events import (
    AnswerStarted,
    CommandFailed,
    ConversationChanged,
    ModelLoading,
    ModelReady,
    QuestionAsked,
)
from localspec_tui.engine_thread import EngineThread

ENDLESS = "word " * 20_000
Start = Callable[..., EventRecorder]


def test_model_ready_describes_the_loaded_model(start: Start) -> None:
    script = Script(names=(), reason=MISMATCH, notes=["the context is smaller"], context=99)
    recorder = start(script, load=False)
    assert recorder.engine_thread.session is None
    recorder.engine_thread.load(threads=3)
    loading, ready = recorder.wait_done()
    assert isinstance(loading, ModelLoading)
    assert ready == ModelReady(
        "terminal", (), MISMATCH, ("the context is smaller",), 99, 32_768, True, True, False
    )
    assert script.engines[0].options == {"threads": 3, "context": 99}
    recorder.engine_thread.load("other.gguf", "suffix")
    assert recorder.wait_done()[1] == ModelReady(
        *("other.gguf", ("suffix",), None, ("the context is smaller",), 99, 32_768),
        *(False, True, False),
        draft_option="suffix",
    )


class _FailsOnce(dict[str, Exception]):
    def __getitem__(self, name: str) -> Exception:
        return self.pop(name)


def test_a_larger_context_keeps_the_conversation_and_the_options(start: Start) -> None:
    script = Script(answers=["one", "two", "three"], context=99)
    recorder = start(script, temperature=0.5)
    recorder.send("first")
    engine_thread = recorder.engine_thread
    engine_thread.switch(draft="suffix", top_k=7)
    recorder.wait_done()
    engine_thread.enlarge(198)
    events = recorder.wait_done()
    assert event_names(events) == ["ModelLoading", "ModelReady"]
    assert events_of(ModelReady, events)[0].context == 198
    assert script.engines[0].closed
    recorder.send("second")
    assert [turn.content for turn in engine_thread.session.turns] == [
        "first",
        "one",
        "second",
        "one",
    ]
    started = script.engines[1].slots.own.started[-1].sampling
    assert (started["temperature"], started["top_k"]) == (0.5, 7)


def test_a_context_that_is_too_large_leaves_the_old_one(start: Start) -> None:
    script = Script(answers=["one"], context=99)
    recorder = start(script)
    recorder.send("first")
    script.fails = _FailsOnce(load=ModelLoadError("it does not fit"))
    recorder.engine_thread.enlarge(198)
    events = recorder.wait_done()
    assert event_names(events)[-2:] == ["ModelReady", "CommandFailed"]
    [failed] = events_of(CommandFailed, events)
    assert (failed.error, failed.command) == ("it does not fit", "enlarge")
    assert events_of(ModelReady, events)[0].context == 99
    assert [turn.content for turn in recorder.engine_thread.session.turns] == ["first", "one"]


def test_an_answer_is_emitted_as_events_of_the_session(start: Start) -> None:
    recorder = start(Script(answers=["<think>Hm.</think>Hällo wörld, how are you?"]))
    events = recorder.send("Hi")
    assert event_names(events) == ["QuestionAsked", "Reading", "AnswerStarted", "Piece", "Ended"]
    question, answer = recorder.conversation.turns
    assert events_of(QuestionAsked, events) == [QuestionAsked(question)]
    assert events_of(AnswerStarted, events) == [AnswerStarted(answer)]
    assert answer_text(events) == answer.content == "Hällo wörld, how are you?"
    assert answer.thought == "Hm."
    (ended,) = events_of(Ended, events)
    assert ended.stats is recorder.engine_thread.stats
    assert ended.stats.accepted == len(
        [piece for piece in events_of(Piece, events) if piece.token.origin == "suffix"]
    )


def test_the_engine_does_not_wait_for_the_screen(start: Start) -> None:
    recorder = start(Script(answers=["word " * 500]))
    recorder.engine_thread.send("Hi")
    end = time.monotonic() + TIMEOUT
    while recorder.engine_thread.busy:  # nobody drains
        assert time.monotonic() < end
        time.sleep(0.001)
    assert answer_text(recorder.engine_thread.drain()) == "word " * 500
    assert recorder.engine_thread.drain() == []


def test_stop_keeps_the_partial_answer(start: Start) -> None:
    recorder = start(Script(answers=[ENDLESS], rate=300))
    recorder.engine_thread.send("Hi")
    recorder.wait_pieces(3)
    recorder.engine_thread.stop()
    events = recorder.wait_done()
    assert events_of(Ended, events)[0].stop_reason == "cancelled"
    assert recorder.conversation.turns[-1].stop_reason == "cancelled"
    assert recorder.contents[-1] == answer_text(events)
    assert ENDLESS.startswith(answer_text(events))


def test_stop_ends_an_answer_that_has_not_started(start: Start) -> None:
    recorder = start(Script(answers=[ENDLESS], rate=1))
    for _ in range(20):
        recorder.engine_thread.send("Hi")
        recorder.engine_thread.stop()
    assert {ended.stop_reason for ended in events_of(Ended, recorder.wait_done())} == {"cancelled"}
    assert recorder.contents == ["Hi"] * 20


def test_a_new_command_ends_the_answer_before_it(start: Start) -> None:
    recorder = start(Script(answers=[ENDLESS, "Second."], rate=300))
    recorder.engine_thread.send("One")
    recorder.wait_pieces(2)
    recorder.engine_thread.send("Two")
    events = recorder.wait_done()
    assert [ended.stop_reason for ended in events_of(Ended, events)] == ["cancelled", "eos"]
    assert [asked.turn.content for asked in events_of(QuestionAsked, events)] == ["One", "Two"]
    assert recorder.contents[2:] == ["Two", "Second."]


def test_regenerate_keeps_variants_and_choose_returns_to_one(start: Start) -> None:
    recorder = start(Script(answers=["First.", "Second."]))
    recorder.send("Hi")
    first = recorder.conversation.turns[-1]
    recorder.engine_thread.regenerate()
    assert event_names(recorder.wait_done()) == ["Reading", "AnswerStarted", "Piece", "Ended"]
    second = recorder.conversation.turns[-1]
    assert recorder.conversation.variants(second) == (first, second)
    recorder.engine_thread.choose(first)
    assert recorder.wait_done() == [ConversationChanged((first.before, first))]  # type: ignore[arg-type]
    assert recorder.contents == ["Hi", "First."]


def test_edit_starts_a_branch(start: Start) -> None:
    recorder = start(Script(answers=["First.", "Second.", "Third."]))
    for text in "One", "Two":
        recorder.send(text)
    two = recorder.conversation.turns[2]
    recorder.engine_thread.edit(2, "Other")
    assert event_names(recorder.wait_done()) == [
        "QuestionAsked",
        "Reading",
        "AnswerStarted",
        "Piece",
        "Ended",
    ]
    assert recorder.contents == ["One", "First.", "Other", "Third."]
    assert two in recorder.conversation.variants(recorder.conversation.turns[2])


def test_reset_continues_another_conversation(start: Start) -> None:
    recorder = start(Script(answers=["Yes."]))
    recorder.send("Hi")
    opened = Conversation([Turn("user", "Before"), Turn("assistant", "Long ago")])
    recorder.engine_thread.reset(opened, "Be brief.")
    assert recorder.wait_done() == [ConversationChanged(tuple(opened.turns))]
    assert recorder.engine_thread.session and recorder.engine_thread.session.system == "Be brief."
    assert recorder.engine_thread.stats is None
    recorder.send("Now")
    assert recorder.contents == ["Before", "Long ago", "Now", "Yes."]
    recorder.engine_thread.reset()
    assert recorder.wait_done() == [ConversationChanged(())]
    assert recorder.engine_thread.session.system is None


def test_by_default_the_oldest_turns_are_dropped_with_an_event(start: Start) -> None:
    recorder = start(Script(answers=["word " * 40]), context=160)
    events = [each for _ in range(4) for each in recorder.send("Say a word many times")]
    assert events_of(Dropped, events)


def test_when_full_may_be_stop(start: Start) -> None:
    recorder = start(Script(answers=[ENDLESS]), context=160, when_full="stop", system="Be long.")
    events = recorder.send("Hi")
    assert events_of(Ended, events)[0].stop_reason == "context"
    assert not events_of(Dropped, events)
    assert recorder.engine_thread.session and recorder.engine_thread.session.system == "Be long."


# Failures.


def test_a_failed_load_can_be_tried_again(start: Start) -> None:
    script = Script(fails={"load": ModelLoadError("x.gguf is no model;\ntry another")})
    recorder = start(script, load=False)
    recorder.engine_thread.load("x.gguf")
    failed = CommandFailed(
        "x.gguf is no model; try another", "load", exit_code=ModelLoadError.exit_code
    )
    assert recorder.wait_done()[1] == failed
    assert recorder.engine_thread.session is None
    assert events_of(CommandFailed, recorder.send("Hi"))[0].command == "send"
    script.fails.clear()
    recorder.engine_thread.load("y.gguf")
    assert event_names(recorder.wait_done()) == ["ModelLoading", "ModelReady"]
    assert event_names(recorder.send("Hi"))[-1] == "Ended"


def test_bad_options_fail_the_load_and_free_the_engine(start: Start) -> None:
    script = Script()
    recorder = start(script, load=False)
    recorder.engine_thread.load(temperature=-1)
    (failed,) = events_of(CommandFailed, recorder.wait_done())
    assert failed.command == "load" and "temperature" in failed.error
    assert script.engines[0].closed


def test_a_message_that_cannot_be_sent_adds_no_turn(start: Start) -> None:
    script = Script(fails={"send": InvalidValueError("it does not fit")})
    recorder = start(script)
    failed = CommandFailed("it does not fit", "send", exit_code=InvalidValueError.exit_code)
    assert recorder.send("Hi") == [failed]
    assert recorder.contents == []
    script.fails.clear()
    assert event_names(recorder.send("Hi"))[-1] == "Ended"


def test_the_thread_survives_any_exception(start: Start) -> None:
    script = Script(answers=["A long answer.", "Fine."], fails={"answer": RuntimeError("a bug")})
    recorder = start(script)
    events = recorder.send("Hi")
    assert events[-1] == CommandFailed("RuntimeError: a bug", "send")
    assert recorder.contents == ["Hi", answer_text(events)]
    script.fails.clear()
    recorder.engine_thread.regenerate()
    recorder.wait_done()
    assert recorder.contents == ["Hi", "Fine."]


# Switching.


def test_drafters_can_be_switched_within_a_conversation(start: Start) -> None:
    recorder = start(Script(answers=[ENDLESS, "Then this."], rate=300))
    recorder.engine_thread.send("Hi")
    recorder.wait_pieces(2)
    recorder.engine_thread.switch(draft="none", temperature=0.5)
    events = recorder.wait_done()
    ready = events[-1]
    assert event_names(events)[-3:] == ["Ended", "ModelLoading", "ModelReady"]
    assert isinstance(ready, ModelReady) and ready.draft == () and ready.reason
    origins = {piece.token.origin for piece in events_of(Piece, recorder.send("And?"))}
    assert origins == {"plain"}
    engine = recorder.engine_thread.session and recorder.engine_thread.session.engine
    assert isinstance(engine, ScriptedEngine)
    assert engine.slots.own.started[-1].sampling == {"temperature": 0.5}


def test_sampling_is_switched_without_loading(start: Start) -> None:
    recorder = start(Script())
    recorder.engine_thread.switch(temperature=0.5)
    assert event_names(recorder.wait_done()) == ["ModelReady"]
    recorder.engine_thread.switch(temperature=-1)
    assert event_names(recorder.wait_done()) == ["CommandFailed", "ModelReady"]


def test_a_failed_switch_changes_nothing(start: Start) -> None:
    script = Script()
    recorder = start(script)
    recorder.engine_thread.switch("small.gguf")
    ready = recorder.wait_done()[-1]
    assert isinstance(ready, ModelReady) and ready.model == "small.gguf"
    recorder.send("Hi")
    script.fails["switch"] = ModelLoadError("it is too big; take a smaller one")
    recorder.engine_thread.switch("big.gguf")
    loading, failed, ready = recorder.wait_done()
    assert loading == ModelLoading("loading big.gguf")
    assert failed == CommandFailed(
        "it is too big; take a smaller one", "switch", exit_code=ModelLoadError.exit_code
    )
    assert isinstance(ready, ModelReady) and ready.model == "small.gguf"
    assert event_names(recorder.send("Still there?"))[-1] == "Ended"
    assert len(recorder.contents) == 4


def test_stop_ends_loading_but_a_message_waits_for_it(start: Start) -> None:
    script, begun, wanted = Script(answers=["Hello."]), Event(), Event()

    def load(*arguments: Any, **options: Any) -> Any:
        begun.set()
        while not wanted.wait(0.001):
            report_progress("loading big.gguf", 0.25)
        return script.load(*arguments, **options)

    recorder = start(SimpleNamespace(load=load), load=False)
    recorder.engine_thread.load("big.gguf")
    assert begun.wait(10)
    recorder.engine_thread.stop()
    first, *told, failed = recorder.wait_done()
    assert first == ModelLoading("loading big.gguf")
    assert told in ([], [ModelLoading("loading big.gguf", 25)])
    assert failed == CommandFailed("loading was stopped", "load")
    assert recorder.engine_thread.session is None

    begun.clear()
    recorder.engine_thread.load("big.gguf")
    assert begun.wait(10)
    recorder.engine_thread.send("Hi")
    wanted.set()
    assert event_names(recorder.wait_done())[-1] == "Ended"
    assert recorder.contents == ["Hi", "Hello."]


def test_switch_loads_while_no_model_is_loaded(start: Start) -> None:
    script = Script(fails={"load": ModelLoadError("no")})
    recorder = start(script, load=False)
    recorder.engine_thread.load("x.gguf", "ngram", context=77)
    recorder.wait_done()
    script.fails.clear()
    recorder.engine_thread.switch("y.gguf")
    ready = recorder.wait_done()[-1]
    assert isinstance(ready, ModelReady)
    assert (ready.model, ready.draft, ready.context) == ("y.gguf", ("ngram",), 77)


def test_a_conversation_opened_after_a_failed_load_is_continued(start: Start) -> None:
    script = Script(fails={"load": ModelLoadError("no")})
    recorder = start(script, load=False)
    recorder.engine_thread.load(
        "x.gguf", system="Old.", conversation=Conversation([Turn("user", "Old")])
    )
    opened = Conversation([Turn("user", "New")])
    recorder.engine_thread.reset(opened, "New.")
    recorder.wait_done()
    script.fails.clear()
    recorder.engine_thread.switch("y.gguf")
    recorder.wait_done()
    assert recorder.conversation is opened
    assert recorder.engine_thread.session and recorder.engine_thread.session.system == "New."


def test_the_conversation_survives_a_load(start: Start) -> None:
    script = Script(answers=["Yes."])
    recorder = start(script, system="Be brief.")
    recorder.send("Hi")
    recorder.engine_thread.load("other.gguf")
    recorder.wait_done()
    assert script.engines[0].closed
    assert recorder.contents == ["Hi", "Yes."]
    assert recorder.engine_thread.session and recorder.engine_thread.session.system == "Be brief."


def test_a_conversation_can_be_opened_before_a_model_is_loaded(start: Start) -> None:
    recorder = start(Script(), load=False)
    opened = Conversation([Turn("user", "Before")])
    recorder.engine_thread.reset(opened, "Be brief.")
    recorder.engine_thread.load()
    assert event_names(recorder.wait_done()) == [
        "ConversationChanged",
        "ModelLoading",
        "ModelReady",
    ]
    assert recorder.conversation is opened
    assert recorder.engine_thread.session and recorder.engine_thread.session.system == "Be brief."


# Closing.


def test_close_ends_an_answer_and_frees_the_engine(start: Start) -> None:
    script = Script(answers=[ENDLESS], rate=300)
    recorder = start(script)
    recorder.engine_thread.send("Hi")
    recorder.wait_pieces(2)
    recorder.engine_thread.close()
    assert script.engines[0].closed
    events = recorder.wait_done()
    assert events_of(Ended, events)[0].stop_reason == "cancelled"
    assert recorder.contents == ["Hi", answer_text(events)]
    recorder.engine_thread.close()


def test_close_while_loading_frees_the_loaded_model() -> None:
    script, began, go_on = Script(), threading.Event(), threading.Event()

    def load(*args: object, **options: object) -> ScriptedEngine:
        began.set()
        assert go_on.wait(TIMEOUT)
        return script.load(*args, **options)  # type: ignore[arg-type]

    engine_thread = EngineThread(load)  # type: ignore[arg-type]
    engine_thread.load()
    engine_thread.send("Hi")
    assert began.wait(TIMEOUT)
    closing = threading.Thread(target=engine_thread.close)
    closing.start()
    go_on.set()
    closing.join(TIMEOUT)
    assert script.engines[0].closed
    assert not events_of(QuestionAsked, engine_thread.drain())
