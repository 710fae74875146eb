"""Comparisons, with a scripted engine and with the bundled pair."""

from collections.abc import Callable

import pytest
from fakes import scripted
from fakes.event_recorder import EventRecorder, compare, event_names, events_of, tamper
from fakes.machine import FakeClock
from fakes.scripted import Script, ScriptedEngine

from localspec.conversation.events import Dropped
from localspec.conversation.turns import Conversation, Turn
from localspec.engine import scheduler
from localspec.engine.detokenizer import Detokenizer
from localspec.errors import InvalidValueError
from localspec.speculation.equal_digits import EqualDigits
from localspec_tui import notes
from localspec_tui.engine_events import CommandFailed
from localspec_tui.labels import gain_text
from localspec_tui.status import Status, status_text

ENDLESS = "word " * 20_000
CODE = "def add(a, b):\n    return"
Start = Callable[..., EventRecorder]


def test_a_comparison_measures_both_and_leaves_the_conversation_alone(start: Start) -> None:
    recorder = start(Script(answers=["One.", "Another answer.", "Three."]))
    recorder.send("Hi")
    recorder.engine_thread.regenerate()
    recorder.wait_done()
    result = compare(recorder)
    assert result.first_difference is None
    assert result.rate > 0 and result.plain_rate > 0
    engine = recorder.engine_thread.session and recorder.engine_thread.session.engine
    assert isinstance(engine, ScriptedEngine)
    _, original, *again = engine.slots.own.started
    assert original.depth is None and len(again) == len(result.plain_rates) > 1
    for each in again:
        assert each.depth == 0
        assert (each.seed, each.max_tokens) == (original.seed, original.max_tokens)


def test_a_long_answer_is_generated_again_only_once(start: Start, clock: FakeClock) -> None:
    script = Script(answers=["word " * 40], clock=clock)
    recorder = start(script)
    recorder.send("Hi")
    script.plain_seconds = 1.0
    assert len(compare(recorder).plain_rates) == 1


def test_a_comparison_says_which_digits_are_equal(start: Start) -> None:
    script = Script(answers=["One."])
    recorder = start(script)
    recorder.send("Hi")
    assert compare(recorder).digits is None
    script.digits = EqualDigits(((1,), (2, 3, 4)), 640, company=False)
    assert compare(recorder).digits == (
        "drafts may change last digits of scores (logits): "
        "the same in passes over 2-4 tokens, others over 1; "
        "other texts in the cache change last digits"
    )


def test_a_comparison_finds_the_first_token_that_differs(start: Start) -> None:
    recorder = start(Script(answers=["One two three four five."]))
    recorder.send("Hi")
    tamper(recorder, 3)
    result = compare(recorder)
    assert result.first_difference == 3


def test_a_comparison_uses_the_same_prompt_even_after_turns_were_dropped(
    start: Start,
) -> None:
    # With another prompt or another seed, the script would give its next answer.
    recorder = start(Script(answers=["word " * 60, "more " * 60, "last " * 60]), context=110)
    recorder.send("Hi")
    assert compare(recorder).first_difference is None
    assert events_of(Dropped, recorder.send("Hi"))
    assert compare(recorder).first_difference is None


def test_a_stopped_answer_is_compared_up_to_its_end(start: Start) -> None:
    script = Script(answers=[ENDLESS], rate=300)
    recorder = start(script)
    recorder.engine_thread.send("Hi")
    recorder.wait_pieces(5)
    recorder.engine_thread.stop()
    recorder.wait_done()
    assert compare(recorder).first_difference is None


def test_a_comparison_can_be_stopped(start: Start) -> None:
    script = Script(answers=["word " * 300])
    recorder = start(script)
    recorder.send("Hi")
    before, shown = recorder.tree(), recorder.engine_thread.stats
    gauge = recorder.engine_thread.gauge
    script.rate = 1
    recorder.engine_thread.compare()
    recorder.until(
        lambda: recorder.engine_thread.stats is not shown and recorder.engine_thread.stats
    )
    recorder.engine_thread.stop()
    assert recorder.wait_done() == [CommandFailed("the comparison was stopped", "compare")]
    assert recorder.tree() == before
    assert recorder.engine_thread.stats is shown
    assert gauge and gauge.used > 300 and recorder.engine_thread.gauge == gauge


@pytest.mark.parametrize("failing", ["send", "answer"])
def test_a_comparison_that_fails_leaves_the_conversation_alone(start: Start, failing: str) -> None:
    script = Script(answers=["A long enough answer."])
    recorder = start(script)
    recorder.send("Hi")
    before, shown = recorder.tree(), recorder.engine_thread.stats
    script.fails[failing] = InvalidValueError("no")
    recorder.engine_thread.compare()
    failed = CommandFailed("no", "compare", exit_code=InvalidValueError.exit_code)
    assert recorder.wait_done() == [failed]
    assert recorder.tree() == before
    assert recorder.engine_thread.stats is shown
    script.fails.clear()
    assert compare(recorder).first_difference is None


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
    assert compare(recorder).first_difference is None
    recorder.engine_thread.switch("other.gguf")
    recorder.wait_done()
    recorder.engine_thread.compare()
    assert "regenerate" in events_of(CommandFailed, recorder.wait_done())[0].error


