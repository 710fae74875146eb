"""Sessions over a scripted engine: what their text, branches and settings need no model for."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from fakes.scripted import Script, ScriptedDecoder, ScriptedSlot, ScriptedSlots, ScriptedTarget
from fakes.templates import DATED, QWEN3, R1

from localspec.conversation.events import Dropped, Ended, Notice, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import EMPTY, Conversation, TokenizedText, Turn
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


def test_a_fork_is_as_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedSlot, "copy_from", lambda *_: None, raising=False)
    told: Any = {"tools": [{"name": "ls"}], "template_options": {"mood": "glad"}}
    script = Script(answers=["a" * 40], context=64, template=TOLD)
    given: Any = {**told, "when_full": "drop", "thinking_budget": 9, "max_tokens": 10, "seed": 3}
    with session_of(script, system="be brief", **given) as session:
        for text in ("one", "two" * 20, "three" * 20):
            session.send(text).result()
        fork = session.fork()
        assert fork.written == session.written
        assert fork._window(fork.turns).dropped == session._window(session.turns).dropped > 0
        assert (fork.when_full, fork.thinking_budget) == ("drop", 9)
        assert fork.send("four").settings.seed == 3
        assert len(fork.turns) == len(session.turns) + 1
    with session_of(script, raw=True) as session, session.fork() as fork:
        assert fork.send("abc").result() and fork.written.text.startswith("abc")


def test_a_fork_that_cannot_be_copied_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[object] = []

    def fail(*_: object) -> None:
        raise LocalspecError("no room")

    monkeypatch.setattr(ScriptedSlot, "copy_from", fail, raising=False)
    monkeypatch.setattr(ScriptedSlots, "leave", lambda _, slot: left.append(slot))
    with session_of(Script()) as session:
        with pytest.raises(LocalspecError, match="no room"):
            session.fork()
        assert len(left) == 1


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


def test_a_text_that_a_schema_describes_goes_on_without_the_oldest_turns() -> None:
    script = Script(answers=["a" * 20, '["' + "b" * 400], context=64)
    with session_of(script, when_full="drop") as session:
        session.send("one").result()
        answer = session.send("two", schema={"type": "array"})
        assert sum(isinstance(event, Dropped) for event in answer) == 1
        assert answer.stop_reason == "context" and script.answers[1].startswith(answer.text)


@pytest.mark.parametrize("reason", ["cancelled", "interrupted"])
def test_an_answer_whose_tokens_are_lost(reason: str) -> None:
    with session_of(Script(answers=["a long answer"])) as session:
        turn = session.send("a").result()
        turn.written, turn.stop_reason = EMPTY, reason
        with pytest.raises(InvalidValueError, match="the tokens of the last answer were not kept"):
            session.continue_answer()
        session.conversation = session.conversation.copy_branch()
        assert session.written.text.endswith("<assistant>a long answer\n<assistant>")


@pytest.mark.parametrize("on", [True, False])
def test_reasoning_that_is_switched_during_an_answer(on: bool) -> None:
    """In Qwen3's prompt, which opens none, reasoning that is off is there and empty."""
    script = Script(answers=["a long answer"], template=QWEN3)
    with session_of(script, template_options={"enable_thinking": on}, max_tokens=2) as session:
        turn = session.send("a").result()
        assert turn.switch is on and turn.thinking is False
        session.template_options = {"enable_thinking": not on}
        words = ("on", "off") if on else ("off", "on")
        said = "the last answer was begun with reasoning {}, and it is {} now".format(*words)
        with pytest.raises(InvalidValueError, match=said):
            session.continue_answer()
        turn.switch = None  # not known
        session.continue_answer().result()


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
        session._slot.target.model.projector = SimpleNamespace(note="images take longer")

        def lines() -> list[str]:
            return [each.line for each in session.send("a") if isinstance(each, Notice)]

        assert lines() == ["fewer threads", "images take longer", "a drafter is lost"]
        assert lines() == []
        late = []
        for event in session.send("a"):
            loaded.apart = "no room"
            late += [event.line] if isinstance(event, Notice) else []
        assert late == ["no room"]


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


