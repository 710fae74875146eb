"""The engine's thread, over a scripted engine."""

import threading
import time
from collections.abc import Callable
from threading import Event
from types import SimpleNamespace
from typing import Any

from fakes.event_recorder import SECONDS, EventRecorder, kinds, of, said
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
Begin = Callable[..., EventRecorder]


def test_ready_says_what_was_loaded(begin: Begin) -> None:
    script = Script(names=(), reason=MISMATCH, notes=["the context is smaller"], context=99)
    watched = begin(script, load=False)
    assert watched.engine_thread.session is None
    watched.engine_thread.load(threads=3)
    loading, ready = watched.done()
    assert isinstance(loading, ModelLoading)
    assert ready == ModelReady("pycode", (), MISMATCH, ("the context is smaller",), 99, True, True)
    assert script.engines[0].options == {"threads": 3, "context": 99}
    watched.engine_thread.load("other.gguf", "suffix")
    assert watched.done()[1] == ModelReady(
        "other.gguf", ("suffix",), None, ("the context is smaller",), 99, False, True
    )


def test_an_answer_comes_as_the_sessions_own_events(begin: Begin) -> None:
    watched = begin(Script(answers=["<think>Hm.</think>Hällo wörld, how are you?"]))
    happened = watched.send("Hi")
    assert kinds(happened) == ["QuestionAsked", "Reading", "AnswerStarted", "Piece", "Ended"]
    question, answer = watched.conversation.turns
    assert of(QuestionAsked, happened) == [QuestionAsked(question)]
    assert of(AnswerStarted, happened) == [AnswerStarted(answer)]
    assert said(happened) == answer.content == "Hällo wörld, how are you?"
    assert answer.thought == "Hm."
    (ended,) = of(Ended, happened)
    assert ended.stats is watched.engine_thread.stats
    assert ended.stats.accepted == len(
        [piece for piece in of(Piece, happened) if piece.token.origin == "suffix"]
    )
    assert watched.engine_thread.plain_seconds == 0.01


def test_the_engine_does_not_wait_for_the_screen(begin: Begin) -> None:
    watched = begin(Script(answers=["word " * 500]))
    watched.engine_thread.send("Hi")
    end = time.monotonic() + SECONDS
    while watched.engine_thread.busy:  # nobody drains
        assert time.monotonic() < end
        time.sleep(0.001)
    assert said(watched.engine_thread.drain()) == "word " * 500
    assert watched.engine_thread.drain() == []


def test_stop_keeps_what_was_said(begin: Begin) -> None:
    watched = begin(Script(answers=[ENDLESS], rate=300))
    watched.engine_thread.send("Hi")
    watched.pieces(3)
    watched.engine_thread.stop()
    happened = watched.done()
    assert of(Ended, happened)[0].stop_reason == "cancelled"
    assert watched.conversation.turns[-1].stop_reason == "cancelled"
    assert watched.contents[-1] == said(happened)
    assert ENDLESS.startswith(said(happened))


def test_stop_reaches_an_answer_that_has_not_begun(begin: Begin) -> None:
    watched = begin(Script(answers=[ENDLESS], rate=1))
    for _ in range(20):
        watched.engine_thread.send("Hi")
        watched.engine_thread.stop()
    assert {ended.stop_reason for ended in of(Ended, watched.done())} == {"cancelled"}
    assert watched.contents == ["Hi"] * 20


def test_what_is_ordered_ends_the_answer_before_and_comes_after_it(begin: Begin) -> None:
    watched = begin(Script(answers=[ENDLESS, "Second."], rate=300))
    watched.engine_thread.send("One")
    watched.pieces(2)
    watched.engine_thread.send("Two")
    happened = watched.done()
    assert [ended.stop_reason for ended in of(Ended, happened)] == ["cancelled", "eos"]
    assert [asked.turn.content for asked in of(QuestionAsked, happened)] == ["One", "Two"]
    assert watched.contents[2:] == ["Two", "Second."]


def test_regenerate_keeps_variants_and_choose_goes_back_to_one(begin: Begin) -> None:
    watched = begin(Script(answers=["First.", "Second."]))
    watched.send("Hi")
    first = watched.conversation.turns[-1]
    watched.engine_thread.regenerate()
    assert kinds(watched.done()) == ["Reading", "AnswerStarted", "Piece", "Ended"]
    second = watched.conversation.turns[-1]
    assert watched.conversation.variants(second) == (first, second)
    watched.engine_thread.choose(first)
    assert watched.done() == [ConversationChanged((first.before, first))]  # type: ignore[arg-type]
    assert watched.contents == ["Hi", "First."]


def test_edit_begins_a_branch(begin: Begin) -> None:
    watched = begin(Script(answers=["First.", "Second.", "Third."]))
    for text in "One", "Two":
        watched.send(text)
    two = watched.conversation.turns[2]
    watched.engine_thread.edit(2, "Other")
    assert kinds(watched.done()) == ["QuestionAsked", "Reading", "AnswerStarted", "Piece", "Ended"]
    assert watched.contents == ["One", "First.", "Other", "Third."]
    assert two in watched.conversation.variants(watched.conversation.turns[2])


