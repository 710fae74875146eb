"""Several texts of one engine, each written by a thread: each is the text that it is alone.

Without company a text's digits depend on the width of its passes at most; beside others also on
where its cells lie. So a text may differ from the one it is alone where two tokens are nearly tied:
each difference is certified as such, and counted.
"""

import threading
from collections.abc import Callable, Iterator
from functools import cache
from time import monotonic, sleep
from typing import Any

import numpy as np
import pytest
from fakes.company import PATIENCE, Threads, run_together
from fakes.prompts import PROMPTS
from fakes.pycode import load
from fakes.stateful import examples, run_machine
from fakes.tiny import tiny_model
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from localspec.control.adaptive import AdaptivePolicy
from localspec.control.fixed_depth import FixedDepth
from localspec.control.row_budget import RowShare
from localspec.conversation.session import Session
from localspec.engine.engine import Engine
from localspec.engine.generation import Result
from localspec.engine.slot import Slot
from localspec.errors import DrafterMismatchError, InvalidValueError
from localspec.generation_config import GenerationConfig
from localspec.llama import compute_thread
from localspec.llama.context import Context
from localspec.sampling.noise import Noise
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits

TEXTS, LENGTH = 4, 40
KINDS = ["llama", "gemma3", "mamba", "qwen35"]
# Logits of a text beside others differ by so much; those of a wrong state by 1 and more.
NEAR_TIE = {"bundled": 0.7, "llama": 5e-3, "gemma3": 5e-3, "mamba": 5e-3, "qwen35": 5e-3}


def loaded(kind: str, draft: Any) -> Engine:
    """An engine of a bundled or a tiny pair. Without flash attention nothing would be shared."""
    options: dict[str, Any] = {"threads": 1, "context": 256}
    if kind == "bundled":
        pair = load(draft="none", **options)
        path = pair.model.path
        pair.close()
        small = path.with_name("pycode-4m-q4_0.gguf")
        return load(path, str(small) if draft == "model" else draft, **options)
    path = tiny_model(kind)
    return load(path, str(path) if draft == "model" else draft, kv_type="f32", **options)


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[[str, str], Engine]]:
    made: dict[tuple[str, str], Engine] = {}

    def get(kind: str, draft: str) -> Engine:
        if (kind, draft) not in made:
            made[kind, draft] = loaded(kind, draft)
        return made[kind, draft]

    yield get
    for engine in made.values():
        engine.close()


def prompts_of(engine: Engine, kind: str) -> list[list[int]]:
    if kind == "bundled":
        return [engine.model.tokenize(text) for text in PROMPTS[:TEXTS]]
    rng = np.random.default_rng(3)
    return [[1, *rng.integers(259, 275, 9 + 5 * i).tolist()] for i in range(TEXTS)]


def config(number: int, temperature: float, **options: Any) -> GenerationConfig:
    # Without truncation, scores have no cliffs, so that near-ties can be certified.
    whole = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0}
    return GenerationConfig.of(
        temperature=temperature,
        seed=number,
        max_tokens=LENGTH,
        ignore_eos=True,
        logprobs=False,
        **whole,
        **options,
    )


def written(
    slots: list[Slot], prompts: list[list[int]], configs: list[GenerationConfig]
) -> list[Result]:
    """What the slots write at the same time."""
    results: dict[int, Result] = {}

    def write(number: int) -> None:
        results[number] = slots[number].start(prompts[number], configs[number]).result()

    run_together(slots[0].lock, len(slots), write)
    return [results[number] for number in range(len(slots))]


def certify(
    alone: Engine, prompt: list[int], settings_: GenerationConfig, written: list[int], kind: str
) -> int:
    """The text parts from the one it is alone at a near-tie, or not at all; return how often."""
    expected = alone.slots.own.start(prompt, settings_).result().token_ids
    if expected == written:
        return 0
    at = next(i for i, (a, b) in enumerate(zip(expected, written, strict=True)) if a != b)
    alone.slots.own.target.truncate(0)
    logits = alone.slots.own.target.extend([*prompt, *expected[:at]]).astype(np.float64)
    both = np.array([expected[at], written[at]])
    scores, scale = logits[both], alone.slots.own.params(settings_).temperature or 1.0
    if settings_.params({}).temperature:
        scores = scores / scale + Noise(settings_.seed).gumbel(len(prompt) + at, both)
    assert abs(scores[0] - scores[1]) < NEAR_TIE[kind] / scale, (kind, at, scores)
    return 1


