"""An answer once more, without drafts: by a script, and by the pair that comes along."""

from collections.abc import Callable

import pytest
from fakes.scripted import Script, ScriptedEngine
from fakes.watched import Watched, compared, kinds, of, tamper

from localspec.conversation.events import Dropped
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError
from localspec_tui.engine_events import Failed

ENDLESS = "word " * 20_000
CODE = "def add(a, b):\n    return"
Begin = Callable[..., Watched]


def test_compare_measures_both_and_leaves_the_conversation_alone(begin: Begin) -> None:
    watched = begin(Script(answers=["One.", "Another answer.", "Three."]))
    watched.send("Hi")
    watched.worker.regenerate()
    watched.done()
    result = compared(watched)
    assert result.identical and result.first_difference is None
    assert result.rate > 0 and result.plain_rate > 0
    engine = watched.worker.session and watched.worker.session.engine
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
    watched.worker.send("Hi")
    watched.pieces(5)
    watched.worker.stop()
    watched.done()
    assert compared(watched).identical


def test_stop_ends_a_comparison(begin: Begin) -> None:
    script = Script(answers=["word " * 300])
    watched = begin(script)
    watched.send("Hi")
    before, stats = watched.tree(), watched.worker.stats
    script.rate = 1
    watched.worker.compare()
    watched.until(lambda: watched.worker.stats is not stats and watched.worker.stats)
    watched.worker.stop()
    assert watched.done() == [Failed("the comparison was stopped", "compare")]
    assert watched.tree() == before
    assert watched.worker.stats is stats


@pytest.mark.parametrize("failing", ["send", "answer"])
def test_a_comparison_that_fails_leaves_the_conversation_alone(begin: Begin, failing: str) -> None:
    script = Script(answers=["A long enough answer."])
    watched = begin(script)
    watched.send("Hi")
    before, stats = watched.tree(), watched.worker.stats
    script.fails[failing] = InvalidValueError("no")
    watched.worker.compare()
    assert watched.done() == [Failed("no", "compare")]
    assert watched.tree() == before
    assert watched.worker.stats is stats
    script.fails.clear()
    assert compared(watched).identical


def test_what_cannot_be_written_again_is_not_compared(begin: Begin) -> None:
    watched = begin(Script(answers=["Short.", "word " * 120]), context=160)

    def refused() -> str:
        watched.worker.compare()
        (failed,) = of(Failed, watched.done())
        return failed.error

    assert "regenerate" in refused()  # nothing was said
    watched.worker.reset(Conversation([Turn("user", "Before"), Turn("assistant", "Long ago")]))
    watched.done()
    assert "regenerate" in refused()  # by whom, and with which seed?
    watched.worker.reset()
    watched.send("Hi")
    answering = kinds(watched.send("Hi"))
    assert "Dropped" in answering[answering.index("Answering") :]
    assert "regenerate" in refused()  # in the middle of it, turns were dropped


def test_what_another_model_answered_is_not_compared(begin: Begin) -> None:
    watched = begin(Script())
    watched.send("Hi")
    watched.worker.switch(draft="none")
    watched.done()
    assert compared(watched).identical
    watched.worker.switch("other.gguf")
    watched.done()
    watched.worker.compare()
    assert "regenerate" in of(Failed, watched.done())[0].error


def test_a_rule_that_promises_no_text_is_not_compared(begin: Begin) -> None:
    watched = begin(Script(), rule="token")
    watched.send("Hi")
    watched.worker.compare()
    assert "rule token" in of(Failed, watched.done())[0].error


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_with_the_real_pair_a_comparison_finds_no_difference(
    pair: Watched, temperature: float, seed: int | None
) -> None:
    pair.worker.switch(temperature=temperature, seed=seed)
    pair.send(CODE)
    assert pair.worker.stats and pair.worker.stats.drafted
    assert compared(pair).identical
    pair.worker.regenerate()
    pair.done()
    assert compared(pair).identical
    pair.send("\n\nclass Queue:\n")
    assert compared(pair).identical


def test_with_the_real_pair_a_tampered_token_is_found(pair: Watched) -> None:
    pair.send(CODE)
    tamper(pair, 5)
    assert compared(pair).first_difference == 5


def test_with_the_real_pair_an_earlier_variant_is_compared_with_its_own_seed(pair: Watched) -> None:
    pair.worker.switch(temperature=1, seed=7)
    pair.send(CODE)
    first = pair.conversation.turns[-1]
    for _ in range(2):
        pair.worker.regenerate()
        pair.done()
    assert pair.conversation.turns[-1].written != first.written
    pair.worker.choose(first)
    pair.done()
    assert compared(pair).identical