def test_reset_goes_on_with_another_conversation(begin: Begin) -> None:
    watched = begin(Script(answers=["Yes."]))
    watched.send("Hi")
    opened = Conversation([Turn("user", "Before"), Turn("assistant", "Long ago")])
    watched.engine_thread.reset(opened, "Be brief.")
    assert watched.done() == [ConversationChanged(tuple(opened.turns))]
    assert watched.engine_thread.session and watched.engine_thread.session.system == "Be brief."
    assert watched.engine_thread.stats is None
    watched.send("Now")
    assert watched.contents == ["Before", "Long ago", "Now", "Yes."]
    watched.engine_thread.reset()
    assert watched.done() == [ConversationChanged(())]
    assert watched.engine_thread.session.system is None


def test_by_default_the_oldest_turns_are_dropped_and_that_is_said(begin: Begin) -> None:
    watched = begin(Script(answers=["word " * 40]), context=160)
    happened = [each for _ in range(4) for each in watched.send("Say a word many times")]
    assert of(Dropped, happened)


def test_when_full_may_be_stop(begin: Begin) -> None:
    watched = begin(Script(answers=[ENDLESS]), context=160, when_full="stop", system="Be long.")
    happened = watched.send("Hi")
    assert of(Ended, happened)[0].stop_reason == "context"
    assert not of(Dropped, happened)
    assert watched.engine_thread.session and watched.engine_thread.session.system == "Be long."


# What fails.


def test_a_load_that_fails_may_be_tried_again(begin: Begin) -> None:
    script = Script(fails={"load": ModelLoadError("x.gguf is no model;\ntry another")})
    watched = begin(script, load=False)
    watched.engine_thread.load("x.gguf")
    assert watched.done()[1] == CommandFailed("x.gguf is no model; try another", "load")
    assert watched.engine_thread.session is None
    assert of(CommandFailed, watched.send("Hi"))[0].command == "send"
    script.fails.clear()
    watched.engine_thread.load("y.gguf")
    assert kinds(watched.done()) == ["ModelLoading", "ModelReady"]
    assert kinds(watched.send("Hi"))[-1] == "Ended"


def test_options_that_make_no_sense_fail_the_load_and_free_the_engine(begin: Begin) -> None:
    script = Script()
    watched = begin(script, load=False)
    watched.engine_thread.load(temperature=-1)
    (failed,) = of(CommandFailed, watched.done())
    assert failed.command == "load" and "temperature" in failed.error
    assert script.engines[0].closed


def test_what_cannot_be_sent_is_not_said(begin: Begin) -> None:
    script = Script(fails={"send": InvalidValueError("it does not fit")})
    watched = begin(script)
    assert watched.send("Hi") == [CommandFailed("it does not fit", "send")]
    assert watched.contents == []
    script.fails.clear()
    assert kinds(watched.send("Hi"))[-1] == "Ended"


def test_the_thread_outlives_whatever_is_raised(begin: Begin) -> None:
    script = Script(answers=["A long answer.", "Fine."], fails={"answer": RuntimeError("a bug")})
    watched = begin(script)
    happened = watched.send("Hi")
    assert happened[-1] == CommandFailed("RuntimeError: a bug", "send")
    assert watched.contents == ["Hi", said(happened)]
    script.fails.clear()
    watched.engine_thread.regenerate()
    watched.done()
    assert watched.contents == ["Hi", "Fine."]


# Switching.


def test_drafters_switch_in_the_middle_of_a_conversation(begin: Begin) -> None:
    watched = begin(Script(answers=[ENDLESS, "Then this."], rate=300))
    watched.engine_thread.send("Hi")
    watched.pieces(2)
    watched.engine_thread.switch(draft="none", temperature=0.5)
    happened = watched.done()
    ready = happened[-1]
    assert kinds(happened)[-3:] == ["Ended", "ModelLoading", "ModelReady"]
    assert isinstance(ready, ModelReady) and ready.draft == () and ready.reason
    origins = {piece.token.origin for piece in of(Piece, watched.send("And?"))}
    assert origins == {"plain"}
    engine = watched.engine_thread.session and watched.engine_thread.session.engine
    assert isinstance(engine, ScriptedEngine)
    assert engine.slot.started[-1].sampling == {"temperature": 0.5}


def test_settings_switch_without_loading(begin: Begin) -> None:
    watched = begin(Script())
    watched.engine_thread.switch(temperature=0.5)
    assert kinds(watched.done()) == ["ModelReady"]
    watched.engine_thread.switch(temperature=-1)
    assert kinds(watched.done()) == ["CommandFailed", "ModelReady"]


