"""Comparisons, with a scripted engine and with the bundled pair."""

from collections.abc import Callable

import pytest
from fakes.event_recorder import EventRecorder, compare, event_names, events_of, tamper
from fakes.scripted import Script, ScriptedEngine

from localspec.conversation.events import Dropped
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError
from localspec.speculation.equal_digits import EqualDigits
from localspec_tui.engine_events import CommandFailed

ENDLESS = "word " * 20_000
CODE = "def add(a, b):\n    return"
Start = Callable[..., EventRecorder]


def test_a_comparison_measures_both_and_leaves_the_conversation_alone(start: Start) -> None:
    recorder = start(Script(answers=["One.", "Another answer.", "Three."]))
    recorder.send("Hi")
    recorder.engine_thread.regenerate()
    recorder.wait_done()
    result = compare(recorder)
    assert result.identical and result.first_difference is None
    assert result.rate > 0 and result.plain_rate > 0
    engine = recorder.engine_thread.session and recorder.engine_thread.session.engine
    assert isinstance(engine, ScriptedEngine)
    original, again = engine.slot.started[-2:]
    assert again.depth == 0 and original.depth is None
    assert (again.seed, again.max_tokens) == (original.seed, original.max_tokens)


def test_a_comparison_says_which_digits_are_equal(start: Start) -> None:
    script = Script(answers=["One."])
    recorder = start(script)
    recorder.send("Hi")
    assert compare(recorder).digits is None
    script.digits = EqualDigits(((1,), (2, 3, 4)), 640, company=False)
    assert compare(recorder).digits == (
        "equal digits in passes of 2-4 rows, but not 1; others beside other texts"
    )


def test_a_comparison_finds_the_first_token_that_differs(start: Start) -> None:
    recorder = start(Script(answers=["One two three four five."]))
    recorder.send("Hi")
    tamper(recorder, 3)
    result = compare(recorder)
    assert not result.identical
    assert result.first_difference == 3


def test_a_comparison_uses_the_same_prompt_even_after_turns_were_dropped(
    start: Start,
) -> None:
    # With another prompt or another seed, the script would give its next answer.
    recorder = start(Script(answers=["word " * 60, "more " * 60, "last " * 60]), context=110)
    recorder.send("Hi")
    assert compare(recorder).identical
    assert events_of(Dropped, recorder.send("Hi"))
    assert compare(recorder).identical


def test_a_stopped_answer_is_compared_up_to_its_end(start: Start) -> None:
    script = Script(answers=[ENDLESS], rate=300)
    recorder = start(script)
    recorder.engine_thread.send("Hi")
    recorder.wait_pieces(5)
    recorder.engine_thread.stop()
    recorder.wait_done()
    assert compare(recorder).identical


def test_a_comparison_can_be_stopped(start: Start) -> None:
    script = Script(answers=["word " * 300])
    recorder = start(script)
    recorder.send("Hi")
    before, stats = recorder.tree(), recorder.engine_thread.stats
    script.rate = 1
    recorder.engine_thread.compare()
    recorder.until(
        lambda: recorder.engine_thread.stats is not stats and recorder.engine_thread.stats
    )
    recorder.engine_thread.stop()
    assert recorder.wait_done() == [CommandFailed("the comparison was stopped", "compare")]
    assert recorder.tree() == before
    assert recorder.engine_thread.stats is stats


@pytest.mark.parametrize("failing", ["send", "answer"])
def test_a_comparison_that_fails_leaves_the_conversation_alone(start: Start, failing: str) -> None:
    script = Script(answers=["A long enough answer."])
    recorder = start(script)
    recorder.send("Hi")
    before, stats = recorder.tree(), recorder.engine_thread.stats
    script.fails[failing] = InvalidValueError("no")
    recorder.engine_thread.compare()
    assert recorder.wait_done() == [CommandFailed("no", "compare")]
    assert recorder.tree() == before
    assert recorder.engine_thread.stats is stats
    script.fails.clear()
    assert compare(recorder).identical


def test_an_answer_that_cannot_be_generated_again_is_not_compared(start: Start) -> None:
    recorder = start(Script(answers=["Short.", "word " * 120]), context=160)

    def refused() -> str:
        recorder.engine_thread.compare()
        (failed,) = events_of(CommandFailed, recorder.wait_done())
        return failed.error

    assert "regenerate" in refused()  # nothing was said
    recorder.engine_thread.reset(
        Conversation([Turn("user", "Before"), Turn("assistant", "Long ago")])
    )
    recorder.wait_done()
    assert "regenerate" in refused()  # by whom, and with which seed?
    recorder.engine_thread.reset()
    recorder.send("Hi")
    answering = event_names(recorder.send("Hi"))
    assert "Dropped" in answering[answering.index("AnswerStarted") :]
    assert "regenerate" in refused()  # in the middle of it, turns were dropped


def test_an_answer_of_another_model_is_not_compared(start: Start) -> None:
    recorder = start(Script())
    recorder.send("Hi")
    recorder.engine_thread.switch(draft="none")
    recorder.wait_done()
    assert compare(recorder).identical
    recorder.engine_thread.switch("other.gguf")
    recorder.wait_done()
    recorder.engine_thread.compare()
    assert "regenerate" in events_of(CommandFailed, recorder.wait_done())[0].error


def test_an_answer_by_a_rule_without_the_same_text_is_not_compared(start: Start) -> None:
    recorder = start(Script(), rule="token")
    recorder.send("Hi")
    recorder.engine_thread.compare()
    assert "rule token" in events_of(CommandFailed, recorder.wait_done())[0].error


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_the_bundled_pair_answers_identically_without_drafts(
    bundled_pair: EventRecorder, temperature: float, seed: int | None
) -> None:
    bundled_pair.engine_thread.switch(temperature=temperature, seed=seed)
    bundled_pair.send(CODE)
    assert bundled_pair.engine_thread.stats and bundled_pair.engine_thread.stats.drafted
    assert compare(bundled_pair).identical
    bundled_pair.engine_thread.regenerate()
    bundled_pair.wait_done()
    assert compare(bundled_pair).identical
    bundled_pair.send("\n\nclass Queue:\n")
    assert compare(bundled_pair).identical


def test_a_changed_token_of_the_bundled_pair_is_found(bundled_pair: EventRecorder) -> None:
    bundled_pair.send(CODE)
    tamper(bundled_pair, 5)
    assert compare(bundled_pair).first_difference == 5


def test_an_earlier_variant_is_compared_with_its_own_seed(
    bundled_pair: EventRecorder,
) -> None:
    bundled_pair.engine_thread.switch(temperature=1, seed=7)
    bundled_pair.send(CODE)
    first = bundled_pair.conversation.turns[-1]
    for _ in range(2):
        bundled_pair.engine_thread.regenerate()
        bundled_pair.wait_done()
    assert bundled_pair.conversation.turns[-1].written != first.written
    bundled_pair.engine_thread.choose(first)
    bundled_pair.wait_done()
    assert compare(bundled_pair).identical
