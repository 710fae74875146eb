"""A conversation: only what is new is evaluated, and nothing said is ever lost."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import llama_cpp
import pytest
from fakes.pycode import load
from fakes.templates import BROKEN, GEMMA, NEEDY, R1
from fakes.tiny import TURNS, write_tiny

from localspec.conversation.answer import Answer
from localspec.conversation.events import Dropped, Ended, Event, Notice, Piece, Reading
from localspec.conversation.session import Session
from localspec.engine.engine import Engine
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError, LocalspecError, ModelNotFoundError
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

OPTIONS = {"threads": 1, "context": 512}


@pytest.fixture(scope="module")
def pair() -> Iterator[Engine]:
    """The bundled pair: no template, a drafter that is a model."""
    with load(draft="auto", context=512, threads=1) as engine:
        yield engine


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    made: list[Engine] = []

    def make(family: str = "llama", template: str = TURNS, draft: object = "suffix") -> Engine:
        file = tmp_path / f"{family}.gguf"
        path = write_tiny(file, family, template=template, context=OPTIONS["context"])
        drafter = path if draft == "itself" else draft
        made.append(load(path, drafter, **OPTIONS))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def texts(session: Session) -> list[str]:
    return [turn.content for turn in session.turns]


def test_what_passes_take_is_learnt_by_each_text_for_itself(pair: Engine) -> None:
    """A long one's passes are slower; both start from what is known."""
    with Session(pair) as one, Session(pair) as other:
        mine, its = (session._slot.loaded.policies.costs.passes for session in (one, other))
        assert mine and its and mine.table == its.table
        for _ in range(9):
            its.learn(1, 2 * its.seconds(1))
        assert its.seconds(1) > 1.5 * mine.seconds(1)