@pytest.mark.parametrize("draft", ["none", "suffix", "model"])
@pytest.mark.parametrize("kind", ["bundled", *KINDS])
def test_each_text_is_the_one_it_is_alone(
    engines: Callable[[str, str], Engine], kind: str, draft: str
) -> None:
    engine, alone = engines(kind, draft), engines(kind, "none")
    slots = [engine.slots.open() for _ in range(TEXTS)]
    prompts, ties, shared = prompts_of(engine, kind), 0, 0
    for temperature in (0.0, 0.8):
        depth: dict[str, Any] = {} if draft == "none" else {"depth": 3}
        configs = [config(number, temperature, **depth) for number in range(TEXTS)]
        results = written(slots, prompts, configs)
        for number, result in enumerate(results):
            alone_config = config(number, temperature)
            ties += certify(alone, prompts[number], alone_config, result.token_ids, kind)
            stats = result.stats
            assert len(result.token_ids) == LENGTH
            assert len(stats.widths) == len(stats.decode_rows) == stats.steps
            assert all(a <= b for a, b in zip(stats.widths, stats.decode_rows, strict=True))
            beside = zip(stats.widths, stats.decode_rows, strict=True)
            assert stats.shared_steps == sum(own < rows for own, rows in beside)
            seconds = stats.seconds
            assert min(seconds.generate, seconds.prompt, seconds.waited) >= 0
            shared += stats.shared_steps
    for slot in slots:
        engine.slots.leave(slot)
    assert shared > 0
    assert ties <= TEXTS


