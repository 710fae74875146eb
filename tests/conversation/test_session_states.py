"""Whatever is done to a conversation, its caches are those of a fresh process given the same text.

After every step the next greedy tokens, drafts and all, are compared with those that plain decoding
from an empty cache gives. Logits differ by the rounding of floats at most;
where two tokens are that near a tie, either is right.
"""

import os
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
from fakes.tiny import TURNS, write_tiny
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from localspec.conversation.events import Ended
from localspec.conversation.session import Session
from localspec.engine.engine import Engine, load
from localspec.engine.state_store import StateStore
from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama import context_params
from localspec.llama.context import Context
from localspec.llama.rollback import Memory, Rollback, _Marks
from localspec.llama.sequence import KVSequence
from localspec.llama.state import State

EXAMPLES = int(os.environ.get("LOCALSPEC_EXAMPLES", "20"))
AHEAD = 20
# What a sliding window has left behind is overwritten only in longer texts.
CONTEXTS = {"llama": 160, "gemma3": 480, "mamba": 160, "qwen35": 160}
# Logits of passes of different widths differ by 1e-5 here; those of a wrong state by 1 and more.
NEAR_TIE = 1e-3
KINDS = {
    "llama": Rollback.PARTIAL,
    "gemma3": Rollback.PARTIAL,
    "mamba": Rollback.FULL,
    "qwen35": Rollback.BOUNDED,
}
DRAFTS = ["none", "suffix", "lookup", "ngram", "model", "suffix,model"]
TEXTS = st.text(alphabet="abcdefnrst ", min_size=1, max_size=24)


@cache
def folder() -> Path:
    return Path(mkdtemp())


@cache
def model(family: str) -> Path:
    return write_tiny(folder() / f"{family}.gguf", family, quantised=False, template=TURNS)


def drafter(family: str) -> Path:
    """A model of the same vocabulary that often agrees: the one without its output's last bits."""
    return model(family)


def draft(family: str, name: str) -> str:
    return name.replace("model", str(drafter(family)))


@cache
def engine(family: str, *, fresh: bool, reproducible: bool) -> Engine:
    """Two of each kind: one for the sessions, one for plain decoding from nothing."""
    options = {"threads": 1, "context": CONTEXTS[family], "kv_type": "f32"}
    plain = {"reproducible": True} if reproducible else {"flash_attention": False}
    with pytest.MonkeyPatch.context() as patch:
        # A cache with a sliding window holds a chunk more than the window, at least 256 tokens.
        patch.setattr(context_params, "CHUNK", 64)
        patch.setattr(Context, "chunk", 64)
        return load(model(family), "none" if fresh else "suffix", **options, **plain)


