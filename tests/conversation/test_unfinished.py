"""Answers that were stopped or cut off go on as if they had never ended."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.pycode import load
from fakes.templates import R1
from fakes.tiny import TURNS, write_tiny

from localspec.conversation.answer import Answer
from localspec.conversation.events import Piece
from localspec.conversation.reasoning import tags_for
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.conversation.unfinished import (
    is_unfinished,
    require_same_settings,
    require_unfinished,
)
from localspec.engine.engine import Engine
from localspec.errors import ContextFullError, InvalidValueError

LENGTH = 24
# The prompt opens the reasoning where it is switched on.
SWITCHED = TURNS + "{% if add_generation_prompt and thinking %}<think>{% endif %}"


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(
        family: str = "llama", template: str = TURNS, context: int = 512, **options: Any
    ) -> Engine:
        file = tmp_path / f"{family}.gguf"
        path = write_tiny(file, family, template=template, context=context)
        made.append(load(path, path, threads=1, context=context, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def left_after(answer: Answer, pieces: int) -> Turn:
    """Stop an answer after so many of its pieces, in the middle of a step or not."""
    for count, _ in enumerate((each for each in answer if isinstance(each, Piece)), 1):
        if count == pieces:
            break
    answer.close()
    assert answer.turn and answer.turn.stop_reason == "cancelled"
    return answer.turn


def stopped_after(answer: Answer, tokens: int) -> Turn:
    """Stop an answer after so many tokens."""
    turn = left_after(answer, tokens)
    assert len(turn.written.tokens) == tokens
    return turn


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen35"])
@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("tokens", [1, 5, 12])
def test_a_stopped_answer_goes_on_as_if_it_had_not_been(
    tiny: Callable[..., Engine], family: str, temperature: float, tokens: int
) -> None:
    engine = tiny(family)
    options = {"temperature": temperature, "seed": 7, "depth": 3, "ignore_eos": True}
    penalties = {"repeat_penalty": 1.2, "min_tokens": 20, "max_tokens": LENGTH}
    with Session(engine, **options, **penalties) as session:
        whole = session.send("ab").result()
    with Session(engine, **options, **penalties) as session:
        turn = stopped_after(session.send("ab"), tokens)
        assert turn.stop_reason == "cancelled" and is_unfinished(turn)
        answer = session.continue_answer()
        assert answer.turn is turn and turn.stop_reason is None
        answer.result()
        assert (turn.written, turn.content, turn.stop_reason) == (
            whole.written,
            whole.content,
            "length",
        )
        assert answer.stats.generated_tokens == LENGTH - tokens
        assert session.turns[1:] == [turn]
        # Also what follows sees the whole answer.
        written = session.written.tokens
        assert written[-LENGTH:] == turn.written.tokens
        session.send("c", max_tokens=1, min_tokens=0).result()
        assert session.written.tokens[: len(written)] == written


def test_an_answer_with_a_seed_of_chance_goes_on_with_it(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=1, ignore_eos=True, max_tokens=LENGTH) as session:
        turn = stopped_after(session.send("ab"), 6)
        assert turn.seed is not None
        session.regenerate().result()
        session.choose(turn)
        session.continue_answer().result()
        assert session.turns[-1] is turn
        again = session.regenerate(seed=turn.seed - 2).result()
        assert again.written == turn.written


def test_each_variant_goes_on_with_a_seed_of_its_own(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=1, seed=3, ignore_eos=True, max_tokens=LENGTH) as session:
        session.send("ab").result()
        whole = session.regenerate().result()
        session.choose(session.turns[0].after[0])
    with Session(tiny(), temperature=1, seed=3, ignore_eos=True, max_tokens=LENGTH) as session:
        session.send("ab").result()
        turn = stopped_after(session.regenerate(), 9)
        session.continue_answer().result()
        assert turn.written == whole.written


@pytest.mark.parametrize("tokens", [2, 5, 6, 7, 12])
def test_reasoning_goes_on_too(tiny: Callable[..., Engine], tokens: int) -> None:
    """Before, at and behind the place where a budget ends the thought."""
    engine = tiny("llama", R1)
    options = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    with Session(engine, thinking_budget=6, **options) as session:
        whole = session.send("ab").result()
    with Session(engine, thinking_budget=6, **options) as session:
        left_after(session.send("ab"), tokens)
        turn = session.continue_answer().result()
        assert (turn.raw, turn.thought, turn.content) == (whole.raw, whole.thought, whole.content)
        assert turn.written == whole.written


@pytest.mark.parametrize("stop", ["\n", "think", ">", "\n\n", "\n\n{}"])
@pytest.mark.parametrize(("temperature", "depth"), [(0, 3), (1, 0), (1, 3)])
def test_a_stop_string_ends_nothing_in_a_closing_tag_that_was_inserted(
    tiny: Callable[..., Engine], stop: str, temperature: float, depth: int
) -> None:
    """Nor does one begin in it: in the answer that was not stopped, the tag is apart from both."""
    engine = tiny("llama", R1)
    options = {"temperature": temperature, "seed": 3, "depth": depth, "thinking_budget": 4}
    options |= {"ignore_eos": True, "max_tokens": 40}
    with Session(engine, **options) as session:
        stop = stop.format(session.send("ab").result().content[:4])
    with Session(engine, stop=[stop], **options) as session:
        whole = session.send("ab").result()
    assert whole.content and stop in whole.raw
    pieces = len(whole.written.tokens) - len(engine.model.spell_after("\n</think>\n\n"))
    for count in range(1, pieces):
        with Session(engine, stop=[stop], **options) as session:
            turn = left_after(session.send("ab"), count)
            session.continue_answer().result()
            assert (turn.raw, turn.thought, turn.content, turn.written, turn.stop_reason) == (
                whole.raw,
                whole.thought,
                whole.content,
                whole.written,
                whole.stop_reason,
            )


def test_what_stands_is_not_ended_by_a_new_stop_string(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=0, ignore_eos=True, max_tokens=LENGTH) as session:
        turn = left_after(session.send("ab"), 12)
        content = turn.content
        session.continue_answer(stop=[content[2:4]], max_tokens=LENGTH).result()
        assert turn.content.startswith(content)


def test_an_answer_is_refused_that_would_become_reasoning(tiny: Callable[..., Engine]) -> None:
    options = {"temperature": 0, "ignore_eos": True, "max_tokens": LENGTH}
    with Session(
        tiny("llama", SWITCHED), template_options={"thinking": False}, **options
    ) as session:
        turn = stopped_after(session.send("ab"), 6)
        kept = turn.content, turn.thought
        assert turn.content and turn.thinking is False
        session.template_options = {"thinking": True}
        with pytest.raises(InvalidValueError, match="begun with reasoning off, and it is on now"):
            session.continue_answer()
        assert (turn.content, turn.thought) == kept and turn.stop_reason == "cancelled"
        other = session.fork()
        with other, pytest.raises(InvalidValueError, match="begun with reasoning off"):
            other.continue_answer()
        session.template_options = {"thinking": False}
        assert session.continue_answer().result().content.startswith(kept[0])


def test_the_date_of_a_prompt_stays_with_the_conversation(
    tiny: Callable[..., Engine],
) -> None:
    engine = tiny("llama", "{{ strftime_now('%Y-%m-%d') }}" + TURNS)
    with Session(engine, temperature=0, ignore_eos=True, max_tokens=LENGTH) as session:
        session.conversation.began = datetime(2024, 2, 29)
        turn = stopped_after(session.send("ab"), 6)
        written = session.written
        assert "2024-02-29" in written.text
        with session.fork() as other:
            assert other.written == written
    # As where a model is loaded again with a larger context.
    with Session(engine, conversation=session.conversation, max_tokens=LENGTH) as later:
        assert later.turns[-1] is turn and later.written == written


def test_parts_of_characters_and_of_stop_strings_are_open_again(
    tiny: Callable[..., Engine],
) -> None:
    """At its end they were text, and a stop string that goes on would not have been found."""
    engine = tiny()
    with Session(engine, temperature=0, ignore_eos=True, max_tokens=LENGTH) as session:
        plain = session.send("ab").result()
        stop = plain.content[9:12]
    options = {"temperature": 0, "ignore_eos": True, "max_tokens": LENGTH, "stop": [stop]}
    with Session(engine, **options) as session:
        whole = session.send("ab").result()
        assert whole.stop_reason == "stop"
    for tokens in range(1, len(whole.written.tokens) + 1):
        with Session(engine, **options) as session:
            turn = stopped_after(session.send("ab"), tokens)
            session.continue_answer().result()
            assert (turn.content, turn.stop_reason) == (whole.content, "stop")


def test_what_was_cut_off_gets_as_many_tokens_again(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=0, ignore_eos=True, max_tokens=8) as session:
        turn = session.send("ab").result()
        assert turn.stop_reason == "length"
        session.continue_answer().result()
        assert (len(turn.written.tokens), turn.stop_reason) == (16, "length")
        whole = session.regenerate(max_tokens=16).result()
        assert turn.written == whole.written


def test_stopped_again_at_once_it_is_what_it_was(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=0, ignore_eos=True, max_tokens=LENGTH) as session:
        turn = stopped_after(session.send("ab"), 7)
        before = turn.content, turn.written
        answer = session.continue_answer()
        answer.stop()
        assert [*answer][-1].stop_reason == "cancelled"  # type: ignore[union-attr]
        assert (turn.content, turn.written) == before
        session.continue_answer().close()
        assert (turn.content, turn.written, turn.stop_reason) == (*before, "cancelled")


def test_in_a_full_context_it_goes_on_without_the_oldest_turns(
    tiny: Callable[..., Engine],
) -> None:
    engine = tiny(context=128)
    with Session(engine, temperature=0, ignore_eos=True) as session:
        for _ in range(3):
            session.send("abcdefgh", max_tokens=8).result()
        turn = session.send("abcdefgh").result()
        assert turn.stop_reason == "context"
        content = turn.content
        with pytest.raises(ContextFullError, match="context of 128 tokens is full"):
            session.continue_answer()
        assert (turn.content, turn.stop_reason) == (content, "context")
        session.when_full = "drop"
        session.continue_answer(max_tokens=len(turn.written.tokens) + 8).result()
        assert turn.content.startswith(content) and len(turn.content) > len(content)
        session.reset()
        session.when_full = "stop"
        turn = session.send("abcdefgh").result()
        with pytest.raises(InvalidValueError, match="the answer and its question fill") as raised:
            session.continue_answer()
        assert not isinstance(raised.value, ContextFullError)


def test_what_cannot_go_on_is_refused(tiny: Callable[..., Engine]) -> None:
    with Session(tiny(), temperature=0, ignore_eos=True, max_tokens=4) as session:
        with pytest.raises(InvalidValueError, match="no message yet"):
            session.continue_answer()
        turn = session.send("ab").result()
        turn.stop_reason = "eos"
        with pytest.raises(InvalidValueError, match="is complete"):
            session.continue_answer()
        assert not is_unfinished(turn)
        interrupted = Turn("assistant", "some text", stop_reason="interrupted")
        session.reset(Conversation([Turn("user", "a"), interrupted]))
        with pytest.raises(InvalidValueError, match="were not kept"):
            session.continue_answer()
        assert not is_unfinished(interrupted)
        session.reset(Conversation([Turn("user", "a"), turn.copy()]))
        [_, turn] = session.turns
        turn.stop_reason, turn.vocabulary = "length", "another"
        with pytest.raises(InvalidValueError, match="another model"):
            session.continue_answer()
        session.reset(Conversation([Turn("user", "a")]))
        with pytest.raises(InvalidValueError, match="no answer to continue"):
            session.continue_answer()
        assert not is_unfinished(None)


def test_an_answer_is_refused_that_was_begun_with_other_rotations(
    tiny: Callable[..., Engine],
) -> None:
    options = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    with Session(tiny("llama"), **options) as session:
        turn = stopped_after(session.send("ab"), 3)
        assert turn.template
        kept = session.conversation
    engine = tiny("llama", rope_scaling="yarn", rope_scale=4)
    with (
        Session(engine, conversation=kept, **options) as session,
        pytest.raises(InvalidValueError, match=r"with other rotations \(RoPE\)"),
    ):
        session.continue_answer()


def test_an_answer_is_refused_whose_thinking_budget_or_template_is_another(
    tiny: Callable[..., Engine],
) -> None:
    options = {"temperature": 0, "max_tokens": 40, "ignore_eos": True}
    with Session(tiny("llama", R1), thinking_budget=6, **options) as session:
        turn = stopped_after(session.send("ab"), 3)
        session.thinking_budget = None
        with pytest.raises(InvalidValueError, match="a thinking budget of 6, and there is no"):
            session.continue_answer()
        session.thinking_budget = 6
        session.continue_answer().result()
        # The reasoning is over, and its budget is of no matter.
        session.thinking_budget, turn.stop_reason = None, "length"
        assert turn.content and session.continue_answer().result()
        turn.stop_reason, turn.template = "length", "another"
        with pytest.raises(InvalidValueError, match="begun with another chat template"):
            session.continue_answer()


OFF, ON = "begun with reasoning off, and it is on now", "begun with reasoning on, and it is off now"
BUDGET = "begun with a thinking budget of 6, and there is a thinking budget of 9 now"


@pytest.mark.parametrize(
    ("then", "now", "refused"),
    [
        ({}, {}, None),
        ({"template": "other"}, {}, "another chat template"),
        # What is not known of an answer is not held against it.
        ({"template": ""}, {"budget": 9}, None),
        ({"thinking": None}, {}, None),
        ({"switch": None}, {}, None),
        ({}, {"switch": None}, None),
        ({"thinking": False}, {}, OFF),
        ({}, {"thinking": False}, ON),
        ({"switch": False}, {}, OFF),
        ({"thinking": False}, {"thinking": False, "switch": False}, ON),
        *(({"content": text}, {"budget": 9}, BUDGET) for text in ("", "<thi", " <thi", "<th\n")),
        *(({"content": text}, {"budget": 9}, None) for text in ("so", "<that", "thi")),
    ],
)
def test_settings_that_are_the_same(
    then: dict[str, Any], now: dict[str, Any], refused: str | None
) -> None:
    usual = {"thinking": True, "switch": True, "template": "own", "thinking_budget": 6}
    turn = Turn("assistant", **({"content": ""} | usual | then))
    present = {"thinking": True, "switch": True, "budget": 6} | now
    transcript = SimpleNamespace(switch=present["switch"], tags=tags_for(None))
    window: Any = SimpleNamespace(
        transcript=transcript, thinking=present["thinking"], template_fingerprint="own"
    )
    with pytest.raises(InvalidValueError, match=refused) if refused else nullcontext():
        require_same_settings(turn, window, present["budget"])


@pytest.mark.parametrize("stop_reason", ["interrupted", "cancelled", "length", "context", "edited"])
def test_an_answer_whose_tokens_were_not_kept_says_so(stop_reason: str) -> None:
    with pytest.raises(InvalidValueError, match="were not kept"):
        require_unfinished(Turn("assistant", "some text", stop_reason=stop_reason), "")