def test_an_answer_by_a_rule_without_the_same_text_is_not_compared(start: Start) -> None:
    recorder = start(Script(), rule="token")
    recorder.send("Hi")
    recorder.engine_thread.compare()
    assert "rule token" in events_of(CommandFailed, recorder.wait_done())[0].error


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of the engine; scripted steps advance it."""
    clock = FakeClock()
    for module in (scheduler, scripted):
        monkeypatch.setattr(module, "running_clock", clock)
    return clock


def test_the_gain_is_plain_seconds_by_seconds_and_stays(start: Start, clock: FakeClock) -> None:
    script = Script(answers=["word " * 40], clock=clock)
    recorder = start(script)
    recorder.send("Hi")
    shown = recorder.engine_thread.stats
    assert shown and script.plain_seconds
    steps, tokens = shown.seconds.generate / script.plain_seconds, shown.generated_tokens
    assert shown.gain == pytest.approx(tokens / steps) and shown.gain > 1.5
    gain = shown.gain

    script.plain_seconds, script.fails["switch"] = 1.0, InvalidValueError("no")
    recorder.engine_thread.switch("missing.gguf")
    assert events_of(CommandFailed, recorder.wait_done())
    clock.now += 1000
    assert recorder.engine_thread.stats is shown and shown.gain == gain


def test_the_status_line_and_the_comparison_say_the_same(start: Start, clock: FakeClock) -> None:
    script = Script(answers=["word " * 40], clock=clock)
    recorder = start(script)
    recorder.send("Hi")
    shown = recorder.engine_thread.stats
    assert shown and shown.gain
    gain = gain_text(shown.gain)
    assert f" ({gain})" in notes.comparison(compare(recorder))
    assert f" · {gain} · " in status_text(Status(shown, None, ("suffix",)), 120)


def test_the_time_between_steps_counts_in_both(
    start: Start, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = Detokenizer.push

    def slow(detokenizer: Detokenizer, piece: bytes) -> str:
        clock.now += 0.004
        return push(detokenizer, piece)

    monkeypatch.setattr(Detokenizer, "push", slow)
    recorder = start(Script(answers=["word " * 40], clock=clock))
    recorder.send("Hi")
    result = compare(recorder)
    assert result.expected_rate == pytest.approx(1 / (0.0055 + 0.004), rel=0.02)
    assert result.plain_rate == pytest.approx(result.expected_rate, rel=0.02)


def test_a_busy_machine_gives_ranges_that_include_the_status_line(
    start: Start, clock: FakeClock
) -> None:
    script = Script(answers=["word " * 40], clock=clock)
    recorder = start(script)
    recorder.send("Hi")
    shown = recorder.engine_thread.stats
    assert shown and shown.gain and shown.tokens_per_second
    gain, script.plain_seconds = shown.gain, 0.01
    result = compare(recorder)
    assert result.expected_rate == pytest.approx(1 / 0.0055)
    assert result.plain_rates == pytest.approx([100.0] * len(result.plain_rates))
    slow, fast = gain_text(shown.tokens_per_second / 100), gain * 1.0
    assert notes.comparison(result).startswith(
        f"plain 100.0 to 181.8 tok/s (the machine is busy, or was) · with drafts "
        f"{shown.tokens_per_second:.1f} tok/s ({fast:.1f}x to {slow}) · "
    )
    assert shown.gain == gain


def test_a_steady_machine_makes_the_gain_a_measurement(start: Start, clock: FakeClock) -> None:
    script = Script(answers=["word " * 40], clock=clock)
    recorder = start(script)
    recorder.send("Hi")
    shown = recorder.engine_thread.stats
    assert shown and shown.gain
    gain, script.plain_seconds = shown.gain, 0.0066
    result = compare(recorder)
    assert shown.gain == pytest.approx(gain * 1.2)
    assert f" ({gain_text(shown.gain)})" in notes.comparison(result)


def test_the_figures_are_those_of_the_variant_that_is_shown(start: Start) -> None:
    recorder = start(Script(answers=["One.", "Another answer."]))
    recorder.send("Hi")
    first, of_first = recorder.conversation.turns[-1], recorder.engine_thread.stats
    recorder.engine_thread.regenerate()
    recorder.wait_done()
    assert recorder.engine_thread.stats is not of_first
    recorder.engine_thread.choose(first)
    recorder.wait_done()
    assert recorder.engine_thread.stats is of_first


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("seed", [None, 0, 7])
def test_the_bundled_pair_answers_identically_without_drafts(
    bundled_pair: EventRecorder, temperature: float, seed: int | None
) -> None:
    bundled_pair.engine_thread.switch(temperature=temperature, seed=seed)
    bundled_pair.send(CODE)
    assert bundled_pair.engine_thread.stats and bundled_pair.engine_thread.stats.drafted
    assert compare(bundled_pair).first_difference is None
    bundled_pair.engine_thread.regenerate()
    bundled_pair.wait_done()
    assert compare(bundled_pair).first_difference is None
    bundled_pair.send("\n\nclass Queue:\n")
    assert compare(bundled_pair).first_difference is None


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
    assert compare(bundled_pair).first_difference is None