class Chat(RuleBasedStateMachine):
    """Everything that can be done to a session."""

    family: str
    reproducible = False

    def __init__(self) -> None:
        super().__init__()
        self.engine = engine(self.family, fresh=False, reproducible=self.reproducible)
        self.fresh = engine(self.family, fresh=True, reproducible=self.reproducible)
        self.store = StateStore(folder() / "states")
        self.sessions: list[Session] = []

    @initialize(
        system=st.one_of(st.none(), TEXTS),
        when_full=st.sampled_from(["stop", "drop"]),
        temperature=st.sampled_from([0.0, 1.0]),
        draft_name=st.sampled_from(DRAFTS),
    )
    def begin(
        self, system: str | None, when_full: str, temperature: float, draft_name: str
    ) -> None:
        self.session = Session(
            self.engine,
            system=system,
            when_full=when_full,  # type: ignore[arg-type]
            temperature=temperature,
            seed=1,
            max_tokens=12,
        )
        self.sessions.append(self.session)
        self.session.switch(draft=draft(self.family, draft_name))

    def answer(self, ask: Callable[[], Iterator[object]], stop_after: int | None) -> None:
        """Ask, and stop after so many events; a conversation that is full begins anew."""
        try:
            events = ask()
        except InvalidValueError:
            self.session.reset()
            return
        for count, event in enumerate(events):
            if count == stop_after:
                self.session.stop()
            assert not isinstance(event, Ended) or event.turn in (None, self.session.turns[-1])

    @rule(text=TEXTS, stop_after=st.one_of(st.none(), st.integers(0, 9)))
    def send(self, text: str, stop_after: int | None) -> None:
        self.answer(lambda: self.session.send(text), stop_after)

    @rule(text=TEXTS, events=st.integers(0, 6))
    def abandon(self, text: str, events: int) -> None:
        """Nobody closes the generator."""
        try:
            answer = self.session.send(text)
        except InvalidValueError:
            self.session.reset()
            return
        for _, _event in zip(range(events), answer, strict=False):
            pass

    # What is drawn may not depend on what was generated: a near tie can make that another text.

    @rule(stop_after=st.one_of(st.none(), st.integers(0, 9)))
    def regenerate(self, stop_after: int | None) -> None:
        if self.session.turns:
            self.answer(self.session.regenerate, stop_after)

    @rule(which=st.integers(0, 99), text=TEXTS)
    def edit(self, which: int, text: str) -> None:
        asked = [n for n, turn in enumerate(self.session.turns) if turn.role == "user"]
        if asked:
            self.answer(lambda: self.session.edit(asked[which % len(asked)], text), None)

    @rule(which=st.integers(0, 99))
    def choose(self, which: int) -> None:
        if every := list(self.session.conversation.everything()):
            self.session.choose(every[which % len(every)])

    @rule(text=st.text(alphabet="abcdef", min_size=30, max_size=90))
    def overflow(self, text: str) -> None:
        before, context = self.session.turns, self.engine.context
        try:
            answer = self.session.send(text * -(-context // 160), max_tokens=context)
        except InvalidValueError as error:
            assert "the context holds" in str(error)
            assert self.session.turns == before
            return
        *_, ended = answer
        assert isinstance(ended, Ended)
        assert ended.gauge.used <= ended.gauge.size

    @rule(name=st.sampled_from(DRAFTS))
    def switch(self, name: str) -> None:
        self.session.switch(draft=draft(self.family, name))

    @precondition(lambda self: len(self.sessions) < 3)
    @rule()
    def fork(self) -> None:
        """The fork goes on; the other one is come back to."""
        self.session = self.session.fork()
        self.sessions.append(self.session)

    @precondition(lambda self: len(self.sessions) > 1)
    @rule()
    def other(self) -> None:
        self.session = self.sessions[(self.sessions.index(self.session) + 1) % len(self.sessions)]

    @rule()
    def restart(self) -> None:
        """The caches go to the disk, are emptied, and come back."""
        assert self.session.save_state("here", self.store) is None
        for cache_ in self.session._slot._caches():
            cache_.sequence.truncate(0)
        assert self.session.load_state("here", self.store) is None

    @invariant()
    def goes_on_like_a_fresh_process(self) -> None:
        if not self.sessions or not self.session.turns:
            return
        self.session._end_answer()
        tokens = list(self.session.written.tokens)
        count = min(AHEAD, self.engine.context - 10 - len(tokens))
        if count < 1 or not tokens:
            return
        options = {"temperature": 0.0, "max_tokens": count, "ignore_eos": True}
        settings_, _ = self.session._settings(options)  # type: ignore[arg-type]
        going_on = self.session._slot.start(tokens, settings_).result().token_ids
        self.fresh.slot.target.truncate(0)
        expected = self.fresh.generate(tokens, depth=0, **options).token_ids  # type: ignore[arg-type]
        if going_on != expected:
            assert not self.reproducible or KINDS[self.family] is not Rollback.PARTIAL
            self.must_be_a_near_tie(tokens, going_on, expected)

    def must_be_a_near_tie(
        self, tokens: list[int], going_on: list[int], expected: list[int]
    ) -> None:
        at = next(i for i, (a, b) in enumerate(zip(going_on, expected, strict=True)) if a != b)
        target = self.fresh.slot.target
        target.truncate(0)
        logits: np.ndarray = target.extend([*tokens, *expected[:at]])
        assert logits[expected[at]] - logits[going_on[at]] < NEAR_TIE, (at, going_on, expected)

    def teardown(self) -> None:
        for session in self.sessions:
            session.close()


def machine(kind: str, *, exact: bool) -> type[Chat]:
    return type(f"Chat{kind}", (Chat,), {"family": kind, "reproducible": exact})


def run(kind: str, *, exact: bool, examples: int, phases: Collection[Phase] = tuple(Phase)) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine(kind, exact=exact),
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            derandomize=True,
            phases=phases,
        ),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_after_every_step(kind: str) -> None:
    run(kind, exact=False, examples=EXAMPLES)


def one_more(shared: Callable[..., int]) -> Callable[..., int]:
    """Takes one token too many for common."""
    return lambda self, tokens: min(len(self.tokens), shared(self, tokens) + 1)


def without_data(restore: Callable[..., bool]) -> Callable[..., bool]:
    """Goes on from what lies in the cache, whatever the state."""

    def pretend(self: KVSequence, state: State) -> bool:
        self.truncate(0)
        if state.tokens:
            self.extend([5] * len(state.tokens))
        self.tokens = list(state.tokens)
        return True

    return pretend


MUTANTS: list[tuple[str, type, str, Callable[[Any], Any]]] = [
    ("llama", KVSequence, "shared", one_more),
    ("llama", KVSequence, "restore", without_data),
    ("gemma3", Memory, "_can_remove_from", lambda _: lambda self, length: True),
    ("mamba", Memory, "_restore", lambda _: lambda self, saved: self._remove_from(saved) or True),
    ("mamba", _Marks, "drop_beyond", lambda _: lambda self, length: None),
    ("qwen35", Memory, "_restore", lambda _: lambda self, saved: True),
]


@pytest.mark.parametrize(("kind", "owner", "name", "mutate"), MUTANTS)
def test_mutants_are_caught(
    kind: str,
    owner: type,
    name: str,
    mutate: Callable[[Any], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine.cache_clear()
    monkeypatch.setattr(owner, name, mutate(getattr(owner, name)))
    # Flaky is what Hypothesis calls caches that spoil the examples after them.
    with pytest.raises((AssertionError, LocalspecError, Flaky)):
        run(kind, exact=False, examples=200, phases=[Phase.generate])
    monkeypatch.undo()
    engine.cache_clear()


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_bit_for_bit(kind: str) -> None:
    run(kind, exact=True, examples=max(10, EXAMPLES // 5))
