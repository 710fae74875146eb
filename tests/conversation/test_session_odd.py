"""Sessions that are left alone, share an engine with others, or run out of room."""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fakes.pycode import load
from fakes.templates import R1
from fakes.tiny import TURNS, write_tiny

from localspec.conversation.answer import Answer
from localspec.conversation.events import Dropped, Ended, Piece
from localspec.conversation.session import Session
from localspec.engine.detokenizer import Detokenizer
from localspec.engine.engine import Engine
from localspec.engine.interruption import InterruptedTextError
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError, LocalspecError
from localspec.generation_config import GenerationConfig, GenerationOptions

Make = Callable[..., Engine]
SWITCHED = "the engine was switched to another model or drafter before this answer had ended; "
WARMED_UP = "the engine was warmed up before this answer had ended; "
# Of localspec/llama, what cuts, copies and moves texts.
CACHE_FILES = ("cached_text.py", "kv_cache.py", "rollback.py", "sequence.py")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Make]:
    made: list[Engine] = []

    def make(template: str = TURNS, context: int = 512, draft: object = "suffix") -> Engine:
        path = write_tiny(tmp_path / "llama.gguf", "llama", template=template, context=512)
        made.append(load(path, draft, context=context, threads=1))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def spelt(engine: Engine, tokens: tuple[int, ...]) -> str:
    stream = Detokenizer()
    return "".join(stream.push(engine.model.piece(token)) for token in tokens) + stream.flush()


def test_sessions_that_nobody_closes(tiny: Make) -> None:
    """The garbage collector may end them anywhere, within a step of another one, too."""
    engine = tiny()
    for _ in range(120):
        for _event in Session(engine, max_tokens=9).send("abc"):
            break
        engine.generate("abc", max_tokens=3)
    gc.collect()
    with Session(engine) as session:
        assert session._slot is engine.slots.own
        assert engine.slots.further == []


@pytest.mark.slow
def test_a_session_is_forgotten_while_there_is_made_room(tiny: Make) -> None:
    """The garbage collector runs in the middle of anything: here at calls that change caches."""
    engine = tiny(draft="none")
    options: GenerationOptions = {"max_tokens": 3, "temperature": 0, "ignore_eos": True}
    forgotten: list[Session] = []
    calls = 0

    def forget(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        if event != "call" or Path(frame.f_code.co_filename).name not in CACHE_FILES:
            return
        calls -= 1
        if not calls:
            forgotten.clear()
            gc.collect()

    gc.freeze()  # what other tests have left would be gone through each time
    with Session(engine, **options) as first:
        wanted = first.send("abc").result().written.tokens
        for number in count(1, 2):
            forgotten.append(Session(engine, **options))
            forgotten[0].send("def").result()
            calls = number
            with Session(engine, **options) as last:
                answer = last.send("abc")
                sys.setprofile(forget)
                try:
                    found = answer.result()
                finally:
                    sys.setprofile(None)
                assert found.written.tokens == wanted
                assert first.regenerate().result().written.tokens
            assert len(engine.slots.further) == len(forgotten)
            if forgotten:
                break
    gc.unfreeze()
    assert number > 50


def test_another_session_switches_the_model(tiny: Make, tmp_path: Path) -> None:
    """An answer of the model before ends; nothing of it reaches the new one."""
    engine = tiny()
    with Session(engine, max_tokens=30, ignore_eos=True) as session, Session(engine) as other:
        begun, waiting = session.send("abc"), other.send("def")
        for event in begun:
            if isinstance(event, Piece):
                break
        other.switch(model=write_tiny(tmp_path / "qwen3.gguf", "qwen3", template=TURNS))
        assert waiting.result().stop_reason == "cancelled", "its own session has ended it"
        assert interruption(begun) == SWITCHED + "the session's `regenerate` answers again"
        assert session.regenerate().result().stop_reason == "length"
        assert session.send("more").result().stop_reason


def interruption(answer: Answer) -> str:
    """What an answer says that another party than its reader has ended; it says so again."""
    said = []
    for read in (list, Answer.result, next):
        with pytest.raises(LocalspecError) as raised:
            read(answer)  # type: ignore[operator]
        said.append(str(raised.value))
    assert len({*said}) == 1
    return said[0]


@pytest.mark.parametrize(
    ("change", "event"),
    [(lambda engine: engine.switch(draft="none"), SWITCHED), (Engine.warm_up, WARMED_UP)],
)
def test_an_answer_that_was_interrupted_goes_on(
    tiny: Make, change: Callable[[Engine], None], event: str
) -> None:
    """With the tokens that it would have had."""
    with Session(tiny(), max_tokens=12, ignore_eos=True, seed=5) as session:
        whole = session.send("abc").result()
        session.reset()
        answer = session.send("abc")
        while not isinstance(next(answer), Piece):
            pass
        change(session.engine)
        assert interruption(answer) == event + "the session's `continue_answer` goes on"
        assert session.continue_answer().result().written == whole.written


@pytest.mark.parametrize("pieces", [0, 3])
def test_an_answer_says_that_its_engine_was_closed(tiny: Make, pieces: int) -> None:
    """What it has said stays, and goes on with another engine as if nothing had been."""
    options: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "seed": 5}
    with Session(tiny(), **options) as session:
        whole = session.send("abc").result()
    engine = tiny()
    with Session(engine, **options) as session:
        answer = session.send("abc")
        for _ in range(pieces):
            while not isinstance(next(answer), Piece):
                pass
        engine.close()
        way = "`continue_answer` goes on" if pieces else "`regenerate` answers again"
        assert interruption(answer) == (
            "the engine was closed before this answer had ended; load another with localspec.load "
            f"and begin a Session there with this conversation: its {way}"
        )
        assert len(session.turns) == 1 + bool(pieces)
    with Session(tiny(), conversation=session.conversation, **options) as session:
        answer = session.continue_answer() if pieces else session.regenerate()
        assert answer.result().written == whole.written
    # One that has ended, or was stopped, needs no engine.
    engine = tiny()
    with Session(engine, **options) as session:
        answer = session.send("abc")
        answer.result()
        other = session.send("def")
        other.stop()
        engine.close()
        assert answer.result().content == whole.content
        assert other.result().stop_reason == "cancelled"


