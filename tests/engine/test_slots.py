"""Several texts of one engine at once, by `generate` and `stream`: each is whole, or waits."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from fakes.company import PATIENCE, Threads
from fakes.stateful import run_machine
from fakes.tiny import tiny_model
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from localspec.control.adaptive import AdaptivePolicy
from localspec.conversation.session import Session
from localspec.engine import slots
from localspec.engine.engine import Engine, load
from localspec.engine.generation import Generation
from localspec.errors import InvalidValueError, LocalspecError, ModelLoadError
from localspec.loading.config import EngineConfig
from localspec.loading.loader import LoadedModels, load_models
from localspec.speculation.draft import NOTHING, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

LENGTH = 24
OPTIONS: dict[str, Any] = {"max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}
PROMPTS = ["abc", "def", "an en", "bt", "cs cs cs", "dr er"]


class BrokenError(Exception):
    """An error of the caller's own."""


class Silent:
    """A drafter object, which follows only one text."""

    name = "silent"
    traits = Traits()

    def begin(self, tokens: Any) -> None: ...

    def propose(self, limit: Limit) -> Draft:
        return NOTHING

    def observe(self, outcome: Outcome) -> None: ...


@pytest.fixture(scope="module")
def tiny_path() -> Path:
    return tiny_model("llama")


@pytest.fixture(scope="module")
def shared(tiny_path: Path) -> Iterator[Engine]:
    with load(tiny_path, "suffix", threads=1, context=128, kv_type="f32") as engine:
        yield engine


@pytest.fixture
def engine(shared: Engine) -> Iterator[Engine]:
    """No test leaves a slot behind."""
    yield shared
    gc.collect()
    shared.slots._leave_unused()
    assert shared.slots.further == []
    assert not shared.slots._with_text
    scheduler = shared.slots.scheduler
    assert not (scheduler._waiting or scheduler._busy or scheduler._steps)