@pytest.mark.parametrize("family", ["llama", "gemma3", "mamba", "qwen35"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_twenty_turns_evaluate_only_what_is_new(
    tiny: Callable[..., Engine], family: str, temperature: float
) -> None:
    """In each model: the new tokens and one more at most; an accepted draft is never read again."""
    engine = tiny(family, draft="itself")
    [drafter] = engine.drafter_set.sequences.values()
    assert drafter
    with Session(engine, temperature=temperature, seed=4, depth=3, max_tokens=3) as session:
        known, before = 0, engine.slots.own.target.evaluated
        drafted_before = drafter.evaluated
        for number in range(20):
            answer = session.send("abc"[: 1 + number % 3])
            *_, ended = answer
            assert isinstance(ended, Ended)
            stats, tokens = ended.stats, list(session.written.tokens)
            new = stats.prompt_tokens - known
            assert stats.prompt_evaluated <= new + 1
            known = len(tokens)
            target = engine.slots.own.target
            # Of what was drafted, what was rejected; of all else, each token once.
            rejected = stats.drafted - stats.accepted
            evaluated, before = target.evaluated - before, target.evaluated
            replayed = 0 if family in ("llama", "gemma3") else 9 * stats.steps
            assert evaluated <= new + stats.generated_tokens + rejected + 1 + replayed
            drafted = drafter.evaluated - drafted_before
            drafted_before = drafter.evaluated
            assert drafted <= new + stats.generated_tokens + stats.drafted + 1 + replayed
        assert len(session.turns) == 40


@pytest.mark.parametrize("room", [True, False])
def test_a_second_reading_is_told_with_its_reason(
    tiny: Callable[..., Engine], room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not room:
        monkeypatch.setattr("localspec.llama.marks.spare_memory", lambda: 0)
    with Session(tiny("mamba", draft="none"), temperature=0, max_tokens=12) as session:
        session.send("abc").result()
        lines = [event.line for event in session.regenerate() if isinstance(event, Notice)]
    reason = (
        "this model's cache can forget what came after a checkpoint, and memory has no room for "
    )
    assert [reason in line for line in lines] == ([] if room else [True])


def test_the_first_token_does_not_wait_for_the_drafter(pair: Engine) -> None:
    [drafter] = pair.drafter_set.sequences.values()
    assert drafter
    with Session(pair, temperature=0, depth=3) as session:
        answer = session.send("def first(a):\n" * 8)
        drafter.truncate(0)
        before = drafter.evaluated
        for event in answer:
            if isinstance(event, Piece):
                break
        assert drafter.evaluated == before
        answer.result()
        assert drafter.evaluated > before


def test_progress_comes_in_chunks(pair: Engine) -> None:
    pair.slots.own.target.truncate(0)
    pair.slots.own.target.chunk = 32
    try:
        with Session(pair, max_tokens=1) as session:
            events = list(session.send("x = 1\n" * 40))
    finally:
        pair.slots.own.target.chunk = 512
    done = [event.done for event in events if isinstance(event, Reading)]
    total = next(event.total for event in events if isinstance(event, Reading))
    assert done == [*range(0, total - 1, 32), total - 1]


def test_cancelling_while_the_prompt_is_read(pair: Engine) -> None:
    target = pair.slots.own.target
    target.truncate(0)
    target.chunk = 32
    try:
        with Session(pair) as session:
            answer = session.send("y = 2\n" * 40)
            for event in answer:
                if isinstance(event, Reading) and event.done >= 64:
                    answer.stop()
                    evaluated = target.evaluated
            assert isinstance(event, Ended)
            assert event.stop_reason == "cancelled" and event.turn is None
            assert target.evaluated == evaluated
            assert texts(session) == ["y = 2\n" * 40]
    finally:
        target.chunk = 512


@pytest.mark.parametrize("after", range(1, 12))
def test_cancelling_takes_one_pass_at_most(
    pair: Engine, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    decode, passes = llama_cpp.llama_decode, 0

    def counted(handle: object, batch: object) -> int:
        nonlocal passes
        passes += handle == pair.slots.own.target.context.handle
        return int(decode(handle, batch))

    monkeypatch.setattr(llama_cpp, "llama_decode", counted)
    with Session(pair, temperature=0) as session:
        answer = session.send("def g(a, b):\n    return a")
        for count, _event in enumerate(answer):
            if count == after:
                answer.stop()
                passes = 0
        assert passes <= 1
        assert not answer.turn or answer.turn.stop_reason == "cancelled"


def test_stop_from_another_thread(pair: Engine) -> None:
    with Session(pair, temperature=0, ignore_eos=True) as session:
        answer = session.send("for i in range(10):")
        begun, stopped = threading.Event(), threading.Event()
        events: list[Event] = []

        def read() -> None:
            for event in answer:
                events.append(event)
                if isinstance(event, Piece) and not begun.is_set():
                    begun.set()
                    # Else the text might have ended by itself.
                    stopped.wait(60)

        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(60)
        session.stop()
        stopped.set()
        reader.join(60)
        assert isinstance(events[-1], Ended) and events[-1].stop_reason == "cancelled"
        assert texts(session)[1] == answer.text


def test_variants_and_branches(pair: Engine) -> None:
    with Session(pair, temperature=1, seed=3, max_tokens=8) as session:
        first = session.send("def one():\n").result()
        second = session.regenerate().result()
        assert session.conversation.variants(first) == (first, second)
        assert first.written != second.written
        session.send("\ndef two():\n").result()
        edited = session.edit(0, "class One:\n").result()
        assert texts(session) == ["class One:\n", edited.content]
        session.choose(first)
        assert session.turns[-1] is first
        session.choose(second)
        assert len(session.turns) == 4
        # With the seed, each is what it would be in a session of its own.
        with Session(pair, temperature=1, seed=3, max_tokens=8) as other:
            assert other.send("def one():\n").result().written == first.written
            assert other.regenerate().result().written == second.written


def test_a_session_left_and_opened_again_writes_the_same(pair: Engine) -> None:
    from localspec.conversation.turns import Conversation

    options = {"temperature": 0.0, "max_tokens": 8}
    with Session(pair, **options) as session:  # type: ignore[arg-type]
        session.send("import os\n").result()
        turns = [turn.copy() for turn in session.turns]
        expected = session.send("\nimport sys\n").result().written
    with Session(pair, conversation=Conversation(turns), **options) as session:  # type: ignore[arg-type]
        assert session.send("\nimport sys\n").result().written == expected


def test_a_fork_goes_on_without_evaluating(pair: Engine) -> None:
    with Session(pair, temperature=0, max_tokens=6) as session:
        session.send("def fork(me):\n").result()
        with session.fork() as fork:
            mine, its = session.send("\n    a = 1\n"), fork.send("\n    a = 1\n")
            # They go on side by side, in one thread.
            for _ in zip(mine, its, strict=True):
                pass
            assert mine.text == its.text
            assert its.stats.prompt_evaluated == mine.stats.prompt_evaluated
            fork.send("x").result()
            assert len(fork.turns) == 6 and len(session.turns) == 4


def test_sessions_in_threads_do_not_mix() -> None:
    """Texts that share decodes may differ by near-ties: the scheduler's tests certify them."""
    with load(draft="auto", context=512, threads=1, reproducible=True) as engine:
        assert_not_mixed(engine)


def assert_not_mixed(pair: Engine) -> None:
    prompts = ["def add(a, b):\n", "class Stack:\n", "import re\n\nPATTERN = "]
    options = {"temperature": 0.7, "seed": 9, "max_tokens": 24}
    expected = []
    for prompt in prompts:
        with Session(pair, **options) as alone:  # type: ignore[arg-type]
            expected.append(
                [alone.send(prompt).result().content, alone.send("\n").result().content]
            )
    found: dict[int, list[str]] = {}

    def chat(number: int) -> None:
        with Session(pair, **options) as session:  # type: ignore[arg-type]
            found[number] = [
                session.send(prompts[number]).result().content,
                session.send("\n").result().content,
            ]

    threads = [threading.Thread(target=chat, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert [found[number] for number in range(3)] == expected


def test_the_context_is_full(pair: Engine) -> None:
    with Session(pair, temperature=0, ignore_eos=True) as session:
        *_, ended = session.send("a = [" + "1, " * 100)
        assert isinstance(ended, Ended)
        assert (ended.stop_reason, ended.gauge.share) == ("context", 1)
        before = session.turns
        with pytest.raises(InvalidValueError, match="512"):
            session.send("and?")
        assert session.turns == before
        with pytest.raises(InvalidValueError, match="system prompt and template included"):
            session.send("b = " * 600)


def test_the_oldest_turns_are_dropped_and_it_is_said(pair: Engine) -> None:
    with Session(
        pair, system="# system\n", when_full="drop", temperature=0, max_tokens=60, ignore_eos=True
    ) as session:
        dropped: list[Dropped] = []
        for number in range(12):
            for event in session.send(f"\ndef f{number}(a, b, c):\n" + "    x = a\n" * 3):
                if isinstance(event, Dropped):
                    dropped.append(event)
            assert len(session.turns) == 2 * (number + 1)
        assert 1 < len(dropped) < 11
        counts = [event.turns for event in dropped]
        assert counts == sorted(counts) and all(event.tokens < 512 for event in dropped)
        written = session.written
        assert written.text.startswith("# system\n\ndef f") and "def f0" not in written.text


def test_an_answer_goes_on_when_the_context_is_full(pair: Engine) -> None:
    with Session(pair, when_full="drop", temperature=0, ignore_eos=True, max_tokens=400) as session:
        session.send("a = 1\n" * 60, max_tokens=4).result()
        events = list(session.send("\nb = "))
        assert [type(event) for event in events].count(Dropped) == 1
        ended = events[-1]
        assert isinstance(ended, Ended) and ended.stop_reason == "length"
        assert ended.stats.generated_tokens == 400 == len(ended.turn.written.tokens)  # type: ignore[union-attr]


def test_what_cannot_be_said(pair: Engine) -> None:
    with Session(pair) as session:
        for wrong in (lambda: session.send(""), session.regenerate, lambda: session.edit(0, "x")):
            with pytest.raises(InvalidValueError):
                wrong()
        with pytest.raises(
            InvalidValueError, match=r"^the message is \[\{'role': 'user'\}\]; it must"
        ):
            session.send([{"role": "user"}])  # type: ignore[arg-type]
        session.send("a", max_tokens=1).result()
        with pytest.raises(InvalidValueError, match="is an answer"):
            session.edit(1, "x")
        with pytest.raises(InvalidValueError, match="temperature"):
            session.send("b", temperature=-1)
        assert texts(session)[0] == "a" and len(session.turns) == 2
    session.close()
    with pytest.raises(LocalspecError, match="closed"):
        session.send("x")
    with pytest.raises(InvalidValueError, match="when_full"):
        Session(pair, when_full="perhaps")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "thought"),
    [
        ({"grammar": 'root ::= "[" ("an" | "br"){3} "]"'}, ""),
        ({"schema": {"enum": ["an", "br"]}}, ""),
        ({"grammar": 'root ::= "an" "</think>" "[" ("an" | "br"){3} "]"'}, "an"),
    ],
)
def test_what_a_grammar_describes_is_the_answer_where_the_template_opens_reasoning(
    tiny: Callable[..., Engine], options: Any, thought: str
) -> None:
    with Session(tiny("llama", R1), temperature=0, max_tokens=60) as session:
        turn = session.send("ab", **options).result()
        assert turn.thought == thought
        assert turn.content[0] in '["' and turn.content[-1] in ']"'
        again = session.regenerate(**options).result()
        assert (again.thought, again.content[0]) == (thought, turn.content[0])
        free = session.send("ab", max_tokens=5, ignore_eos=True).result()
        assert free.thought and not free.content


def test_templates_that_fail(tiny: Callable[..., Engine]) -> None:
    for number, (template, complaint) in enumerate(((BROKEN, "line"), (NEEDY, "template_options"))):
        engine = tiny(("llama", "qwen3")[number], template)
        with Session(engine) as session:
            with pytest.raises(InvalidValueError, match=complaint):
                session.send("a")
            assert session.turns == []


def test_a_template_that_wants_turns_gets_them(tiny: Callable[..., Engine]) -> None:
    """Two questions in a row, because the first was never answered, are handed over as one."""
    with Session(tiny("gemma3", GEMMA), max_tokens=2, system="be brief") as session:
        answer = session.send("abc")
        answer.stop()
        assert answer.result().content == ""
        events = list(session.send("def"))
        assert any(
            isinstance(event, Notice) and "joined into one" in event.line for event in events
        )
        assert "abc\n\ndef" in session._window(session.turns[:2]).prompt.text


def test_thoughts(tiny: Callable[..., Engine]) -> None:
    """The prompt opens them; their budget ends them; the template forgets them."""
    engine = tiny("llama", R1)
    with Session(
        engine, temperature=0, max_tokens=20, ignore_eos=True, thinking_budget=6
    ) as session:
        events = list(session.send("abc"))
        turn = session.turns[1]
        assert any(isinstance(event, Notice) and "budget of 6" in event.line for event in events)
        assert turn.thought and turn.content
        assert (
            "".join(e.thought for e in events if isinstance(e, Piece)).strip()
            == turn.thought.strip()
        )
        assert "</think>" in turn.raw and "</think>" not in turn.thought + turn.content
        assert len(turn.written.tokens) >= 20
        session.send("def").result()
        history = session._window(session.turns[:3]).prompt.text
        assert turn.thought not in history and turn.content.strip() in history


def test_switching(pair: Engine, tiny: Callable[..., Engine], tmp_path: Path) -> None:
    engine = tiny("llama")
    with Session(engine, max_tokens=4, temperature=0) as session:
        session.send("abc").result()
        with pytest.raises(ModelNotFoundError):
            session.switch(model="/nowhere.gguf")
        answer = session.send("abc").result()
        session.switch(draft="none")
        assert session.engine.drafter_set.reason == "drafting was turned off"
        expected = session.regenerate().result()
        assert expected.written == answer.written
        assert session._answer and session._answer.stats.prompt_evaluated == 1
        path = write_tiny(tmp_path / "other.gguf", "qwen3", template=TURNS, context=512)
        session.switch(model=path, temperature=0.5)
        assert session.engine.model.path == path
        # What the other model wrote is read as text now.
        assert session.send("def").result().written.tokens
        assert len(session.turns) == 6


class Own:
    """A drafter of the user's."""

    name = "own"
    traits = Traits()

    def begin(self, tokens: object) -> None:
        pass

    def propose(self, limit: Limit) -> Draft:
        return Draft([5])

    def observe(self, outcome: Outcome) -> None:
        pass


def test_a_drafter_of_ones_own_follows_one_text(tiny: Callable[..., Engine]) -> None:
    engine = tiny("llama", draft=Own())
    with Session(engine, max_tokens=2) as session:
        session.send("abc").result()
        with pytest.raises(InvalidValueError, match="own"):
            session.fork()
        assert session.send("abc").result().stop_reason


def test_saved_states(pair: Engine, tmp_path: Path, tiny: Callable[..., Engine]) -> None:
    store = StateStore(tmp_path / "states")
    with Session(pair, temperature=0, max_tokens=8) as session:
        session.send("def saved():\n" * 10).result()
        assert session.save_state("a", store) is None
        pair.slots.own.target.truncate(0)
        assert session.load_state("a", store) is None
        answer = session.send("\n    x")
        answer.result()
        assert answer.stats.prompt_evaluated < 15
        assert session.load_state("b", store) == "nothing was saved under this key"
    with Session(tiny("llama")) as other:
        complaint = other.load_state("a", store)
        assert complaint and "model file" in complaint


@pytest.mark.parametrize("draft", ["suffix", "itself"])
def test_far_past_a_sliding_window(tmp_path: Path, draft: str) -> None:
    """2,000 tokens past a window of 16: drafts change nothing."""
    file = tmp_path / "gemma3.gguf"
    path = write_tiny(file, "gemma3", quantised=False, template=TURNS, context=2304)
    options = {"context": 2304, "threads": 1, "flash_attention": False, "kv_type": "f32"}
    drafter = path if draft == "itself" else draft
    with load(path, "none", **options) as plain, load(path, drafter, **options) as drafted:  # type: ignore[arg-type]
        for temperature in (0, 1):
            settings = {
                "temperature": temperature,
                "seed": 2,
                "max_tokens": 2000,
                "ignore_eos": True,
            }
            expected = plain.generate("abc", **settings)  # type: ignore[arg-type]
            found = drafted.generate("abc", depth=4, **settings)  # type: ignore[arg-type]
            assert found.token_ids == expected.token_ids
            assert found.stats.accepted > 0


def test_closed_by_another_thread_before_it_asks(
    tiny: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not write into its slot, which another session may have by now."""
    engine = tiny()
    session = Session(engine, max_tokens=20, ignore_eos=True)
    others: list[Session] = []
    end_answer = session._end_answer

    def late() -> None:
        end_answer()
        session.close()
        others.append(Session(engine, max_tokens=20, ignore_eos=True))
        answers.append(others[0].send("an br"))
        next(answers[0])

    answers: list[Answer] = []
    monkeypatch.setattr(session, "_end_answer", late)
    with pytest.raises(LocalspecError, match="this session was closed; open another"):
        session.send("cs cs")
    assert texts(session) == []
    answers[0].result()
    assert answers[0].stop_reason == "length"
    others[0].close()


def test_closed_by_another_thread_while_it_asks(
    tiny: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer ends as one that is closed, and does not name the text in its cache."""
    engine = tiny()
    with Session(engine):
        session = Session(engine, max_tokens=20, ignore_eos=True)
        closing = threading.Thread(target=session.close)

        def closed_meanwhile() -> None:
            closing.start()
            until = monotonic() + 30
            while closing.is_alive() and not engine.slots.lock._waiting:
                assert monotonic() < until
                sleep(0.001)

        monkeypatch.setattr(engine.slots, "fit_threads", closed_meanwhile)
        answer = session.send("cs cs")
        closing.join()
        assert not list(answer)
        assert answer.stop_reason == "cancelled"
        assert len(engine.slots.all) == 1