def test_models_are_switched_while_others_talk(tiny: Make, tmp_path: Path) -> None:
    engine = tiny(draft="none")
    first = engine.model.path
    second = write_tiny(tmp_path / "qwen3.gguf", "qwen3", template=TURNS)
    wrong: list[BaseException] = []
    done = threading.Event()

    def talk() -> None:
        try:
            with Session(engine, max_tokens=4) as session:
                while not done.is_set():
                    with suppress(InterruptedTextError):
                        session.send("abc" * 60).result()
                    session.reset()
        except BaseException as error:
            wrong.append(error)
            raise

    talkers = [threading.Thread(target=talk) for _ in range(2)]
    for talker in talkers:
        talker.start()
    for number in range(12):
        engine.switch(second if number % 2 == 0 else first)
    done.set()
    for talker in talkers:
        talker.join(120)
    assert wrong == []


def test_caches_taken_from_under_a_text(tiny: Make, tmp_path: Path) -> None:
    """It ends, rather than going on over another text."""
    engine, store = tiny(), StateStore(tmp_path / "states")
    with Session(engine, max_tokens=5) as session:
        session.send("abc").result()
        session.save_state("a", store)
        config = GenerationConfig.of(max_tokens=20, ignore_eos=True)
        running = session._slot.start(engine.tokenize("def"), config)
        next(running)
        assert session.load_state("a", store) is None
        assert running.stop_reason == "cancelled" and list(running) == []
        session.remove_state("a", store)
        assert session.load_state("a", store) == "nothing was saved under this key"
    with Session(tiny(context=24)) as small:
        with Session(engine, max_tokens=30, ignore_eos=True) as session:
            session.send("abcabcabc").result()
            assert session.save_state("b", store) is None
        assert small.load_state("b", store) == "it does not fit this context"