@pytest.fixture(scope="module")
def alone(tiny_path: Path) -> Iterator[Callable[[str], list[int]]]:
    """The text of a prompt, written with nothing beside it and from an empty cache."""
    with load(tiny_path, "none", threads=1, context=128, kv_type="f32") as engine:

        def text(prompt: str) -> list[int]:
            engine.slots.own.target.truncate(0)
            return engine.generate(prompt, **OPTIONS).token_ids

        yield text


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is too small for a second text."""

    def refuse(_self: LoadedModels) -> LoadedModels:
        raise ModelLoadError("there is no room for another text")

    monkeypatch.setattr(LoadedModels, "for_another_text", refuse)


def in_threads(engine: Engine, count: int) -> list[list[int]]:
    """What so many threads get that call `generate` at the same time."""
    ready = threading.Barrier(count)

    def generate(number: int) -> list[int]:
        ready.wait(PATIENCE)
        result = engine.generate(PROMPTS[number % len(PROMPTS)], **OPTIONS)
        assert result.stop_reason == "length"
        return result.token_ids

    with ThreadPoolExecutor(count) as pool:
        return [*pool.map(generate, range(count))]


def expected(alone: Callable[[str], list[int]], count: int) -> list[list[int]]:
    return [alone(PROMPTS[number % len(PROMPTS)]) for number in range(count)]


@pytest.mark.parametrize("count", [2, 6, 20])
def test_each_thread_gets_its_whole_text(
    engine: Engine, alone: Callable[[str], list[int]], count: int
) -> None:
    assert in_threads(engine, count) == expected(alone, count)


def test_the_bundled_pair_in_twenty_threads() -> None:
    """Texts beside others differ at near-ties only, which few short texts reach."""
    with load(threads=1, context=256) as engine:
        prompts = [f"def f{number}(" for number in range(20)]
        texts = [engine.generate(each, max_tokens=12, temperature=0) for each in prompts]
        with ThreadPoolExecutor(20) as pool:
            found = [
                *pool.map(lambda each: engine.generate(each, max_tokens=12, temperature=0), prompts)
            ]
    assert {each.stop_reason for each in found} <= {"length", "eos"}
    assert sum(a.token_ids == b.token_ids for a, b in zip(texts, found, strict=True)) > 10


def test_threads_queue_where_there_is_no_room(
    engine: Engine, alone: Callable[[str], list[int]], no_room: None
) -> None:
    assert in_threads(engine, 8) == expected(alone, 8)
    assert engine.slots.own.loaded is not None


def test_threads_queue_with_a_drafter_object(
    tiny_path: Path, alone: Callable[[str], list[int]]
) -> None:
    with load(tiny_path, Silent(), threads=1, context=128, kv_type="f32") as engine:
        assert in_threads(engine, 4) == expected(alone, 4)
        running = engine.stream("abc", **OPTIONS)
        next(running)
        with pytest.raises(InvalidValueError, match="'silent' is an object of yours"):
            engine.stream("def", **OPTIONS)
        assert running.result().token_ids == alone("abc")


def test_streams_of_one_thread_by_turns(engine: Engine, alone: Callable[[str], list[int]]) -> None:
    running = [engine.stream(prompt, **OPTIONS) for prompt in PROMPTS]
    for each in zip(*running, strict=True):
        assert len(each) == len(PROMPTS)
    assert [[token.id for token in each.tokens] for each in running] == expected(alone, 6)


def test_the_next_text_finds_the_cache_of_a_stream_that_was_left(engine: Engine) -> None:
    for _token in engine.stream("abc def abc", **OPTIONS):
        break
    assert engine.generate("abc def abc", **OPTIONS).stats.prompt_evaluated == 1
    running = engine.stream("abc def abc", **OPTIONS)
    next(running)
    running.close()
    assert engine.generate("abc def abc", **OPTIONS).stats.prompt_evaluated == 1


def test_no_room_beside_an_unread_stream_of_the_same_thread(
    engine: Engine, alone: Callable[[str], list[int]], no_room: None
) -> None:
    running = engine.stream("abc", **OPTIONS)
    began = monotonic()
    with pytest.raises(ModelLoadError, match="no room"):
        engine.generate("def", **OPTIONS)
    assert monotonic() - began < slots._READER_AWAY, "it would wait for itself"
    assert running.result().token_ids == alone("abc")
    assert engine.generate("def", **OPTIONS).token_ids == alone("def")


def test_a_stream_that_nobody_reads_is_not_waited_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, no_room: None
) -> None:
    monkeypatch.setattr(slots, "_READER_AWAY", 0.05)
    threads, begun = Threads(), list[Generation]()
    threads.start(lambda: begun.append(engine.stream("abc", **OPTIONS)))
    threads.join()
    with pytest.raises(ModelLoadError, match="no room"):
        engine.generate("def", **OPTIONS)
    assert begun[0].result().stop_reason == "length"


def test_a_stream_of_another_thread_that_has_just_begun_is_waited_for(
    engine: Engine, alone: Callable[[str], list[int]], no_room: None
) -> None:
    threads, begun, read = Threads(), threading.Event(), threading.Event()
    texts: list[list[int]] = []

    def begin() -> None:
        running = engine.stream("abc", **OPTIONS)
        begun.set()
        assert read.wait(PATIENCE)
        running.result()

    threads.start(begin)
    assert begun.wait(PATIENCE)
    threads.start(lambda: texts.append(engine.generate("def", **OPTIONS).token_ids))
    sleep(0.1)
    read.set()
    threads.join()
    assert texts == [alone("def")]


def test_a_stream_whose_tokens_are_read_by_a_new_thread_each_is_waited_for(
    engine: Engine, alone: Callable[[str], list[int]], no_room: None
) -> None:
    """The system gives the number of a thread that has ended to a later one."""
    running, threads, texts = engine.stream("abc", **OPTIONS), Threads(), list[list[int]]()
    read = threads.start(next, running)
    threads.join()
    begun = threading.Event()

    def ask() -> None:
        if threading.get_ident() == read.ident:
            begun.set()
            texts.append(engine.generate("def", **OPTIONS).token_ids)

    for _ in range(100):
        threads.start(ask).join(0.1)
        if begun.is_set():
            break
    else:
        pytest.skip("no thread has got this number")
    running.result()
    threads.join()
    assert texts == [alone("def")]


def test_a_text_takes_the_slot_of_a_session_that_is_closed_while_it_waits(
    engine: Engine, alone: Callable[[str], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, texts, session = Threads(), list[list[int]](), Session(engine)
    running, waits = engine.stream("abc", **OPTIONS), threading.Event()

    def refuse(_self: LoadedModels) -> LoadedModels:
        waits.set()
        raise ModelLoadError("there is no room for another text")

    monkeypatch.setattr(LoadedModels, "for_another_text", refuse)
    threads.start(lambda: texts.append(engine.generate("def", **OPTIONS).token_ids))
    assert waits.wait(PATIENCE)
    session.close()
    threads.join()
    assert running.result().token_ids == alone("abc")
    assert texts == [alone("def")]


def test_a_text_waits_for_a_stream_until_that_is_forgotten(
    engine: Engine, alone: Callable[[str], list[int]], no_room: None
) -> None:
    threads, begun = Threads(), [engine.stream("abc", **OPTIONS)]
    next(begun[0])
    texts: list[list[int]] = []
    threads.start(lambda: texts.append(engine.generate("def", **OPTIONS).token_ids))
    begun.clear()
    threads.join()
    assert texts == [alone("def")]


def test_a_forgotten_text_frees_its_caches_at_once(engine: Engine) -> None:
    """But where the lock is held, at the next occasion: the garbage collector runs anywhere."""
    further, texts = engine.slots.further, [engine.stream(each, **OPTIONS) for each in PROMPTS[:3]]
    for number in range(3):
        next(texts[number])
    assert len(further) == 2
    texts.pop()
    assert len(further) == 1
    with engine.slots.lock:
        texts.pop()
        assert len(further) == 1
    texts[0].close()
    assert not further


def test_a_slot_that_was_forgotten_while_the_lock_was_held_is_the_next_one(engine: Engine) -> None:
    """Another one would take memory, or there is no room for it."""
    texts: list[Generation] = []
    for use_it in (engine.slots.open, lambda: engine.stream("def", **OPTIONS)):
        texts.append(engine.stream("abc", **OPTIONS))
        with engine.slots.lock:
            texts.clear()
        used = use_it()
        assert not engine.slots.further
        engine.slots.leave(engine.slots.own)
        del used


def test_an_ended_text_that_is_forgotten_leaves_the_next_one_alone(
    engine: Engine, alone: Callable[[str], list[int]]
) -> None:
    """It has given its slot back before, and the next text uses that one."""
    texts = [engine.stream("abc", **OPTIONS)]
    texts[0].result()
    running = engine.stream("def", **OPTIONS)
    next(running)
    texts.clear()
    result = running.result()
    assert (result.stop_reason, result.token_ids) == ("length", alone("def"))


def test_stopped_while_it_waits(engine: Engine, no_room: None) -> None:
    cancel, threads = threading.Event(), Threads()
    running = engine.stream("abc", **OPTIONS)
    next(running)

    def wait() -> None:
        result = engine.generate("def", cancel=cancel, **OPTIONS)
        several = engine.generate(["def", "abc"], cancel=cancel, **OPTIONS)
        for each in (result, *several):
            assert (each.text, each.token_ids, each.stop_reason) == ("", [], "cancelled")
        stream = engine.stream("def", cancel=cancel, **OPTIONS)
        assert (list(stream), stream.stop_reason) == ([], "cancelled")
        assert stream.prompt == engine.tokenize("def")
        assert list(stream.reading()) == []
        assert stream.result().to_dict() == result.to_dict() | {
            "logprobs": [],
            "seed": stream.settings.seed,
        }

    threads.start(wait)
    cancel.set()
    threads.join()
    assert running.result().stop_reason == "length"


def test_an_error_of_one_text_is_not_the_others(
    engine: Engine, alone: Callable[[str], list[int]]
) -> None:
    ready, threads = threading.Barrier(6), Threads()

    def fail(_decision: object) -> None:
        raise BrokenError

    def refused() -> None:
        ready.wait(PATIENCE)
        with pytest.raises(InvalidValueError):
            engine.generate([-1], **OPTIONS)

    def broken() -> None:
        ready.wait(PATIENCE)
        with pytest.raises(BrokenError):
            engine.generate("abc", explain=fail, **OPTIONS)

    def whole() -> None:
        ready.wait(PATIENCE)
        assert engine.generate("def", **OPTIONS).token_ids == known

    known = alone("def")
    for work in (refused, broken, whole) * 2:
        threads.start(work)
    threads.join()


def test_a_text_beside_a_session(engine: Engine, alone: Callable[[str], list[int]]) -> None:
    with Session(engine, max_tokens=20, ignore_eos=True, temperature=0) as session:
        answer = session.send("abc")
        for _event in answer:
            break
        assert engine.generate("def", **OPTIONS).token_ids == alone("def")
        assert len(answer.result().written.tokens) == 20  # type: ignore[union-attr]


def test_texts_beside_a_session_go_on_from_what_those_before_have_learnt(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], AdaptivePolicy.__init__

    def counted(self: AdaptivePolicy, *args: Any, **options: Any) -> None:
        made.append(self)
        make(self, *args, **options)

    monkeypatch.setattr(AdaptivePolicy, "__init__", counted)
    with load(tiny_path, str(tiny_path), threads=1, context=128) as engine, Session(engine):
        for _ in range(3):
            engine.generate("def", **OPTIONS)
        assert len(made) == 1
        engine.generate(["abc", "def", "ab"], **OPTIONS)
        engine.generate(["abc", "def", "ab"], **OPTIONS)
        assert len(made) == 3


@pytest.mark.parametrize(
    ("action", "line"),
    [
        (lambda engine, running: running.close(), "a text cannot be closed in the middle"),
        (lambda engine, running: next(running), "a text cannot be read in the middle"),
        (lambda engine, running: engine.close(), "an engine cannot be closed in the middle"),
        (lambda engine, running: engine.switch(draft="none"), "an engine cannot be switched"),
        (lambda engine, running: engine.generate(["a", "b"]), "several texts cannot be written in"),
        (
            lambda engine, running: asyncio.run(engine.agenerate("a")),
            "event loop cannot be written",
        ),
        (lambda engine, running: engine.astream("a"), "event loop cannot be written"),
        (lambda engine, running: engine.generate("def", **OPTIONS), None),
    ],
)
def test_what_an_explain_may_do(
    action: Callable[[Engine, Generation], Any],
    line: str | None,
    tiny_path: Path,
    alone: Callable[[str], list[int]],
) -> None:
    """It is called in the middle of a step, whose text and engine must go on."""
    begun: list[Generation] = []

    def explain(_decision: object) -> None:
        if len(begun[0].tokens) >= 2:  # not each step asks, and one may write several
            action(engine, begun[0])

    with load(tiny_path, str(tiny_path), threads=1, context=128) as engine:
        begun.append(engine.stream("abc", explain=explain, **OPTIONS))
        if line:
            with pytest.raises(LocalspecError, match=line):
                begun[0].result()
        else:
            assert begun[0].result().token_ids == alone("abc")
        assert engine.generate("abc", **OPTIONS).token_ids == alone("abc")


def test_closing_the_engine_ends_texts_that_wait(tiny_path: Path, no_room: None) -> None:
    engine, threads = load(tiny_path, "none", threads=1, context=128), Threads()
    running = engine.stream("abc", **OPTIONS)
    next(running)

    def wait() -> None:
        with pytest.raises(LocalspecError, match=r"^the engine was closed; load another with"):
            engine.generate("def", **OPTIONS)

    threads.start(wait)
    engine.close()
    threads.join()
    assert running.stop_reason == "cancelled"


def test_an_engine_that_is_closed_while_a_text_waits_for_a_slot(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is made of models that are gone."""
    engine, threads = load(tiny_path, "none", threads=1, context=128, texts=2), Threads()
    engine.slots.open()
    usual = engine.slots.scheduler.exclusive

    @contextmanager
    def exclusive() -> Iterator[None]:
        monkeypatch.undo()
        threads.start(engine.close)
        while engine._forgotten.alive:
            engine.slots.scheduler.wait(0.01)
        with usual():
            yield

    monkeypatch.setattr(engine.slots.scheduler, "exclusive", exclusive)
    with pytest.raises(LocalspecError, match=r"^the engine was closed; load another with"):
        engine.generate("abc")
    threads.join()


