"""What of a conversation a model sees."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from fakes.scripted import Script

from localspec.conversation.events import Dropped, Piece
from localspec.conversation.reasoning import THINK
from localspec.conversation.session import Session
from localspec.conversation.turns import EMPTY, Conversation, Role, TokenizedText, Turn
from localspec.conversation.window import Window, last_question
from localspec.errors import ContextFullError, InvalidValueError


class Tens:
    """As `Transcript`: each turn has ten tokens."""

    template, tags = "a template", THINK

    def prompt(self, _system: str | None, turns: Sequence[Turn]) -> TokenizedText:
        texts, tokens = zip(*(turn.written for turn in turns), strict=True)
        return TokenizedText("".join(texts), sum(tokens, start=()))


class Refusing(Tens):
    """A transcript whose template refuses what is before the last answer."""

    def prompt(self, system: str | None, turns: Sequence[Turn]) -> TokenizedText:
        return super().prompt(system, turns[:-1])


def window(count: int, size: int, *, dropped: int = 0, continues: bool = False) -> Window:
    """Of so many turns, questions and answers in turn, each with a letter of its own."""
    roles: tuple[Role, Role] = ("user", "assistant")
    turns = [Turn(roles[number % 2], "abcdefgh"[number]) for number in range(count)]
    for turn in turns:
        turn.written = TokenizedText(turn.content, tuple([ord(turn.content)] * 10))
    turns = Conversation(turns).turns
    return Window(Tens(), None, turns, size, dropped, continues)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "most", "dropped"), [(40, 99, 0), (39, 99, 0), (36, 6, 0), (36, 7, 2), (31, 1, 0)]
)
def test_as_much_is_kept_free_as_an_answer_may_have_up_to_a_quarter(
    size: int, most: int, dropped: int
) -> None:
    three = window(3, size)
    assert three.with_room(most, drops=True).dropped == dropped
    assert three.with_room(most, drops=False) is three
    assert window(1, 11).with_room(most, drops=True).dropped == 0


@pytest.mark.parametrize(("size", "dropped"), [(41, 0), (40, 2), (21, 2)])
def test_an_answer_that_goes_on_needs_room_for_a_token(size: int, dropped: int) -> None:
    assert window(4, size, continues=True).with_room(99, drops=True).dropped == dropped


@pytest.mark.parametrize(
    ("count", "size", "dropped", "expected"),
    [
        (5, 60, 0, 2),
        (5, 59, 0, 4),
        (5, 60, 2, 4),
        (5, 10, 0, 4),  # the last question stays, however long
        (1, 10, 0, None),
        (5, 60, 4, None),
    ],
)
def test_the_rest_fills_half_of_the_context(
    count: int, size: int, dropped: int, expected: int | None
) -> None:
    shorter = window(count, size, dropped=dropped).without_oldest()
    assert (shorter and shorter.dropped) == expected
    assert shorter is None or shorter.seen[0].content == "abcdefgh"[shorter.dropped]


@pytest.mark.parametrize(
    ("count", "size", "continues", "error", "said"),
    [
        (1, 10, False, InvalidValueError, "the message has 10 tokens, system prompt and template"),
        (3, 9, False, InvalidValueError, "the message has 10 tokens, system prompt and template"),
        (3, 30, False, ContextFullError, "the conversation has 30 tokens with this message, and"),
        (2, 20, True, InvalidValueError, "the answer and its question fill the context of 20 tok"),
        (4, 40, True, ContextFullError, "the context of 40 tokens is full, so the answer cannot"),
    ],
)
def test_what_does_not_fit(
    count: int, size: int, continues: bool, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=f"^{said}") as raised:
        window(count, size, continues=continues).with_room(1, drops=False)
    assert raised.type is error
    window(count, 10 * count + 1, continues=continues).with_room(1, drops=False)


def test_thousands_are_marked() -> None:
    long = window(1, 2048)
    long.turns[0].written = TokenizedText("a", (97,) * 10_011)
    with pytest.raises(InvalidValueError, match=r"10,011 tokens, .* the context holds 2,048;"):
        long.with_room(1, drops=False)


def test_where_dropping_does_not_help() -> None:
    with pytest.raises(InvalidValueError, match="the message has 10 tokens"):
        window(3, 10).with_room(1, drops=True)
    with pytest.raises(InvalidValueError, match="the answer and its question fill"):
        window(4, 20, continues=True).with_room(1, drops=True)


def test_an_answer_that_goes_on_is_no_part_of_the_prompt() -> None:
    going_on = window(4, 99, dropped=2, continues=True)
    assert going_on.whole == ("cd", (99,) * 10 + (100,) * 10)
    assert going_on.prompt == ("c", (99,) * 10)
    assert [turn.content for turn in going_on.seen] == ["c"]
    assert window(3, 99).prompt == window(3, 99).whole
    assert window(3, 99).behind(going_on.turns[-1]).prompt == window(3, 99).prompt
    refused = replace(going_on, transcript=Refusing())  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="refuses the messages before the last answer"):
        _ = refused.prompt


def test_a_prompt_opens_reasoning_only_by_a_template() -> None:
    asked = window(1, 99)
    asked.turns[0].written = EMPTY._replace(text="so <think>\n")
    assert asked.thinking
    asked = window(1, 99)
    asked.turns[0].written = EMPTY._replace(text="so <think>\n")
    asked.transcript.template = None
    assert not asked.thinking


def test_the_last_question_is_the_users() -> None:
    roles: list[Role] = ["system", "user", "assistant", "tool"]
    turns = [Turn(role, "a") for role in roles]
    assert last_question(turns) == 1
    assert last_question([*turns, Turn("user", "b")]) == 4
    assert last_question(turns[2:]) == last_question([]) == 0


@pytest.mark.parametrize(
    ("size", "when_full", "dropped"), [(22, "drop", 2), (10, "drop", None), (22, "stop", None)]
)
def test_an_answer_goes_on_only_where_it_has_room(
    size: int, when_full: Any, dropped: int | None
) -> None:
    engine: Any = Script().load()
    with Session(engine, when_full=when_full) as session:
        shorter = session._shorten(window(3, size))
        assert (shorter and shorter.dropped) == dropped


def test_seeds_of_variants_stay_seeds() -> None:
    engine: Any = Script().load()
    with Session(engine, seed=2**64 - 1) as session:
        assert session.send("hi").result().seed == 2**64 - 1
        second = session.regenerate()
        assert second.settings.seed == second.result().seed == 0
        assert session.edit_answer(1, "Hello.").seed == 1


def test_what_is_changed_during_an_answer_counts_from_the_next_one() -> None:
    """Also where the oldest turns are dropped meanwhile."""
    engine: Any = Script(answers=["a" * 40, "b" * 400], context=64).load()
    with Session(engine, when_full="drop", system="first") as session:
        session.send("one").result()
        answer, dropped = session.send("two"), False
        for event in answer:
            if isinstance(event, Piece):
                session.system = "second"
            dropped |= isinstance(event, Dropped)
        assert dropped and answer._window.dropped
        assert session._window(session.turns).dropped == answer._window.dropped
        first, *others = engine.slots.own.started[-2:]
        assert [each.seed == first.seed for each in others] == [False]
        assert "<system>first" in answer._window.prompt.text
        assert "<system>second" in session.written.text
