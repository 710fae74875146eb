"""Sessions over a scripted engine: what their text, branches and settings need no model for."""

from typing import Any

import pytest
from fakes.scripted import Script
from fakes.templates import R1

from localspec.conversation.events import Dropped, Ended, Notice, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation
from localspec.errors import InvalidValueError, LocalspecError

# Writes its variables, too.
TOLD = (
    "{{ tools }} {{ mood }}\n"
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
)


def session_of(script: Script, **options: Any) -> Session:
    engine: Any = script.load()
    return Session(engine, **options)


def contents(session: Session) -> list[str]:
    return [turn.content for turn in session.turns]


def test_a_text_that_a_schema_describes_is_not_ended_as_reasoning() -> None:
    """Also where the prompt opens reasoning, as all such text is then."""
    script = Script(answers=['{"a": "a long text"}'], template=R1)
    with session_of(script, thinking_budget=2, schema={"type": "object"}) as session:
        assert session.send("hi").result().raw == script.answers[0]


def test_a_message_that_cannot_be_asked_leaves_all_as_it_was() -> None:
    script = Script(answers=["one", "two"])
    with session_of(script) as session:
        first = session.send("a").result()
        second = session.send("b").result()
        whole = session.turns
        script.fails["send"] = LocalspecError("no")
        for ask in (
            lambda: session.send("c"),
            session.regenerate,
            lambda: session.edit(0, "d"),
        ):
            with pytest.raises(LocalspecError, match="no"):
                ask()
            assert session.turns == whole
        assert len(first.before.after) == 1 and second.after == []  # type: ignore[union-attr]
        script.fails.clear()
        assert session.regenerate().result().variant == 1
        assert session.turns[:3] == whole[:3] and len(session.turns) == 4


def test_a_question_ends_the_answer_before_it() -> None:
    script = Script(answers=["a long answer", "two"])
    for change in (
        lambda session: session.send("b"),
        lambda session: session.edit_answer(1, "mine"),
        lambda session: session.choose(session.turns[0]),
        lambda session: session.switch(temperature=0),
        lambda session: session.reset(),
        lambda session: session.close(),
    ):
        with session_of(script) as session:
            answer = session.send("a")
            assert isinstance([next(answer) for _ in range(3)][-1], Piece)
            change(session)
            assert answer.stop_reason == "cancelled" and answer.turn
            assert answer.turn.content == answer.turn.written.text != ""


def test_a_closed_session() -> None:
    session = session_of(Script())
    session.close()
    session.close()
    for call in (lambda: session.send("a"), lambda: session.reset(), lambda: session.fork()):
        with pytest.raises(LocalspecError, match="this session was closed; open another"):
            call()


def test_a_session_without_a_message() -> None:
    with session_of(Script()) as session:
        for call in (session.regenerate, session.continue_answer):
            with pytest.raises(InvalidValueError, match="there is no message yet; send one first"):
                call()
        session.conversation.add(session_of(Script()).send("x").result())
        with pytest.raises(InvalidValueError, match="there is no question yet"):
            session.regenerate()


def test_what_a_template_is_told() -> None:
    script, tools = Script(template=TOLD), [{"name": "ls"}]
    with session_of(script, tools=tools, template_options={"mood": "glad"}) as session:
        assert "'ls'" in session.written.text and "glad" in session.written.text
        session.template_options = {"mood": "sad"}
        assert "sad" in session.written.text
    with session_of(script, raw=True) as session:
        session.send("abc").result()
        assert session.written.text.startswith("abc")


def test_a_new_conversation_has_nothing_of_the_old_one() -> None:
    script = Script(answers=["a" * 40], context=64)
    with session_of(script, when_full="drop", max_tokens=10) as session:
        for text in ("one", "two" * 20, "three" * 20):
            session.send(text).result()
        old = session.conversation
        assert session._window(session.turns).dropped
        session.reset()
        assert session.turns == [] and session.gauge.used == 0
        # The same turns, of which nothing has been dropped for this reader.
        session.reset(old)
        assert session._window(session.turns).dropped == 0