def test_a_closed_engine_says_so(tiny_path: Path) -> None:
    engine = load(tiny_path, "none", threads=1, context=128)
    assert "closed" not in repr(engine)
    with Session(engine) as session:
        engine.close()
        for use in (
            lambda: Session(engine),
            lambda: session.send("abc"),
            lambda: session.switch(temperature=0),
            lambda: session.written,
            session.fork,
            session.reset,
            lambda: engine.generate("abc"),
            lambda: engine.generate(["abc", "def"]),
            lambda: engine.stream("abc"),
            lambda: asyncio.run(engine.agenerate("abc")),
            lambda: engine.tokenize("abc"),
            lambda: engine.detokenize([5]),
            engine.warm_up,
        ):
            with pytest.raises(LocalspecError, match=r"^the engine was closed; load another with"):
                use()
    assert repr(engine) == f"<Engine {tiny_path.stem}, closed>"


def test_a_switch_ends_all_texts_and_frees_their_slots(
    tiny_path: Path, alone: Callable[[str], list[int]]
) -> None:
    with load(tiny_path, "none", threads=1, context=128, kv_type="f32") as engine:
        running = [engine.stream(prompt, **OPTIONS) for prompt in PROMPTS]
        for each in running:
            next(each)
        engine.switch(draft="suffix")
        assert [each.stop_reason for each in running] == ["cancelled"] * len(PROMPTS)
        for each in running:
            for read in (next, Generation.result):
                with pytest.raises(LocalspecError, match=r"switched .*before this text had ended"):
                    read(each)
            assert len(each.tokens) == 1
        assert engine.slots.further == []
        assert engine.generate("abc", **OPTIONS).token_ids == alone("abc")