def test_drafters_are_told_of_rests_while_the_next_pass_is_computed(
    engines: Callable[[str, str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of three steps of each text may be rests; by another thread than those of the texts."""
    engine, alone, ties = engines("bundled", "suffix"), engines("bundled", "none"), 0
    slots = [engine.slots.open() for _ in range(TEXTS)]
    prompts, usual, steps = prompts_of(engine, "bundled"), AdaptivePolicy.look, dict[int, int]()
    looks = list[str]()

    def look(self: AdaptivePolicy, limit: Limit) -> None:
        dummy = threading.current_thread().name.startswith("Dummy")  # none that Python has started
        looks.append("other" if dummy else "own")
        usual(self, limit)

    def rests(self: RowShare, others: Any) -> bool:
        steps[id(self)] = steps.get(id(self), 0) + 1
        self.resting = bool(others) and steps[id(self)] % 3 > 0
        return self.resting

    def decode(self: Context, passes: Any) -> Any:
        """As slow as a large model's."""
        deadline = monotonic() + PATIENCE
        while any(each.aside and each.aside._work for each in passes) and monotonic() < deadline:
            sleep(0.001)
        return usual_decode(self, passes)

    usual_decode = Context.decode
    monkeypatch.setattr(Context, "decode", decode)
    monkeypatch.setattr(AdaptivePolicy, "look", look)
    monkeypatch.setattr(RowShare, "rests", rests)
    configs = [config(number, 0.8) for number in range(TEXTS)]
    results = written(slots, prompts, configs)
    for number, (slot, result) in enumerate(zip(slots, results, strict=True)):
        ties += certify(alone, prompts[number], configs[number], result.token_ids, "bundled")
        [suffix] = slot.loaded.drafter_set.drafters
        assert suffix._text == [*prompts[number], *result.token_ids]  # type: ignore[attr-defined]
        drawn = suffix.drawn_from(suffix._text)  # type: ignore[attr-defined]
        assert len(drawn) == len(prompts[number]) + LENGTH
        engine.slots.leave(slot)
    assert looks.count("other") > TEXTS
    assert ties <= TEXTS


def test_the_shares_of_a_decode_are_its_time(
    engines: Callable[[str, str], Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engines("bundled", "none")
    slots = [engine.slots.open() for _ in range(TEXTS)]
    usual, rows = Context.decode, list[list[Any]]()

    def decode(self: Context, passes: Any) -> Any:
        rows.append(usual(self, passes))
        return rows[-1]

    monkeypatch.setattr(Context, "decode", decode)
    monkeypatch.setattr(FixedDepth, "padded", lambda self, rows: rows + 3)
    written(slots, prompts_of(engine, "bundled"), [config(n, 0.0) for n in range(TEXTS)])
    assert any(len(decoded) > 1 for decoded in rows)
    assert any(decoded[-1].padding for decoded in rows if len(decoded) > 1)
    for decoded in rows:
        assert sum(scores.share for scores in decoded) == pytest.approx(decoded[0].seconds)
        # Texts with as many rows pay as much, also the one that carries the padding.
        if len({len(scores.logits) for scores in decoded}) == 1 and decoded[-1].padding:
            assert len({scores.share for scores in decoded}) == 1
    for slot in slots:
        engine.slots.leave(slot)


class Sessions(RuleBasedStateMachine):
    """Sessions of one engine, written by threads, that are stopped, closed and begun at random."""

    kind: str

    def __init__(self) -> None:
        super().__init__()
        self.engine, self.alone = engine_of(self.kind, "suffix"), engine_of(self.kind, "none")
        self.sessions: list[Session] = []

    @initialize()
    def begin_two(self) -> None:
        self.begin()
        self.begin()

    @precondition(lambda self: len(self.sessions) < TEXTS)
    @rule()
    def begin(self) -> None:
        self.sessions.append(
            Session(self.engine, temperature=0.0, max_tokens=12, seed=1, ignore_eos=True, raw=True)
        )

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(which=st.integers(0, 9))
    def close(self, which: int) -> None:
        self.sessions.pop(which % len(self.sessions)).close()

    @precondition(lambda self: len(self.sessions) > 1)
    @rule(which=st.integers(0, 9))
    def abandon(self, which: int) -> None:
        self.sessions.pop(which % len(self.sessions))

    @precondition(lambda self: len(self.sessions) < TEXTS)
    @rule(which=st.integers(0, 9))
    def fork(self, which: int) -> None:
        self.sessions.append(self.sessions[which % len(self.sessions)].fork())

    @rule(
        acts=st.lists(
            st.tuples(
                st.sampled_from(["send", "send", "regenerate", "edit", "abandon", "close"]),
                st.text(alphabet="abcdef ", min_size=1, max_size=30),
                st.one_of(st.none(), st.integers(0, 9)),
            ),
            min_size=TEXTS,
            max_size=TEXTS,
        )
    )
    def write(self, acts: list[tuple[str, str, int | None]]) -> None:
        """Every session does something in a thread of its own; then all are right."""
        threads = Threads()
        for session, (act, text, stop_after) in zip(self.sessions, acts, strict=False):
            threads.start(self.act, session, act, text, stop_after)
        threads.join()
        self.all_go_on_like_alone()

    def act(self, session: Session, act: str, text: str, stop_after: int | None) -> None:
        answer = self.answer(session, act, text)
        if answer is None:
            return
        for count, _event in enumerate(answer):
            if count == stop_after:
                if act == "abandon":
                    return
                if act == "close":
                    threading.Thread(target=answer.close).start()
                session.stop()

    def answer(self, session: Session, act: str, text: str) -> Any:
        try:
            if act == "regenerate" and session.turns:
                return session.regenerate()
            if act == "edit" and session.turns:
                return session.edit(0, text)
            return session.send(text)
        except InvalidValueError:
            session.reset()
            return None

    def all_go_on_like_alone(self) -> None:
        """The next tokens of all texts, written at once, are those of an engine for each."""
        texts = []
        for session in self.sessions:
            session._end_answer()
            tokens = list(session.written.tokens) if session.turns else [1, 260]
            texts.append(tokens[: self.engine.context - LENGTH - 10])
        configs = [config(number, 0.0) for number in range(len(texts))]
        slots = [session._slot for session in self.sessions]
        for text, settings_, result in zip(
            texts, configs, written(slots, texts, configs), strict=True
        ):
            self.alone.slots.own.target.truncate(0)
            certify(self.alone, text, settings_, result.token_ids, self.kind)

    def teardown(self) -> None:
        for session in self.sessions:
            session.close()
        scheduler = self.engine.slots.scheduler
        assert not (scheduler._waiting or scheduler._busy or scheduler._steps)


engine_of = cache(loaded)


@pytest.mark.parametrize("kind", KINDS)
def test_sessions_in_threads(kind: str) -> None:
    machine = type(f"SessionsOf{kind}", (Sessions,), {"kind": kind})
    # Threads take turns as they like, so an example may not fail twice.
    run_machine(machine, examples=examples(6), steps=8, phases=[Phase.generate])


@pytest.mark.parametrize("own", [False, True])
def test_a_session_abandoned_in_the_compute_thread(own: bool) -> None:
    """The garbage collector may end it there, while the lock's owner waits for that thread.

    own: the thread that computes one model's passes alone.
    """
    with loaded("llama", "none") as engine:
        first = engine.slots.open()
        sessions = [Session(engine)]
        places = len(engine.slots.further)
        threads = Threads()

        def decode() -> None:
            with engine.slots.lock:
                compute_thread.start()
                thread = compute_thread.OwnThread() if own else None
                compute_thread.run(sessions.clear, thread)

        threads.start(decode)
        threads.join()
        assert engine.slots.open() is not first
        assert len(engine.slots.further) == places


# Trees.


class Branching:
    """Proposes trees: what the text's last tokens were followed by, and other tokens beside it."""

    name = "branching"

    def __init__(self, parents: list[int], branches: int) -> None:
        self.traits = Traits(cheap=True, branches=branches)
        self.text: list[int] = []
        self._parents = parents

    def begin(self, tokens: Any) -> None:
        self.text = list(tokens)

    def observe(self, outcome: Outcome) -> None:
        self.text += outcome.tokens

    def propose(self, limit: Limit) -> Draft:
        """Half of the trees hold the next tokens of a text that is known, if there is one."""
        tokens = [(self.text[-1] + 7 * node) % 250 + 3 for node in range(len(self._parents))]
        for node, parent in enumerate(self._parents):
            known = self.following(self.text, 1 + self.depth(parent))
            if node % 2 == 0 and known is not None:
                tokens[node] = known
        return Draft(tokens, self._parents)

    def depth(self, node: int) -> int:
        return 0 if node == ROOT else 1 + self.depth(self._parents[node])

    def following(self, text: list[int], after: int) -> int | None:
        known = KNOWN.get("text", [])
        place = len(text) + after - 1
        return known[place] if known[: len(text)] == text and place < len(known) else None


KNOWN: dict[str, list[int]] = {}
TREE = [ROOT, 0, 1, ROOT, 3, 1, 0]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_tree_drafter_from_end_to_end(temperature: float) -> None:
    """The text is the plain one; and so beside another text."""
    depth = {"depth": len(TREE)}
    with loaded("bundled", "none") as plain, loaded("bundled", Branching(TREE, 4)) as engine:
        assert engine.slots.own.target.branches == 4
        prompt = prompts_of(plain, "bundled")[0]
        settings_ = config(1, temperature)
        expected = plain.slots.own.start(prompt, settings_).result().token_ids
        KNOWN["text"] = [*prompt, *expected]
        result = engine.slots.own.start(prompt, config(1, temperature, **depth)).result()
        ties = certify(plain, prompt, settings_, result.token_ids, "bundled")
        assert ties or result.stats.accepted > LENGTH // 3
        assert result.stats.trees_cut == 0
        assert max(result.stats.widths) == 1 + len(TREE)


def test_with_too_few_branches_a_chain_is_verified() -> None:
    with loaded("bundled", "none") as plain, loaded("bundled", Branching(TREE, 2)) as engine:
        prompt = prompts_of(plain, "bundled")[0]
        expected = plain.slots.own.start(prompt, config(1, 0.0)).result().token_ids
        KNOWN["text"] = [*prompt, *expected]
        result = engine.slots.own.start(prompt, config(1, 0.0, depth=len(TREE))).result()
        certify(plain, prompt, config(1, 0.0), result.token_ids, "bundled")
        # Where few tokens are left to write, a tree is cut to what has no further branch.
        assert result.stats.trees_cut >= result.stats.steps - 4
        assert result.stats.accepted > 0


@pytest.mark.parametrize("kind", ["gemma3", "mamba", "qwen35"])
def test_trees_are_refused_where_only_chains_can_be_scored(kind: str) -> None:
    with loaded(kind, Branching(TREE, 4)) as engine:
        prompt = prompts_of(engine, kind)[0]
        with pytest.raises(DrafterMismatchError, match="'branching' proposed a tree of 4 branches"):
            engine.generate(prompt, max_tokens=20, depth=len(TREE), ignore_eos=True)
        # The engine goes on.
        assert engine.generate(prompt, max_tokens=5, depth=0, ignore_eos=True).token_ids


@pytest.mark.parametrize("parents", [[0, 0], [ROOT, 1], [ROOT, 5], [ROOT, -2], [ROOT]])
def test_parents_that_make_no_tree_are_refused(parents: list[int]) -> None:
    class Wrong(Branching):
        def propose(self, limit: Limit) -> Draft:
            return Draft([5, 6], parents)

    said = pytest.raises(
        DrafterMismatchError, match=r"each token has one parent|2 tokens with 1 parents"
    )
    with loaded("bundled", Wrong([ROOT, ROOT], 4)) as engine, said:
        engine.generate("def f(", max_tokens=20, depth=2)


@pytest.mark.parametrize("length", [130, 150, 192, 250, 400])
def test_a_prompt_that_is_read_in_parts_has_the_digits_of_one_that_is_not(length: int) -> None:
    """A server reads it in parts, for others may come; its last part is no narrow pass."""
    prompt = np.random.default_rng(length).integers(5, 4000, length).tolist()
    options: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "logprobs": True}
    with load(draft="none", threads=1, context=512) as alone:
        expected = alone.generate(prompt, **options)
    with load(draft="none", threads=1, context=512, texts=2) as engine:
        slot, _ = engine.slots.open(), engine.slots.open()
        running = slot.start(prompt, GenerationConfig.of(**options))
        assert len([*running.reading()]) > 2
        assert running.result().logprobs == expected.logprobs