def test_wrong_options_of_a_switch_change_nothing() -> None:
    with session_of(Script(), seed=4) as session:
        with pytest.raises(InvalidValueError, match="temperature is -1"):
            session.switch(temperature=-1)
        answer = session.send("a")
        assert answer.settings.sampling == {} and answer.settings.seed == 4


def test_the_engine_knows_when_an_answer_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("fit_threads", "leave"):
        monkeypatch.setattr(ScriptedSlots, name, lambda *_, name=name: calls.append(name))
    with session_of(Script()) as session:
        slot = session._slot
        answer = session.send("a")
        assert calls == ["fit_threads"]
        next(answer)
        assert slot.in_answer
        answer.result()
        assert not slot.in_answer
    assert calls == ["fit_threads", "leave"]


def test_states_are_of_ended_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("save", "load", "reproducible_width"):
        monkeypatch.setattr(ScriptedSlot, name, lambda *_, name=name: name, raising=False)
    for name in ("save", "load"):
        with session_of(Script(answers=["a long answer"])) as session:
            answer = session.send("a")
            next(answer)
            assert getattr(session, f"{name}_state")("key") == name
            assert answer.stop_reason == "cancelled"


def test_an_answer_to_nothing_cannot_be_edited() -> None:
    conversation = Conversation([Turn("assistant", "hello")])
    session = session_of(Script(), conversation=conversation)
    with session, pytest.raises(InvalidValueError, match="turn 0 is not an answer to a message"):
        session.edit_answer(0, "a")


def test_an_answer_that_is_stopped_before_its_first_token() -> None:
    with session_of(Script()) as session:
        answer = session.send("a")
        answer.stop()
        [ended] = answer
        assert isinstance(ended, Ended) and ended.turn is None
        assert answer.stop_reason == ended.stop_reason == "cancelled"
        assert contents(session) == ["a"] and session._slot.started == []  # type: ignore[attr-defined]
        assert answer.result().stop_reason == "cancelled"


def test_an_answer_that_has_all_its_tokens_does_not_go_on() -> None:
    with session_of(Script(answers=["abcdefghijkl"])) as session:
        answer = session.send("a")
        while len(answer.origins) < 2:
            next(answer)
        answer.close()
        assert answer.origins == ["suffix", "suffix"]
        for most in (1, 2):
            answer.turn.stop_reason = "cancelled"  # type: ignore[union-attr]
            assert session.continue_answer(max_tokens=most).result().stop_reason == "length"
        assert contents(session) == ["a", "abcdefgh"]


def test_a_thought_whose_budget_is_spent_at_once() -> None:
    with session_of(Script(template=R1), thinking_budget=0) as session:
        answer = session.send("a")
        for event in answer:
            if isinstance(event, Notice):
                assert event.line == "the thought was ended: its budget of 0 tokens is used up"
                answer.stop()
        assert answer.turn and answer.turn.raw == "\n</think>\n\n"
        assert session._slot.started == []  # type: ignore[attr-defined]


def test_an_answer_follows_its_question_wherever_one_has_gone_meanwhile() -> None:
    with session_of(Script(answers=["one", "two"])) as session:
        first = session.send("a").result()
        answer = session.send("b")
        question = session.turns[-1]
        session.conversation.back_to(first)
        assert answer.result().before is question and session.turns[-1] is answer.turn


def test_an_answer_that_fails_is_kept_as_far_as_it_was_written() -> None:
    with session_of(Script(answers=["a long answer"], fails={"answer": OSError("no")})) as session:
        answer = session.send("a")
        with pytest.raises(OSError, match="no"):
            answer.result()
        assert answer.turn and (answer.turn.content, answer.turn.stop_reason) == (
            "a long a",
            "cancelled",
        )


