"""Arguments of sessions, turns and conversations that are of another type than they must be."""

from typing import Any

import pytest
from fakes.scripted import Script

from localspec.conversation.session import Session
from localspec.conversation.turns import Conversation, Turn
from localspec.errors import InvalidValueError

ROLES = "it must be system, user, assistant or tool"


@pytest.mark.parametrize("engine", [None, "x", object()])
def test_an_engine_that_is_none(engine: Any) -> None:
    with pytest.raises(InvalidValueError, match=r"engine is .*; give what localspec.load returns"):
        Session(engine)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"system": 5}, "system is 5; it must be a text"),
        ({"system": b"be brief"}, "system is b'be brief'; it must be a text"),
        ({"template_options": "no"}, "template_options is 'no'; it must be a dict"),
        ({"tools": "ls"}, "tools is 'ls'; it must be a list of dicts"),
        ({"conversation": [Turn("user", "a")]}, r"conversation is \[Turn.*; it must be a Conv"),
        ({"when_full": "ask"}, "when_full is 'ask'; it must be stop or drop"),
        ({"thinking_budget": -1}, "thinking_budget is -1; it must be at least 0"),
        ({"max_tokens": 0}, "max_tokens is 0; it must be at least 1"),
        (
            {"prompt_logprobs": True},
            "prompt_logprobs is True; a conversation has none: `Engine.gen",
        ),
    ],
)
def test_options_of_a_session(options: Any, said: str) -> None:
    engine: Any = Script().load()
    with pytest.raises(InvalidValueError, match=f"^{said}"):
        Session(engine, **options)


@pytest.mark.parametrize("role", ["banana", "", 5, None, ["user"]])
def test_roles(role: Any) -> None:
    engine: Any = Script().load()
    with Session(engine) as session:
        with pytest.raises(InvalidValueError, match=f"role is .*; {ROLES}"):
            session.send("hi", role=role)
        assert session.turns == []
    with pytest.raises(InvalidValueError, match=ROLES):
        Conversation([Turn(role, "hi")])


def test_texts_and_numbers_of_turns() -> None:
    engine: Any = Script().load()
    wrong: Any = 5
    with pytest.raises(InvalidValueError, match="content is 5; it must be a text"):
        Turn("user", wrong)
    with Session(engine) as session:
        session.send("hi").result()
        before = session.turns
        for ask, said in (
            (lambda: session.send(wrong), "the message is 5; it must be a text"),
            (lambda: session.edit(0, wrong), "the message is 5; it must be a text"),
            (lambda: session.edit_answer(1, wrong), "the answer is 5; it must be a text"),
            (lambda: session.edit("0", "a"), "number is '0', a str; it must be a whole number"),  # type: ignore[arg-type]
            (lambda: session.edit(-1, "a"), "there is no turn -1; there are 2, from 0 on"),
            (lambda: session.edit_answer(2, "a"), "there is no turn 2; there are 2, from 0 on"),
            (lambda: session.reset(wrong), "conversation is 5; it must be a Conversation"),
        ):
            with pytest.raises(InvalidValueError, match=said):
                ask()
            assert session.turns == before
