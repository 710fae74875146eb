"""Several texts in one context: whatever is done to one, all have the logits they have alone.

A machine does at random what sessions do: texts begin and end, share decodes with drafts, are cut,
copied, interrupted and moved to a larger cache. Each row of logits, and after each action the next
row of every text, is compared with that of a context that never held another text.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import llama_cpp
import numpy as np
import pytest
from fakes import tiny
from fakes.checked import KINDS, STATES, company_of, context_of, small_passes
from fakes.failing_device import device_fails
from fakes.stateful import examples, run_machine
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from localspec.errors import LocalspecError
from localspec.llama.context import Context
from localspec.llama.context_params import CHUNK, DRAFT_ROWS, ContextParams
from localspec.llama.kv_cache import MAX_IDS
from localspec.llama.model import Model
from localspec.llama.rollback import Memory, Rollback
from localspec.llama.sequence import KVSequence
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.passes import Pass, Scores, draft_pass

# Rows of other widths and places differ by 1e-3 at most; a wrong window by 0.1, a wrong state by 1.
TOLERANCE = 5e-3
N_CTX, TEXTS, BRANCHES = 200, 5, 3
# A draft of so many tokens leaves room for the steps of an example.
LONGEST = N_CTX - 40
Row = np.ndarray
seeds = st.integers(0, 2**32 - 1)
places = st.integers(0, 99)


class Reference:
    """The logits after a text, from a context of its own."""

    def __init__(self, model: Model, kind: str) -> None:
        self._fresh = context_of(model, kind, n_ctx=N_CTX)
        self._known: dict[tuple[int, ...], Row] = {}

    def after(self, text: Sequence[int]) -> Row:
        key = tuple(text)
        if key not in self._known:
            self._fresh.truncate(0)
            self._known[key] = self._fresh.extend(list(text)).copy()
        return self._known[key]

    def close(self) -> None:
        self._fresh.close()


class Texts(RuleBasedStateMachine):
    """What sessions of one engine do to their texts, without the threads."""

    kind: str
    model: Model
    reference: Reference
    probe: KVSequence

    def __init__(self) -> None:
        super().__init__()
        attention = self.kind == "llama"
        self.context = company_of(
            self.model, self.kind, n_ctx=N_CTX, texts=3, branches=BRANCHES if attention else 0
        )
        # A text that was lost is more than one pass reads again.
        self.context.chunk = 64
        # The context lives as long as its last text.
        self.texts: list[tuple[KVSequence, list[int]]] = []
        self.rng = np.random.default_rng(0)

    def some(self, count: int) -> list[int]:
        return [int(token) for token in self.rng.integers(3, tiny.N_VOCAB, count)]

    def chosen(self, count: int) -> list[tuple[KVSequence, list[int]]]:
        """Some texts that have room for a step."""
        order = self.rng.permutation(len(self.texts))[:count]
        return [self.texts[i] for i in order if len(self.texts[i][1]) < LONGEST]

    def text(self, which: int) -> tuple[KVSequence, list[int]]:
        return self.texts[which % len(self.texts)]

    def same(self, row: Row, text: Sequence[int]) -> None:
        assert np.abs(row - self.reference.after(text)).max() < TOLERANCE, (self.kind, len(text))

    def all_right(self) -> None:
        """The next row of every text, from a copy: the texts and their last passes stay."""
        token = self.some(1)[0]
        for sequence, text in self.texts:
            assert sequence.tokens == text
            state = sequence.state()
            if not state.tokens:
                continue
            assert list(state.tokens) == text[: len(state.tokens)]
            assert self.probe.restore(state)
            self.same(self.probe.extend([token]), [*state.tokens, token])

    def decode(self, requested: Sequence[Pass]) -> list[tuple[Pass, Scores]]:
        """One decode, or several where the passes may not share one; verdicts come at once."""
        done: list[tuple[Pass, Scores]] = []
        waiting = list(requested)
        for each in waiting:
            # What a decode without a verdict took with it decides how many rows come again.
            next(text for text, _ in self.texts if text is each.sequence).roll_back()
        while waiting:
            together = waiting[:1]
            for each in waiting[1:]:
                if self.may_share(together[0], each) and self.context.fits([*together, each]):
                    together.append(each)
            waiting = [each for each in waiting if each not in together]
            for each, scores in zip(together, self.context.decode(together), strict=True):
                self.compare(each, scores)
                done.append((each, scores))
            for i in self.rng.permutation(len(together)):
                self.verdict(together[i])
        return done

    def may_share(self, one: Pass, other: Pass) -> bool:
        rows = self.context.rows_of
        return self.context.rollback is not Rollback.BOUNDED or rows(one) == rows(other)

    def compare(self, requested: Pass, scores: Scores) -> None:
        text = next(text for each, text in self.texts if each is requested.sequence)
        assert len(scores.logits) == requested.wanted
        if requested.drafted is None:
            self.same(scores.logits[-1], [*text, *requested.tokens])
            return
        pending, *drafted = requested.tokens
        draft = Draft(drafted, requested.parents)
        for node, row in enumerate(scores.logits, start=ROOT):
            path = [drafted[each] for each in draft.path(node)]
            self.same(row, [*text, pending, *path])

    def verdict(self, requested: Pass) -> None:
        """Any path of the draft is accepted."""
        sequence, text = next(each for each in self.texts if each[0] is requested.sequence)
        if requested.drafted is None:
            text += requested.tokens
            return
        pending, *drafted = requested.tokens
        last = int(self.rng.integers(-1, len(drafted)))
        if not requested.parents and self.rng.random() < 0.3:
            last = len(drafted) - 1
        path = Draft(drafted, requested.parents).path(last)
        sequence.commit(path)
        text += [pending, *(drafted[node] for node in path)]

    def step_passes(self, depths: Sequence[int]) -> list[Pass]:
        passes = []
        for (sequence, _), depth in zip(self.chosen(len(depths)), depths, strict=False):
            for missing in sequence.catch_up():
                self.context.decode([missing])
            passes.append(draft_pass(sequence, self.some(1)[0], Draft(self.some(depth))))
        return passes

    # Rules.

    @initialize(seed=seeds)
    def begin_first(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        for length in (20, 7, 12):
            self.begin(length)

    @precondition(lambda self: len(self.texts) < self.context.params.texts)
    @rule(length=st.integers(1, 60))
    def begin(self, length: int) -> None:
        tokens = self.some(length)
        sequence = self.context.new_sequence()
        self.texts.append((sequence, tokens))
        self.same(sequence.extend(tokens), tokens)
        self.all_right()

    @precondition(lambda self: len(self.texts) > 1)
    @rule(which=places)
    def close(self, which: int) -> None:
        sequence, _ = self.texts.pop(which % len(self.texts))
        sequence.close()
        with pytest.raises(LocalspecError, match="closed"):
            sequence.extend([5])
        self.all_right()

    @precondition(lambda self: len(self.texts) > 2)
    @rule(which=places, depth=st.integers(1, 9), back=st.integers(0, 9), steps=st.integers(1, 2))
    def pause(self, which: int, depth: int, back: int, steps: int) -> None:
        """A text ends with a pass of which all is kept; others go on; then it is cut a little."""
        sequence, text = self.text(which)
        tokens = self.some(1 + depth)
        if len(text) > LONGEST:
            return
        sequence.score(tokens[0], Draft(tokens[1:]))
        sequence.commit(range(depth))
        text += tokens
        for _ in range(steps):
            others = [each for each, text in self.texts if each is not sequence]
            for each in others:
                for missing in each.catch_up():
                    self.context.decode([missing])
            room = [each for each in others if len(each.tokens) < LONGEST]
            self.decode([draft_pass(each, self.some(1)[0], Draft(self.some(2))) for each in room])
        self.truncate(which, back)

    @rule(counts=st.lists(st.integers(1, 12), min_size=1, max_size=4))
    def read(self, counts: list[int]) -> None:
        """Parts of prompts, as drafters and the targets read them."""
        chosen = self.chosen(len(counts))
        passes = [
            Pass(sequence, self.some(n)) for (sequence, _), n in zip(chosen, counts, strict=False)
        ]
        for sequence, _ in chosen:
            for missing in sequence.catch_up():
                self.context.decode([missing])
        self.decode(passes)
        self.all_right()

    @rule(depths=st.lists(st.integers(0, 11), min_size=1, max_size=5), equal=st.booleans())
    def step(self, depths: list[int], equal: bool) -> None:
        """Drafts of several texts; deep ones need a checkpoint."""
        self.decode(self.step_passes([depths[0]] * len(depths) if equal else depths))
        self.all_right()

    @rule(depths=st.lists(st.integers(0, 4), min_size=1, max_size=4), again=st.booleans())
    def interrupt(self, depths: list[int], again: bool) -> None:
        """A decode is computed whose result nobody sees; the same passes may come again."""
        passes = self.step_passes([depths[0]] * len(depths))
        passes = [each for each in passes if self.may_share(passes[0], each)]
        if not passes:
            return
        decode = llama_cpp.llama_decode

        def decode_and_interrupt(handle: object, batch: object) -> int:
            decode(handle, batch)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(llama_cpp, "llama_decode", decode_and_interrupt)
            self.context.decode(passes)
        if again:
            self.decode(passes)
            self.all_right()

    @rule(depths=st.lists(st.integers(0, 4), min_size=1, max_size=4), again=st.booleans())
    def fail(self, depths: list[int], again: bool) -> None:
        """The library refuses a decode because of one text; the others try again at once."""
        passes = self.step_passes([depths[0]] * len(depths))
        passes = [each for each in passes if self.may_share(passes[0], each)]
        if not passes:
            return
        wrong = draft_pass(passes[0].sequence, tiny.N_VOCAB + 7, Draft(passes[0].tokens[1:]))
        with pytest.raises(LocalspecError, match="could not evaluate"):
            self.context.decode([*passes[1:], wrong])
        if again:
            self.decode(passes[1:])
            self.all_right()

    @rule(
        depths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
        failures=st.integers(1, 3),
        later=st.booleans(),
    )
    def lose(self, depths: list[int], failures: int, later: bool) -> None:
        """The device fails in a decode, and in those that follow at once; then it works again."""
        passes = self.step_passes([depths[0]] * len(depths))
        passes = [each for each in passes if self.may_share(passes[0], each)]
        if not passes:
            return
        before, done = self.context.renewals, False
        with small_passes(self.kind), device_fails(failures, later=later):
            for _ in range(failures + 2):
                # A failure is made good at once, unless another one follows, or the texts have to
                # be read again by passes that share nothing.
                with suppress(LocalspecError):
                    self.decode(passes)
                    done = True
                    break
        assert done
        assert self.context.renewals == before + failures
        self.all_right()

    @rule(which=places, back=st.one_of(st.integers(0, 9), st.integers(0, N_CTX)))
    def truncate(self, which: int, back: int) -> None:
        sequence, text = self.text(which)
        left = sequence.truncate(max(0, len(text) - back))
        assert left <= max(0, len(text) - back)
        del text[left:]
        self.all_right()

    @rule(which=places)
    def mark(self, which: int) -> None:
        self.text(which)[0].mark()

    @rule(which=places)
    def checkpoint(self, which: int) -> None:
        self.text(which)[0].checkpoint()

    @precondition(lambda self: self.context.params.texts < TEXTS)
    @rule()
    def resize(self) -> None:
        with small_passes(self.kind):
            self.context.resize(self.context.params.texts + 1)
        self.all_right()

    @precondition(lambda self: len(self.texts) > 1)
    @rule(which=places, length=st.integers(1, N_CTX))
    def share(self, which: int, length: int) -> None:
        """A text takes the prefix of another."""
        mine, text = self.text(which)
        other, prefix = self.text(which + 1)
        length = min(length, len(prefix))
        # What a device has lost is read again with the next pass.
        possible = self.kind == "llama" and length <= other.memory.length
        assert mine.share(other, length) == possible
        if possible:
            text[:] = prefix[:length]
        self.all_right()

    @precondition(lambda self: len(self.texts) > 1)
    @rule(which=places)
    def restore(self, which: int) -> None:
        """A text takes a copy of another."""
        mine, text = self.text(which)
        state = self.text(which + 1)[0].state()
        assert mine.restore(state)
        text[:] = state.tokens
        self.all_right()

    @precondition(lambda self: self.kind == "llama")
    @rule(
        parents=st.lists(st.integers(-1, 8), min_size=2, max_size=9),
        depths=st.lists(st.integers(0, 5), max_size=3),
    )
    def tree(self, parents: list[int], depths: list[int]) -> None:
        """A tree of up to four branches, beside the drafts of other texts."""
        parents = [min(parent, node - 1) for node, parent in enumerate(parents)]
        draft = Draft(self.some(len(parents)), parents)
        passes = self.step_passes([0, *depths])
        if not passes or draft.branches > 1 + BRANCHES:
            return
        sequence = passes[0].sequence
        assert isinstance(sequence, KVSequence)
        passes[0] = draft_pass(sequence, self.some(1)[0], draft)
        self.decode(passes)
        self.all_right()

    def teardown(self) -> None:
        for sequence, _ in self.texts:
            sequence.close()
        self.context.close()


@pytest.fixture
def machine(models: dict[str, Model]) -> Any:
    """Makes the machine of a kind."""
    opened: list[Any] = []

    def make(kind: str) -> type[Texts]:
        model = models[KINDS[kind][0]]
        reference, probe = Reference(model, kind), context_of(model, kind, n_ctx=N_CTX)
        opened.extend((reference, probe))
        attributes = {"kind": kind, "model": model, "reference": reference, "probe": probe}
        return type("TextsOf" + kind, (Texts,), attributes)

    yield make
    for each in opened:
        each.close()


def test_every_text_is_as_if_alone(machine: Callable[[str], type[Texts]], kind: str) -> None:
    run_machine(machine(kind), examples=examples(12), steps=25)


def texts_of(context: Context, lengths: Sequence[int]) -> list[KVSequence]:
    """A text of each length, already read."""
    rng = np.random.default_rng(1)
    sequences = [context.new_sequence() for _ in lengths]
    for sequence, length in zip(sequences, lengths, strict=True):
        sequence.extend([int(token) for token in rng.integers(3, tiny.N_VOCAB, length)])
    return sequences


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("ends", ["refused", "interrupted"])
def test_a_long_text_whose_state_is_lost_is_read_again(
    models: dict[str, Model], kind: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decode that fails can take the states of all its texts; the same passes come again."""
    model = models[KINDS[kind][0]]
    context = company_of(model, kind, n_ctx=N_CTX, texts=2)
    context.chunk = 64
    reference = Reference(model, kind)
    sequences = texts_of(context, (150, 150))
    passes = [Pass(sequence, (5,)) for sequence in sequences]
    if ends == "refused":
        with pytest.raises(LocalspecError, match="could not evaluate"):
            context.decode([passes[0], Pass(sequences[1], (tiny.N_VOCAB,))])
    else:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Context, "_run_batch", interrupt)
            context.decode(passes)
    before = [list(sequence.tokens) for sequence in sequences]
    assert [len(tokens) for tokens in before] == [150, 150]
    for scores, tokens in zip(context.decode(passes), before, strict=True):
        assert np.abs(scores.logits[0] - reference.after([*tokens, 5])).max() < TOLERANCE
    reference.close()
    context.close()