def test_dropped_is_said_when_it_grows() -> None:
    script = Script(answers=["a" * 20], context=64)
    with session_of(script, when_full="drop", max_tokens=10) as session:
        events = [list(session.send(f"{n}" * 40)) for n in range(4)]
        dropped = [e.turns for each in events for e in each if isinstance(e, Dropped)]
        assert dropped and dropped == sorted(set(dropped))
        for each in events:
            assert isinstance(each[-1], Ended)


def test_without_dropping_an_answer_ends_with_the_context() -> None:
    script = Script(answers=["a" * 20, "b" * 400], context=64)
    with session_of(script) as session:
        session.send("one").result()
        answer = session.send("two")
        assert not any(isinstance(event, Dropped) for event in answer)
        assert answer.stop_reason == "context" and answer.gauge.used == 64
        assert answer.turn and answer.turn.written.text == answer.turn.raw == answer.turn.content


def test_an_answer_goes_on_with_as_many_tokens_as_were_allowed() -> None:
    script = Script(answers=["abcdefghijklmnop", "ijklmnopqrstuvwx"])
    with session_of(script, max_tokens=2, seed=5) as session:
        turn = session.send("a").result()
        assert (turn.content, turn.stop_reason) == ("abcdefgh", "length")
        answer = session.continue_answer()
        assert answer.turn is turn and turn.stop_reason is None and answer.text == "abcdefgh"
        assert answer.settings.max_tokens == 4 and answer.settings.seed == 5
        assert answer.result() is turn and turn.content.startswith("abcdefghijkl")
        assert len(turn.written.tokens) == 4


def test_a_stopped_answer_goes_on_with_what_was_left() -> None:
    script = Script(answers=["abcdefghijklmnop"])
    with session_of(script, max_tokens=3) as session:
        answer = session.send("a")
        for event in answer:
            if isinstance(event, Piece):
                answer.stop()
        assert answer.turn and answer.stop_reason == "cancelled"
        assert session.continue_answer().settings.max_tokens == 3


def test_an_edited_answer_counts_for_no_limit() -> None:
    script = Script(answers=["abcdefgh"])
    with session_of(script, max_tokens=2, thinking_budget=7) as session:
        session.send("a").result()
        turn = session.edit_answer(1, "my own words!")
        assert contents(session) == ["a", "my own words!"]
        assert (turn.stop_reason, turn.edited, turn.variant) == ("edited", 4, 1)
        assert turn.thinking_budget == 7 and turn.thinking is False
        answer = session.continue_answer()
        assert answer.settings.max_tokens == 2 + turn.edited
        assert answer.result().content.startswith("my own words!")


def test_a_template_that_is_another_now() -> None:
    with session_of(Script(answers=["abcdefgh"]), max_tokens=1) as session:
        turn = session.send("a").result()
        assert len(turn.template) == 16
        turn.template = "another"
        with pytest.raises(InvalidValueError, match="begun with another chat template"):
            session.continue_answer()
        turn.template = ""  # not known
        session.continue_answer().result()


def test_what_is_new_about_the_models_is_said_once() -> None:
    script = Script(notes=["known"])
    with session_of(script) as session:
        loaded: Any = session._slot.loaded
        loaded.threads_note, loaded.drafters.lost = "fewer threads", "a drafter is lost"

        def lines() -> list[str]:
            return [each.line for each in session.send("a") if isinstance(each, Notice)]

        assert lines() == ["fewer threads", "a drafter is lost"]
        assert lines() == []
        running = session.send("a")
        for event in running:
            if isinstance(event, Piece):
                loaded.apart = "no room"
            last = event if isinstance(event, Notice) else None
        assert last is None and session._notices.new(session._transcript) == []


def test_branches_go_to_the_newest_turn() -> None:
    conversation = Conversation()
    with session_of(Script(answers=["one", "two", "three"]), conversation=conversation) as session:
        first = session.send("a").result()
        second = session.regenerate().result()
        assert (first.variant, second.variant) == (0, 1)
        question = session.turns[0]
        session.send("b").result()
        session.choose(first)
        assert session.turns[-1] is first
        session.choose(question)
        assert session.turns[1] is second and len(session.turns) == 4
        conversation.remove(session.turns[3])
        assert len(session.turns) == 3
        conversation.remove(second)
        assert session.regenerate().result().variant == 1
        assert len(conversation.copy_branch().turns) == 2
        assert conversation.copy_branch().turns[0].after[0].content == session.turns[1].content