def test_a_switch_that_fails_leaves_all_as_it_was(begin: Begin) -> None:
    script = Script()
    watched = begin(script)
    watched.engine_thread.switch("small.gguf")
    ready = watched.done()[-1]
    assert isinstance(ready, ModelReady) and ready.model == "small.gguf"
    watched.send("Hi")
    script.fails["switch"] = ModelLoadError("it is too big; take a smaller one")
    watched.engine_thread.switch("big.gguf")
    loading, failed, ready = watched.done()
    assert loading == ModelLoading("loading big.gguf")
    assert failed == CommandFailed("it is too big; take a smaller one", "switch")
    assert isinstance(ready, ModelReady) and ready.model == "small.gguf"
    assert kinds(watched.send("Still there?"))[-1] == "Ended"
    assert len(watched.contents) == 4


def test_stop_ends_loading_and_a_message_waits_for_it(begin: Begin) -> None:
    script, begun, wanted = Script(answers=["Hello."]), Event(), Event()

    def load(*arguments: Any, **options: Any) -> Any:
        begun.set()
        while not wanted.wait(0.001):
            report_progress("loading big.gguf", 0.25)
        return script.load(*arguments, **options)

    watched = begin(SimpleNamespace(load=load), load=False)
    watched.engine_thread.load("big.gguf")
    assert begun.wait(10)
    watched.engine_thread.stop()
    first, *told, failed = watched.done()
    assert first == ModelLoading("loading big.gguf")
    assert told in ([], [ModelLoading("loading big.gguf", 25)])
    assert failed == CommandFailed("loading was stopped", "load")
    assert watched.engine_thread.session is None

    begun.clear()
    watched.engine_thread.load("big.gguf")
    assert begun.wait(10)
    watched.engine_thread.send("Hi")
    wanted.set()
    assert kinds(watched.done())[-1] == "Ended"
    assert watched.contents == ["Hi", "Hello."]


def test_switch_loads_while_no_model_is_loaded(begin: Begin) -> None:
    script = Script(fails={"load": ModelLoadError("no")})
    watched = begin(script, load=False)
    watched.engine_thread.load("x.gguf", "ngram", context=77)
    watched.done()
    script.fails.clear()
    watched.engine_thread.switch("y.gguf")
    ready = watched.done()[-1]
    assert isinstance(ready, ModelReady)
    assert (ready.model, ready.draft, ready.context) == ("y.gguf", ("ngram",), 77)


def test_what_was_opened_since_a_load_failed_is_what_goes_on(begin: Begin) -> None:
    script = Script(fails={"load": ModelLoadError("no")})
    watched = begin(script, load=False)
    watched.engine_thread.load(
        "x.gguf", system="Old.", conversation=Conversation([Turn("user", "Old")])
    )
    opened = Conversation([Turn("user", "New")])
    watched.engine_thread.reset(opened, "New.")
    watched.done()
    script.fails.clear()
    watched.engine_thread.switch("y.gguf")
    watched.done()
    assert watched.conversation is opened
    assert watched.engine_thread.session and watched.engine_thread.session.system == "New."


def test_what_was_said_outlives_a_load(begin: Begin) -> None:
    script = Script(answers=["Yes."])
    watched = begin(script, system="Be brief.")
    watched.send("Hi")
    watched.engine_thread.load("other.gguf")
    watched.done()
    assert script.engines[0].closed
    assert watched.contents == ["Hi", "Yes."]
    assert watched.engine_thread.session and watched.engine_thread.session.system == "Be brief."


def test_a_conversation_may_be_opened_before_a_model_is_loaded(begin: Begin) -> None:
    watched = begin(Script(), load=False)
    opened = Conversation([Turn("user", "Before")])
    watched.engine_thread.reset(opened, "Be brief.")
    watched.engine_thread.load()
    assert kinds(watched.done()) == ["ConversationChanged", "ModelLoading", "ModelReady"]
    assert watched.conversation is opened
    assert watched.engine_thread.session and watched.engine_thread.session.system == "Be brief."


# Closing.


def test_close_ends_an_answer_and_frees_the_engine(begin: Begin) -> None:
    script = Script(answers=[ENDLESS], rate=300)
    watched = begin(script)
    watched.engine_thread.send("Hi")
    watched.pieces(2)
    watched.engine_thread.close()
    assert script.engines[0].closed
    happened = watched.done()
    assert of(Ended, happened)[0].stop_reason == "cancelled"
    assert watched.contents == ["Hi", said(happened)]
    watched.engine_thread.close()


def test_close_while_loading_frees_what_was_loaded() -> None:
    script, began, go_on = Script(), threading.Event(), threading.Event()

    def load(*args: object, **options: object) -> ScriptedEngine:
        began.set()
        assert go_on.wait(SECONDS)
        return script.load(*args, **options)  # type: ignore[arg-type]

    engine_thread = EngineThread(load)  # type: ignore[arg-type]
    engine_thread.load()
    engine_thread.send("Hi")
    assert began.wait(SECONDS)
    closing = threading.Thread(target=engine_thread.close)
    closing.start()
    go_on.set()
    closing.join(SECONDS)
    assert script.engines[0].closed
    assert not of(QuestionAsked, engine_thread.drain())