def interrupt(_context: Context) -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["llama", "mamba"])
@pytest.mark.parametrize("moved", [0, 1])
def test_a_move_to_a_larger_cache_that_is_interrupted(
    models: dict[str, Model], kind: str, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All texts are in the larger one, or are read again."""
    context = company_of(models[kind], kind, n_ctx=N_CTX, texts=2)
    reference = Reference(models[kind], kind)
    sequences = texts_of(context, (60, 40))
    copy, left = Memory.copy, [None] * moved

    def interrupted(self: Memory) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return copy(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Memory, "copy", interrupted)
        context.resize(3)
    assert context.params.texts == 3
    sequences.append(context.new_sequence())
    sequences[2].extend([9, 8, 7])
    for each in sequences:
        expected = reference.after([*each.tokens, 5])
        assert np.abs(each.extend([5]) - expected).max() < TOLERANCE
    reference.close()
    context.close()


# Limits.


@pytest.mark.parametrize("kind", ["llama"])
def test_one_more_than_planned_is_refused_in_words(models: dict[str, Model], kind: str) -> None:
    """The library would end the process."""
    context = company_of(models[kind], kind, n_ctx=1100, texts=3, branches=3)
    one, two, three = texts_of(context, (4, 4, 4))
    with pytest.raises(LocalspecError, match="all 3 places of this context are taken; close"):
        context.new_sequence()
    rows = Pass(one, [5] * CHUNK)
    with pytest.raises(LocalspecError, match="decode of 513 rows was asked for; 512 are the most"):
        context.decode([rows, Pass(two, [5])])
    logits = draft_pass(one, 5, Draft([5] * (DRAFT_ROWS - 1)))
    with pytest.raises(LocalspecError, match="of 64 rows with logits was asked for; 63 are"):
        context.decode([logits, Pass(two, [5])])
    trees = [draft_pass(each, 5, Draft([6, 7, 8], [ROOT] * 3)) for each in (one, two)]
    with pytest.raises(LocalspecError, match="of 4 further branches of drafts was asked for; 3"):
        context.decode(trees)
    with pytest.raises(LocalspecError, match="two passes of one text"):
        context.decode([Pass(one, [5]), Pass(one, [5])])
    with pytest.raises(LocalspecError, match="254 texts are too many; a context holds 256"):
        context.resize(MAX_IDS - 2)
    assert [len(each.tokens) for each in (one, two, three)] == [4, 4, 4]
    # As many as planned are computed.
    assert len(context.decode([Pass(one, [5] * (CHUNK - 1)), Pass(two, [5])])) == 2
    assert len(context.decode([logits])[0].logits) == DRAFT_ROWS
    assert len(context.decode([trees[0], draft_pass(two, 5, Draft([6]))])) == 2
    context.resize(4)
    context.new_sequence()
    context.close()


@pytest.mark.parametrize("kind", ["qwen35"])
def test_unequal_drafts_are_refused_where_snapshots_would_be_lost(
    models: dict[str, Model], kind: str
) -> None:
    context = company_of(models[kind], kind, n_ctx=N_CTX, texts=2)
    one, two = texts_of(context, (9, 9))
    unequal = [draft_pass(one, 5, Draft([6, 7, 8])), draft_pass(two, 5, Draft([6]))]
    with pytest.raises(LocalspecError, match="unequal rows"):
        context.decode(unequal)
    assert len(context.decode([unequal[0], draft_pass(two, 5, Draft([6, 7, 8]))])) == 2
    context.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "llama"])
def test_trees_and_shared_cells_are_for_attention_only(models: dict[str, Model], kind: str) -> None:
    context = company_of(models[KINDS[kind][0]], kind, n_ctx=N_CTX, texts=2, branches=3)
    one, two = texts_of(context, (9, 9))
    assert one.branches == 1
    assert one.only_chains
    with pytest.raises(LocalspecError, match=r"draft has 2 branches.*only 1.*propose a chain"):
        one.score(5, Draft([6, 7], [ROOT, ROOT]))
    assert not two.share(one, 4)
    assert len(two.tokens) == 9
    context.close()


# Trees.

SHAPES = {
    "two leaves": [ROOT, ROOT],
    "two branches that part late": [ROOT, 0, 1, 2, 1, 4],
    "four branches": [ROOT, 0, 1, ROOT, 3, 3, 0, 6],
    "breadth first": [ROOT, ROOT, 0, 0, 1, 1, 2, 5],
}


@pytest.fixture
def trees(models: dict[str, Model]) -> Any:
    """A context for two texts with trees, and one for chains."""
    context = company_of(models["llama"], "llama", n_ctx=128, texts=2, branches=3)
    chains = context_of(models["llama"], "llama", n_ctx=128)
    yield context, chains
    context.close()
    chains.close()


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_tree_s_rows_are_those_of_its_chains(trees: Any, shape: str, lost: bool) -> None:
    """And after any verdict the text goes on, and another text beside it.

    lost: whether the device has lost both texts, so that they come before the drafts.
    """
    context, chains = trees
    tree, other = texts_of(context, (20, 33))
    parents = SHAPES[shape]
    draft = Draft([7 + 3 * node for node in range(len(parents))], parents)
    for last in range(ROOT, len(draft)):
        passes = [draft_pass(tree, 4, draft), draft_pass(other, 9, Draft([10, 11]))]
        if lost:
            context.renew()
        scores = context.decode(passes)[0]
        assert scores.again == (len(tree.tokens) if lost else 0)
        for node, row in enumerate(scores.logits, start=ROOT):
            chains.set_tokens(tree.tokens)
            path = [draft.tokens[each] for each in draft.path(node)]
            expected = chains.score(4, Draft(path)).logits[-1]
            assert np.abs(row - expected).max() < TOLERANCE
        path = draft.path(last)
        tokens = [*tree.tokens, 4, *(draft.tokens[node] for node in path)]
        beside_tokens = [*other.tokens, 9, 10]
        tree.commit(path)
        other.commit([0])
        assert tree.tokens == tokens and tree.memory.length == len(tokens)
        assert other.tokens == beside_tokens
        for sequence, text in ((tree, tokens), (other, beside_tokens)):
            chains.truncate(0)
            expected = chains.extend([*text, 5])
            assert np.abs(sequence.extend([5]) - expected).max() < TOLERANCE
            sequence.truncate(len(text) if sequence is other else 20)
        other.truncate(33)


def test_the_cells_of_all_branches_are_used_again(trees: Any) -> None:
    """After trees, committed or not, the two texts fill the cache to the last cell."""
    context, _ = trees
    tree, other = texts_of(context, (20, 20))
    draft = Draft(list(range(5, 13)), SHAPES["four branches"])
    for last in range(ROOT, len(draft)):
        for _ in range(5):
            tree.score(4, draft)
            tree.commit(draft.path(last))
            tree.score(4, draft)
            tree.truncate(20)
    for sequence in (tree, other):
        sequence.extend([5] * (128 - 20))
    assert len(tree.tokens) == len(other.tokens) == 128


def test_bit_for_bit_where_the_width_does_not_matter(target_model: Model) -> None:
    """The bundled target, one thread, flash attention: the digits of a tree are those of chains."""
    params = ContextParams(256, flash_attention=True)
    context = Context(target_model, replace(params, branches=3))
    chains = Context(target_model, params).new_sequence()
    prompt = target_model.tokenize("def read(path):\n    with open(path) as")
    tree = context.new_sequence()
    for sequence in (tree, chains):
        sequence.extend(prompt)
    for parents in SHAPES.values():
        draft = Draft([300 + 7 * node for node in range(len(parents))], parents)
        rows = tree.score(30, draft).logits.copy()
        tree.commit([])
        tree.truncate(len(prompt))
        for node in range(len(draft)):
            chains.truncate(len(prompt))
            chain = [draft.tokens[each] for each in draft.path(node)]
            expected = chains.score(30, Draft(chain)).logits[-1]
            if shares_positions(draft, node):
                assert np.abs(rows[node + 1] - expected).max() < 0.1
            else:
                assert np.array_equal(rows[node + 1], expected)
    context.close()
    chains.close()


def shares_positions(draft: Draft, node: int) -> bool:
    """Whether cells of other branches lie before or between those of this node's path."""
    path = draft.path(node)
    return path != list(range(len(path)))


def test_long_texts_behind_a_shared_prefix(target_model: Model) -> None:
    """The prefix is evaluated once; texts end in any order."""
    tokens = [int(t) for t in np.random.default_rng(0).integers(30, 4000, 2000)]
    params = ContextParams(2048, threads=2, texts=3, flash_attention=True)
    context = Context(target_model, params)
    first, second, third = (context.new_sequence() for _ in range(3))
    first.extend(tokens)
    for other in (second, third):
        assert other.share(first, 2000)
        assert other.tokens == tokens
    ends = {second: [40, 41], third: [50, 51, 52]}
    rows = {each: each.extend(end).copy() for each, end in ends.items()}
    assert first.truncate(700) == 700
    first.extend(tokens[:600])
    first.close()
    again = {each: each.extend([60]).copy() for each in ends}
    alone = Context(target_model, replace(params, texts=1)).new_sequence()
    alone.extend(tokens)
    for each, end in ends.items():
        alone.truncate(2000)
        # Digits depend on where the cells of a text lie: this model is quantised.
        assert np.abs(alone.extend(end) - rows[each]).max() < 0.5
        assert np.abs(alone.extend([60]) - again[each]).max() < 0.5
        assert rows[each].argmax() != again[each].argmax() or np.abs(rows[each] - again[each]).max()
    alone.close()
    context.close()


# Mistakes planted in the code.


def keeps_another_branch(self: Memory, winner: int, branches: Sequence[int], *ends: int) -> None:
    ids = [self.seq_id, *branches]
    REAL_JOIN(self, ids[(ids.index(winner) + 1) % len(ids)], branches, *ends)


def cuts_another_text(self: Memory, seq_id: int, length: int) -> bool:
    return REAL_REMOVE(self, seq_id if length <= 0 else seq_id ^ 1, length)


def in_another_order(self: Context, *given: Any) -> list[Scores]:
    return REAL_SCORES(self, *given)[::-1]


def nothing(*_given: Any) -> None:
    """Does nothing."""


REAL_JOIN, REAL_REMOVE, REAL_SCORES = Memory.join, Memory._remove, Context._scores
MUTANTS: list[tuple[str, type, str, Callable[..., Any]]] = [
    ("llama", Memory, "join", keeps_another_branch),
    ("llama", Memory, "remove_branch", nothing),
    ("llama", Memory, "_remove", cuts_another_text),
    ("llama", Context, "_scores", in_another_order),
    ("mamba", Context, "_scores", in_another_order),
    ("mamba", Memory, "move", nothing),
    ("qwen35", Memory, "lose_snapshots", nothing),
    ("gemma3", KVSequence, "roll_back", nothing),
]


@pytest.mark.parametrize("mistake", MUTANTS, ids=lambda mistake: f"{mistake[0]} {mistake[2]}")
def test_mutants_are_caught(
    machine: Callable[[str], type[Texts]],
    mistake: tuple[str, type, str, Callable[..., Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind, owner, name, mutant = mistake
    made = machine(kind)
    monkeypatch.setattr(owner, name, mutant)
    # Flaky is what Hypothesis calls caches that spoil the examples after them.
    with pytest.raises((AssertionError, LocalspecError, Flaky)):
        run_machine(made, examples=100, steps=25, phases=[Phase.generate])


@pytest.mark.parametrize("equal", [True, False])
def test_unequal_drafts_in_one_decode_lose_snapshots(
    models: dict[str, Model], equal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why they are refused; equal ones may share a decode."""
    refused = Context._require_sharable

    def lenient(self: Context, *given: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(self, "rollback", Rollback.PARTIAL)
            refused(self, *given)

    monkeypatch.setattr(Context, "_require_sharable", lenient)
    reference, wrong = Reference(models["qwen35"], "qwen35"), 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        context = company_of(models["qwen35"], "qwen35", n_ctx=N_CTX, texts=4)
        sequences = texts_of(context, (20, 9, 14, 30))
        for _ in range(5):
            chosen = [sequences[i] for i in rng.permutation(4)[: rng.integers(2, 5)]]
            depths = [3] * 4 if equal else rng.integers(1, 5, 4).tolist()
            drafted = list(zip(chosen, depths, strict=False))
            context.decode([draft_pass(each, 5, Draft([7] * depth)) for each, depth in drafted])
            for each, depth in drafted:
                each.commit(range(rng.integers(0, depth + 1)))
        for each in sequences:
            expected = reference.after([*each.tokens, 6])
            wrong += bool(np.abs(each.extend([6]) - expected).max() > TOLERANCE)
        context.close()
    reference.close()
    assert (wrong == 0) == equal