def test_a_question_that_leaves_no_room_ends_its_answer() -> None:
    script = Script(answers=["a" * 8, "b" * 400], context=64)
    with session_of(script, when_full="drop", max_tokens=40) as session:
        session.send("one").result()
        answer = session.send("q" * 120)
        events = list(answer)
        assert answer.stop_reason == "context" and isinstance(events[-1], Ended)
        assert sum(isinstance(event, Dropped) for event in events) <= 1


def test_an_edited_answer_goes_on_again_and_again() -> None:
    with session_of(Script(answers=["abcdefghijklmnop"]), max_tokens=1) as session:
        session.send("a").result()
        session.edit_answer(1, "mine: ")
        for count in (1, 2, 3):
            turn = session.continue_answer().result()
            assert turn.content == turn.raw == "mine: " + "abcd" * count
            assert session.written.text.endswith(turn.content)


def test_of_another_vocabulary_or_without_what_was_then() -> None:
    with session_of(Script(answers=["abcdefgh"]), max_tokens=1) as session:
        turn = session.send("a").result()
        turn.vocabulary = "another"
        with pytest.raises(InvalidValueError, match="in the tokens of another model"):
            session.continue_answer()
        turn.written = TokenizedText("abcd", (1, 2))
        assert 1 not in session.written.tokens and "abcd" in session.written.text
    with session_of(Script(answers=["abcdefgh"]), max_tokens=1) as session:
        turn = session.send("a").result()
        session.thinking_budget, turn.template, turn.thinking = 5, "", None
        session.continue_answer().result()


def test_the_prompt_is_that_of_the_system_prompt_and_the_date() -> None:
    conversation = Conversation(began=datetime(2001, 2, 3))
    script = Script(answers=["abcd"], template=DATED)
    with session_of(script, system="first", conversation=conversation) as session:
        session.send("a").result()
        assert "2001-02-03" in session.written.text and "first" in session.written.text
        session.system = "second"
        assert "second" in session.written.text