@pytest.mark.parametrize("rule", ["coupled", "token"])
def test_randomness_is_used_once(tiny: Make, rule: str) -> None:
    """After turns are dropped, positions come again; what was drawn there does not."""
    with Session(
        tiny(context=256), when_full="drop", temperature=1, seed=5, rule=rule, ignore_eos=True
    ) as session:
        session.send("abc" * 20, max_tokens=2).result()
        answer = session.send("d", max_tokens=300)
        parts: list[list[int]] = [[]]
        for event in answer:
            if isinstance(event, Dropped):
                parts.append([])
            elif isinstance(event, Piece):
                parts[-1].append(event.token.id)
    first, second = parts[-2:]
    again = sum(a == b for a, b in zip(first, second, strict=False))
    assert min(len(first), len(second)) > 30 and again < 10


@pytest.mark.parametrize("events", range(2, 14))
def test_what_was_held_back_is_not_lost(tiny: Make, events: int) -> None:
    """Of a stop string that had begun, or half a tag, when the answer was stopped."""
    engine = tiny()
    with Session(engine, temperature=0, ignore_eos=True, max_tokens=40) as session:
        whole = session.send("abc").result()
        stop = whole.content[3:5] + "\x00"
        answer = session.send("abc", stop=[stop])
        for _ in zip(range(events), answer, strict=False):
            pass
        answer.close()
        turn = answer.turn
        assert turn is None or turn.content == turn.raw == spelt(engine, turn.written.tokens)


def test_a_stop_string_ends_a_thought_at_its_budget(tiny: Make) -> None:
    engine = tiny(R1)
    with Session(engine, temperature=0, ignore_eos=True, max_tokens=40) as session:
        thought = session.send("abc").result().raw
        session.thinking_budget = 8
        session.reset()
        tokens = session.send("abc", max_tokens=8).result().raw
        assert thought.startswith(tokens[:-1])
        session.reset()
        turn = session.send("abc", stop=[tokens[-1]]).result()
        assert turn.stop_reason == "stop" and tokens[-1] not in turn.raw


def test_a_thought_and_its_end_within_what_is_allowed(tiny: Make) -> None:
    engine = tiny(R1)
    with Session(engine, temperature=0, ignore_eos=True, thinking_budget=6) as session:
        for most in range(1, 30):
            session.reset()
            answer = session.send("abc", max_tokens=most)
            assert len(answer.result().written.tokens) <= most


def test_a_long_thought_in_a_full_context(tiny: Make) -> None:
    """The budget holds, however often the oldest turns have to go."""
    engine = tiny(R1, context=160)
    with Session(
        engine, temperature=0, ignore_eos=True, when_full="drop", thinking_budget=40
    ) as session:
        session.send("abc" * 8, max_tokens=30).result()
        answer = session.send("def" * 8, max_tokens=200)
        events = list(answer)
        assert isinstance(events[-1], Ended)
        turn = answer.turn
        assert turn and "</think>" in turn.raw
        assert 40 <= answer._writer.budget.used <= 41


def test_dropped_is_said_once_and_only_if_it_is_so(tiny: Make) -> None:
    engine = tiny(context=256)
    with Session(engine, when_full="drop", max_tokens=4, temperature=0) as session:
        events = list(session.send("abcabcabc" * 24))
        assert not any(isinstance(event, Dropped) for event in events)
        for _ in range(3):
            events = list(session.send("defdef" * 4))
        dropped = session._window(session.turns).dropped
        assert dropped
        assert not any(isinstance(event, Dropped) for event in session.regenerate())
        with pytest.raises(InvalidValueError, match="system prompt and template included"):
            session.send("x" * 400)
        assert session._window(session.turns).dropped == dropped


def test_variants_differ_in_forks_as_well(tiny: Make) -> None:
    with Session(tiny(), temperature=1, seed=3, max_tokens=12, ignore_eos=True) as session:
        first = session.send("abc").result()
        second = session.regenerate().result()
        with session.fork() as fork:
            third = fork.regenerate().result()
        assert len({first.written, second.written, third.written}) == 3


def test_answers_as_long_as_there_is_room_for(tiny: Make) -> None:
    with Session(tiny(), min_tokens=300, temperature=0) as session:
        assert len(session.send("abc").result().written.tokens) >= 300
