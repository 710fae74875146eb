"""Drafters of every kind of memory on a real worker that is killed: nothing else is lost."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes.mamba import write_mamba
from fakes.workers import real_worker, require_rpc

import localspec
from localspec.engine.state_store import StateStore
from localspec.llama.cached_text import LEAST_SAVED
from localspec.llama.rollback import Rollback
from localspec.llama.rpc_server import RpcServer
from localspec.loading.config import RuntimeConfig
from localspec.loading.thread_change import thread_change
from localspec.models.registry import bundled

QUESTION = "How do I list files by size?"
HEAD = Path(__file__).parents[1] / "trained" / "eagle3-terminal-9m-q8_0.gguf"
# Drafts of any depth, where the last digits of a wide pass may decide, need `reproducible`.
LOADED: dict[str, Any] = {"reproducible": True, "context": 1024}
OPTIONS: dict[str, Any] = {"max_tokens": 24, "seed": 3, "ignore_eos": True, "depth": 3}


DONE = ("fork", "another session", "several texts", "state saved", "state loaded")


@pytest.fixture(autouse=True, scope="module")
def rpc_or_skip(own_cache: None) -> None:
    require_rpc()


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft model with a running state, of the target's vocabulary."""
    return write_mamba(tmp_path_factory.mktemp("mamba") / "mamba.gguf", bundled().target)


@pytest.fixture(scope="module")
def plain() -> list[str]:
    """The answers to the question and to a second one, without drafts."""
    with localspec.load(draft="none", **LOADED) as engine:
        return answers(localspec.Session(engine, **OPTIONS), QUESTION, "And by date?")


@pytest.fixture(params=["mamba", "draft model", "head"])
def drafter(request: pytest.FixtureRequest, mamba: Path) -> Path | None:
    return {"mamba": mamba, "draft model": bundled().drafter, "head": HEAD}[request.param]


@pytest.fixture
def worker() -> Iterator[RpcServer]:
    """A worker that is killed."""
    with real_worker() as worker:
        yield worker


def loaded_there(drafter: Path | None, worker: RpcServer) -> localspec.Engine:
    draft = ["suffix", str(drafter)]
    return localspec.load(draft=draft, draft_device=[str(worker.address)], **LOADED)


def answers(session: localspec.Session, *questions: str) -> list[str]:
    return [session.send(each).result().content for each in questions]


def of_same_turns(session: localspec.Session) -> localspec.Session:
    """Another session with the same conversation, whose caches are empty."""
    turns = [turn.copy() for turn in session.turns]
    conversation = localspec.Conversation(turns)
    return localspec.Session(session.engine, conversation=conversation, **OPTIONS)


def test_a_text_that_takes_a_state_from_there(worker: RpcServer, mamba: Path) -> None:
    """A running state is copied where a text begins: the library is asked before any draft."""
    questions = QUESTION, "And by date?"
    with localspec.load(draft="none", context=1024) as engine:
        plain = answers(localspec.Session(engine, **OPTIONS), *questions)
    draft = ["suffix", str(mamba)]
    with localspec.load(draft=draft, draft_device=[str(worker.address)], context=1024) as engine:
        sequence = engine.drafter_set.sequences["mamba"]
        assert sequence.rollback is Rollback.FULL
        # Drafts of one token leave none in the cache that is not text.
        session = localspec.Session(engine, **{**OPTIONS, "depth": 1})
        assert answers(session, questions[0]) == plain[:1]
        other = of_same_turns(session)
        assert len(sequence.tokens) >= LEAST_SAVED, "there is a state to take"
        worker.close()
        answer = other.send(questions[1])
        events = [*answer]
        assert answer.result().content == plain[1]
        told = [each.line for each in events if isinstance(each, localspec.Notice)]
        lost = engine.slots.own.loaded.drafters.lost
        assert lost and told == [lost]
        # The text beside it does without the drafter, too.
        assert answers(session, questions[1]) == plain[1:]


@pytest.mark.parametrize(
    "what",
    [f"{done}, {known}" for done in DONE for known in ("just gone", "known")],
)
def test_what_is_done_with_texts_goes_on(
    worker: RpcServer,
    tmp_path: Path,
    drafter: Path | None,
    plain: list[str],
    what: str,
) -> None:
    done, known = what.split(", ")
    with loaded_there(drafter, worker) as engine:
        session = localspec.Session(engine, **OPTIONS)
        assert answers(session, QUESTION) == plain[:1]
        if done == "state loaded":
            assert session.save_state("key", StateStore(tmp_path)) is None
        worker.close()
        if known == "known":
            find_it_gone(engine)
        if done == "several texts":
            asked = [[{"role": "user", "content": QUESTION}]] * 3
            several = engine.generate(asked, **OPTIONS)
            assert {tuple(each.token_ids) for each in several} == {tuple(several[0].token_ids)}
            assert several[2].text == plain[0]
            return
        if done == "state saved":
            assert session.save_state("key", StateStore(tmp_path)) is None
        if done in ("state saved", "state loaded"):
            assert session.load_state("key", StateStore(tmp_path)) is None
        elif done == "fork":
            session = session.fork()
        else:
            session = of_same_turns(session)
        assert answers(session, "And by date?") == plain[1:]


def find_it_gone(engine: localspec.Engine) -> None:
    """Write a text that has a use for the drafter."""
    assert list(engine.generate(QUESTION, max_tokens=8, depth=2, seed=1).token_ids)
    assert engine.slots.own.loaded.drafters.lost


@pytest.mark.parametrize("known", [False, True], ids=["just gone", "known to be gone"])
def test_the_threads_of_texts_may_still_change(
    worker: RpcServer, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    def one_thread(_target: object, usual: RuntimeConfig, _busy: float) -> tuple[Any, str]:
        return replace(usual, most_threads=1), "threads: 1"

    monkeypatch.setattr("localspec.loading.thread_change.quicker_threads", one_thread)
    with loaded_there(bundled().drafter, worker) as engine:
        worker.close()
        if known:
            find_it_gone(engine)
        change = thread_change(engine.slots.own.loaded, busy=1.0)
        # A machine that goes away meanwhile leaves the number as it is.
        assert (change is not None) == known
        if change:
            engine.slots.own.replace_models(change.applied_to(engine.slots.own.loaded))
        assert list(engine.generate(QUESTION, max_tokens=8, seed=1).token_ids)


def test_a_target_that_is_gone_is_an_error_of_each(worker: RpcServer, tmp_path: Path) -> None:
    with localspec.load(draft="none", device=[str(worker.address)], context=1024) as engine:
        session = localspec.Session(engine, **OPTIONS)
        assert answers(session, QUESTION)
        worker.close()
        for act in (
            session.fork,
            lambda: session.save_state("key", StateStore(tmp_path)),
            lambda: answers(session, QUESTION),
        ):
            with pytest.raises(localspec.errors.WorkerError):
                act()