def test_a_model_is_planned_once_nothing_is_left_of_the_one_before(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []

    def load_again(config: EngineConfig) -> LoadedModels:
        before = engine.slots.own.target
        left.extend([before.model._handle, before.context._handle, *before.memory.marks])
        return load_models(config)

    with load(tiny_model("mamba"), "none", threads=1, context=128) as engine:
        engine.generate("abc", **OPTIONS)
        assert engine.slots.own.target.memory.marks
        monkeypatch.setattr("localspec.engine.engine.load_models", load_again)
        engine.switch(model=tiny_path)
    assert left == [None, None]


@pytest.mark.parametrize("change", [lambda engine: engine.switch(draft="suffix"), Engine.close])
@pytest.mark.parametrize("prompt", ["abc", ["abc", "def"]])
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_text_that_another_thread_ends_is_an_error(
    tiny_path: Path, change: Callable[[Engine], None], prompt: Any, in_loop: bool
) -> None:
    """Its caller has not cancelled it, and would take it for a whole one."""
    begun = threading.Event()

    class Slow(threading.Event):
        def is_set(self) -> bool:  # asked in each step
            begun.set()
            sleep(0.005)
            return False

    options = {**OPTIONS, "max_tokens": 100, "cancel": Slow()}

    def write() -> None:
        with pytest.raises(LocalspecError, match=r"before this text had ended|was closed"):
            asyncio.run(write_async()) if in_loop else engine.generate(prompt, **options)

    async def write_async() -> None:
        await engine.agenerate(prompt, **options)

    with load(tiny_path, "none", threads=1, context=128) as engine:
        threads = Threads()
        threads.start(write)
        assert begun.wait(PATIENCE)
        change(engine)
        threads.join()


def test_an_engine_that_is_forgotten_is_freed(tiny_path: Path) -> None:
    engine = load(tiny_path, "suffix", threads=1, context=128, texts=2)
    model, cache = engine.model, engine.slots.own.target
    left = [engine.stream(each, **OPTIONS) for each in PROMPTS[:2]]
    next(left[1])
    kept = [engine, *left]
    kept.append(kept)  # type: ignore[arg-type]
    with pytest.warns(ResourceWarning, match="was forgotten; close it"):
        del engine, left, kept
        gc.collect()
    for freed in (lambda: model.handle, lambda: cache.context.handle):
        with pytest.raises(LocalspecError, match="closed"):
            freed()


def test_what_uses_an_engine_keeps_it(
    tiny_path: Path, alone: Callable[[str], list[int]], recwarn: pytest.WarningsRecorder
) -> None:
    options: dict[str, Any] = {"threads": 1, "context": 128, "kv_type": "f32"}
    stream = load(tiny_path, "none", **options).stream("abc", **OPTIONS)
    session = Session(load(tiny_path, "none", **options), **OPTIONS)
    answer = session.send("def")
    gc.collect()
    assert stream.result().token_ids == alone("abc")
    assert len(answer.result().written.tokens) == LENGTH
    assert load(tiny_path, "none", **options).generate("abc", **OPTIONS).token_ids == alone("abc")
    assert len(recwarn) == 1  # of the engine that is forgotten after its only text
    session.close()
    with pytest.warns(ResourceWarning, match="was forgotten"):
        del stream, answer, session
        gc.collect()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_is_told_that_it_has_no_threads() -> None:
    """In a process of its own: a fork of this one would have the threads of all tests."""
    code = """
        import os, warnings
        import localspec

        warnings.simplefilter("ignore", DeprecationWarning)
        engine = localspec.load(threads=2, context=256)
        stream = engine.stream("abc", max_tokens=20, ignore_eos=True)
        next(stream)
        session = localspec.Session(engine)
        uses = [
            lambda: engine.generate("abc"),
            lambda: engine.generate(["abc", "def"]),
            lambda: engine.stream("abc"),
            lambda: next(stream),
            lambda: session.send("abc").result(),
            lambda: localspec.Session(engine),
        ]
        if not (child := os.fork()):
            failed = 1
            try:
                for use in uses:
                    try:
                        use()
                    except localspec.LocalspecError as error:
                        assert "before the fork" in str(error), error
                    else:
                        raise AssertionError("it was used")
                engine.close()
                failed = 0
            finally:
                os._exit(failed)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(stream.result().token_ids) == 20
        session.close()
        engine.close()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE * 3,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("user", ["localspec.Session(engine)", "engine.stream('a')"])
def test_the_program_ends_where_users_were_forgotten(tiny_path: Path, user: str) -> None:
    """In a module, which is cleared while the interpreter is torn down."""
    code = """
        import sys, types, localspec
        from localspec.loading import places

        places._place_beside = lambda *_: None  # each text has a cache of its own
        engine = localspec.load(sys.argv[1], "none", context=128, threads=1)
        sys.modules["other"] = other = types.ModuleType("other")
        other.first, other.second = (eval(sys.argv[2]) for _ in range(2))
        assert len(engine.slots.further) == 1
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(tiny_path), user],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE * 3,
    )
    assert (done.returncode, done.stderr) == (0, "")


