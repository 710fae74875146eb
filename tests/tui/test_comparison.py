"""An answer once more, without drafts: by a script, and by the pair that comes along."""

from collections.abc import Callable

import pytest
from fakes.event_recorder import EventRecorder, compared, kinds, of, tamper
from fakes.scripted import Script, ScriptedEngine

from localspec.conversation.events import Dropped
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError
from localspec_tui.engine_events import CommandFailed

ENDLESS = "word " * 20_000
CODE = "def add(a, b):\n    return"
Begin = Callable[..., EventRecorder]


def test_compare_measures_both_and_leaves_the_conversation_alone(begin: Begin) -> None:
    watched = begin(Script(answers=["One.", "Another answer.", "Three."]))
    watched.send("Hi")
    watched.engine_thread.regenerate()
    watched.done()
    result = compared(watched)
    assert result.identical and result.first_difference is None
    assert result.rate > 0 and result.plain_rate > 0
    engine = watched.engine_thread.session and watched.engine_thread.session.engine
    assert isinstance(engine, ScriptedEngine)
    original, again = engine.slot.started[-2:]
    assert again.depth == 0 and original.depth is None
    assert (again.seed, again.max_tokens) == (original.seed, original.max_tokens)


def test_compare_finds_the_first_token_that_differs(begin: Begin) -> None:
    watched = begin(Script(answers=["One two three four five."]))
    watched.send("Hi")
    tamper(watched, 3)
    result = compared(watched)
    assert not result.identical
    assert result.first_difference == 3


def test_compare_gives_the_model_the_very_prompt_even_after_turns_were_dropped(
    begin: Begin,
) -> None:
    # To another prompt, or by another seed, the script would give the answer that comes next.
    watched = begin(Script(answers=["word " * 60, "more " * 60, "last " * 60]), context=110)
    watched.send("Hi")
    assert compared(watched).identical
    assert of(Dropped, watched.send("Hi"))
    assert compared(watched).identical


def test_an_answer_that_was_stopped_is_compared_as_far_as_it_goes(begin: Begin) -> None:
    script = Script(answers=[ENDLESS], rate=300)
    watched = begin(script)
    watched.engine_thread.send("Hi")
    watched.pieces(5)
    watched.engine_thread.stop()
    watched.done()
    assert compared(watched).identical


def test_stop_ends_a_comparison(begin: Begin) -> None:
    script = Script(answers=["word " * 300])
    watched = begin(script)
    watched.send("Hi")
    before, stats = watched.tree(), watched.engine_thread.stats
    script.rate = 1
    watched.engine_thread.compare()
    watched.until(lambda: watched.engine_thread.stats is not stats and watched.engine_thread.stats)
    watched.engine_thread.stop()
    assert watched.done() == [CommandFailed("the comparison was stopped", "compare")]
    assert watched.tree() == before
    assert watched.engine_thread.stats is stats


@pytest.mark.parametrize("failing", ["send", "answer"])
def test_a_comparison_that_fails_leaves_the_conversation_alone(begin: Begin, failing: str) -> None:
    script = Script(answers=["A long enough answer."])
    watched = begin(script)
    watched.send("Hi")
    before, stats = watched.tree(), watched.engine_thread.stats
    script.fails[failing] = InvalidValueError("no")
    watched.engine_thread.compare()
    assert watched.done() == [CommandFailed("no", "compare")]
    assert watched.tree() == before
    assert watched.engine_thread.stats is stats
    script.fails.clear()
    assert compared(watched).identical


def test_what_cannot_be_written_again_is_not_compared(begin: Begin) -> None:
    watched = begin(Script(answers=["Short.", "word " * 120]), context=160)

    def refused() -> str:
        watched.engine_thread.compare()
        (failed,) = of(CommandFailed, watched.done())
        return failed.error

    assert "regenerate" in refused()  # nothing was said
    watched.engine_thread.reset(
        Conversation([Turn("user", "Before"), Turn("assistant", "Long ago")])
    )
    watched.done()
    assert "regenerate" in refused()  # by whom, and with which seed?
    watched.engine_thread.reset()
    watched.send("Hi")
    answering = kinds(watched.send("Hi"))
    assert "Dropped" in answering[answering.index("AnswerStarted") :]
    assert "regenerate" in refused()  # in the middle of it, turns were dropped


def test_what_another_model_answered_is_not_compared(begin: Begin) -> None:
    watched = begin(Script())
    watched.send("Hi")
    watched.engine_thread.switch(draft="none")
    watched.done()
    assert compared(watched).identical
    watched.engine_thread.switch("other.gguf")
    watched.done()
    watched.engine_thread.compare()
    assert "regenerate" in of(CommandFailed, watched.done())[0].error


def test_a_rule_that_promises_no_text_is_not_compared(begin: Begin) -> None:
    watched = begin(Script(), rule="token")
    watched.send("Hi")
    watched.engine_thread.compare()
    assert "rule token" in of(CommandFailed, watched.done())[0].error


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_with_the_real_pair_a_comparison_finds_no_difference(
    pair: EventRecorder, temperature: float, seed: int | None
) -> None:
    pair.engine_thread.switch(temperature=temperature, seed=seed)
    pair.send(CODE)
    assert pair.engine_thread.stats and pair.engine_thread.stats.drafted
    assert compared(pair).identical
    pair.engine_thread.regenerate()
    pair.done()
    assert compared(pair).identical
    pair.send("\n\nclass Queue:\n")
    assert compared(pair).identical


def test_with_the_real_pair_a_tampered_token_is_found(pair: EventRecorder) -> None:
    pair.send(CODE)
    tamper(pair, 5)
    assert compared(pair).first_difference == 5


def test_with_the_real_pair_an_earlier_variant_is_compared_with_its_own_seed(
    pair: EventRecorder,
) -> None:
    pair.engine_thread.switch(temperature=1, seed=7)
    pair.send(CODE)
    first = pair.conversation.turns[-1]
    for _ in range(2):
        pair.engine_thread.regenerate()
        pair.done()
    assert pair.conversation.turns[-1].written != first.written
    pair.engine_thread.choose(first)
    pair.done()
    assert compared(pair).identical