def test_an_answer_keeps_its_tokens_where_a_template_trims_it() -> None:
    template = (
        "{% for each in messages %}{{ each.role ~ ':' ~ each.content|trim ~ '.' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    with session_of(Script(answers=["abcd    "], template=template)) as session:
        model: Any = session._slot.target.model
        turn = session.send("a").result()
        session.conversation.add(Turn("user", "b"))
        [ab], [cd], [rest] = map(model.tokenize, ("ab", "cd", "    "))
        for text, tokens, kept in (
            ("abcd    ", (ab, cd, rest), [ab, cd]),
            ("abcd ", (ab, *model.tokenize("cd ")), []),  # the space is within a token
        ):
            turn.written = TokenizedText(text, tokens)
            session.template_options = {"text": text}  # a transcript that knows none of it
            written = session.written
            spelt = b"".join(map(model.piece, written.tokens)).decode()
            assert spelt == written.text
            assert [token for token in written.tokens if token in (ab, cd)] == kept


def test_a_template_that_reads_no_reasoning_gets_the_text_as_it_was_written() -> None:
    with session_of(Script(answers=["<think>why</think>abc"])) as session:
        turn = session.send("a").result()
        assert (turn.thought, turn.content) == ("why", "abc")
        session.conversation.add(Turn("user", "b"))
        assert "<think>why</think>abc\n<user>b" in session.written.text


def test_a_template_that_refuses_all_says_why() -> None:
    script = Script(template="{{ raise_exception('no messages today') }}")
    with session_of(script) as session:
        with pytest.raises(InvalidValueError, match="no messages today"):
            session.send("a")
        assert session.turns == []


def test_messages_of_one_role_are_joined_where_a_template_wants_that() -> None:
    template = (
        "{% for each in messages %}"
        "{% if loop.previtem is defined and loop.previtem.role == each.role %}"
        "{{ raise_exception('no') }}{% endif %}<{{ each.role }}>{{ each.content }}{% endfor %}"
    )
    conversation = Conversation([Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c")])
    script = Script(template=template)
    with session_of(script, system="brief", conversation=conversation) as session:
        lines = [each.line for each in session.send("d") if isinstance(each, Notice)]
        assert lines == ["the model's template refuses these turns: some are joined into one"]
        text = session._window(session.turns[:4]).prompt.text
        assert text == "<system>brief<user>a<assistant>b<user>c\n\nd"


def test_notes_that_the_engine_has_said_are_not_said_again() -> None:
    engine: Any = Script().load()
    engine.slots.own.loaded.notes = ("fewer threads",)
    engine.slots.own.loaded.threads_note = "fewer threads"
    with Session(engine) as session:
        assert not any(isinstance(event, Notice) for event in session.send("a"))


def test_another_conversation_has_a_date_of_its_own() -> None:
    with session_of(Script(template=DATED)) as session:
        for year in (2001, 2002):
            session.reset(Conversation([Turn("user", "a")], began=datetime(year, 2, 3)))
            assert f"{year}-02-03" in session.written.text


def test_the_tokens_of_an_answer_are_those_of_its_text() -> None:
    script = Script(answers=["abcdefgh", *["abcdefSTOP and more"] * 2])
    with session_of(script) as session:
        model: Any = session._slot.target.model
        turn = session.send("a").result()
        assert turn.written == ("abcdefgh", tuple(model.tokenize("abcdefgh")))
        turn = session.send("b", stop=["STOP"]).result()
        assert (turn.content, turn.stop_reason) == ("abcdef", "stop")
        assert turn.written == ("abcd", tuple(model.tokenize("abcd")))
        session.edit_answer(3, "mine ")
        turn = session.continue_answer(stop=["STOP"]).result()
        assert turn.content == "mine abcdef" and turn.written.text == "mine abcd"
        assert b"".join(map(model.piece, turn.written.tokens)) == b"mine abcd"


def test_a_budget_that_is_not_known_is_no_other_one() -> None:
    with session_of(Script(answers=["<think>a long reason"]), max_tokens=3) as session:
        turn = session.send("a").result()
        assert not turn.content and turn.thought
        session.thinking_budget = 50
        with pytest.raises(InvalidValueError, match="begun with no thinking budget"):
            session.continue_answer()
        turn.template = ""
        session.continue_answer().result()


def test_an_answer_without_reasoning_has_none_for_a_template() -> None:
    template = (
        "{% for each in messages %}{{ each.content }}"
        "{% if each.reasoning_content is defined %}({{ each.reasoning_content }}){% endif %}"
        "{% endfor %}"
    )
    script = Script(answers=["abcd", "<think>why</think>efgh"], template=template)
    with session_of(script) as session:
        for text in ("a", "b", "c"):
            session.send(text).result()
        assert "(why)" in session._window(session.turns[:5]).prompt.text
        assert "()" not in session._window(session.turns[:5]).prompt.text


def test_tokens_that_are_read_again_are_said_of_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, marks = ScriptedDecoder.begin, SimpleNamespace(refused=0)

    def again(decoder: ScriptedDecoder, most: int) -> None:
        begin(decoder, most)
        decoder.stats.prompt_again += 5

    monkeypatch.setattr(ScriptedDecoder, "begin", again)
    memory = SimpleNamespace(marks=marks)
    monkeypatch.setattr(ScriptedTarget, "memory", memory, raising=False)
    with session_of(Script(answers=["a long reason"], template=R1), thinking_budget=1) as session:
        lines = [each.line for each in session.send("a") if isinstance(each, Notice)]
        again_lines = [line for line in lines if line.startswith("5 tokens were evaluated again")]
        assert len(again_lines) == 2 and len(lines) == 3
        marks.refused = 1 << 20
        lines = [each.line for each in session.send("b") if isinstance(each, Notice)]
        assert "memory has no room for copies of" in lines[0]