class Streams(RuleBasedStateMachine):
    """Streams of one thread are begun, read, closed and forgotten in any order."""

    engine: Engine
    alone: Callable[[str], list[int]]

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, Generation]] = []

    @precondition(lambda self: len(self.open) < 5)
    @rule(prompt=st.sampled_from(PROMPTS))
    def begin(self, prompt: str) -> None:
        self.open.append((prompt, self.engine.stream(prompt, **OPTIONS)))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 4), tokens=st.integers(1, LENGTH + 1))
    def read(self, which: int, tokens: int) -> None:
        _, running = self.open[which % len(self.open)]
        for _ in range(tokens):
            next(running, None)

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 4), close=st.booleans())
    def leave(self, which: int, close: bool) -> None:
        prompt, running = self.open.pop(which % len(self.open))
        if close:
            running.close()
        self.is_right(prompt, running)

    @rule(prompt=st.sampled_from(PROMPTS))
    def generate(self, prompt: str) -> None:
        assert self.engine.generate(prompt, **OPTIONS).token_ids == type(self).alone(prompt)

    def is_right(self, prompt: str, running: Generation) -> None:
        ids = [token.id for token in running.tokens]
        assert ids == type(self).alone(prompt)[: len(ids)]
        assert running.stop_reason in (None, "cancelled", "length")

    def teardown(self) -> None:
        for prompt, running in self.open:
            running.result()
            self.is_right(prompt, running)
            assert len(running.tokens) == LENGTH
        running = None  # type: ignore[assignment]
        self.open.clear()
        self.engine.slots._leave_unused()
        assert self.engine.slots.further == []


def test_streams_in_any_order(engine: Engine, alone: Callable[[str], list[int]]) -> None:
    known = {prompt: alone(prompt) for prompt in PROMPTS}
    machine = type(
        "StreamsOfOne", (Streams,), {"engine": engine, "alone": staticmethod(known.__getitem__)}
    )
    run_machine(machine, examples=15, steps=15, phases=[Phase.generate])
