"""What a decoder reads: each token of a text once, and every hidden row for those that read them.

The target is a toy that forgets: it may not be cut at any token, and evaluates some tokens again.
"""

from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
import pytest
from fakes.toy import ToyModel
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.control.fixed_depth import FixedDepth
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import NOTHING, ROOT, Draft
from localspec.speculation.drafter import Drafter, Evaluated, Limit, Outcome, Traits
from localspec.speculation.passes import Pass, Passes, Scores
from localspec.speculation.rules import RULES
from localspec.speculation.target import prompt_part
from localspec.stats import Stats
from localspec.utils.tokens import common_prefix

N_VOCAB, END, MARK = 5, 4, 7
MODEL = ToyModel.random(N_VOCAB, seed=3, spread=1.5)
PARAMS = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)


def hidden_row(layer: int, text: Sequence[int]) -> NDArray[np.float32]:
    """Tells the layer, and the whole text up to the row's token, from all others."""
    return np.array([layer, len(text), crc32(bytes(text)) >> 8], np.float32)


class Forgetful:
    """A target that holds other texts' beginnings, and loses tokens behind each verdict.

    grain: it can be cut to multiples of so many tokens. loses: how many of the last tokens. other:
    a text that another one holds. place: to mark. cached: how many tokens it still holds. marks:
    the lengths that were marked. read: the tokens of each part of a prompt.
    """

    n_vocab, most_kept, branches, only_chains, takes_back = N_VOCAB, 6, 9, None, None
    scores_drafts = True

    def __init__(self, *, grain: int, loses: int, other: list[int], place: int) -> None:
        self.grain, self.loses, self.other, self.place = grain, loses, other, place
        self.tokens: list[int] = []
        self.cached = 0
        self.marks: list[int] = []
        self.read: list[list[int]] = []
        self._draft = NOTHING
        self._pending: list[int] = []

    @property
    def context(self) -> "Forgetful":
        return self

    def shared(self, tokens: Sequence[int]) -> int:
        return common_prefix(self.tokens, tokens)

    def truncate(self, length: int) -> int:
        self.cached = self.left_by(length)
        del self.tokens[self.cached :]
        return self.cached

    def left_by(self, length: int) -> int:
        return self.cached if length >= self.cached else length - length % self.grain

    def take_prefix(self, tokens: Sequence[int]) -> int:
        if (theirs := common_prefix(self.other, tokens)) > self.shared(tokens):
            self.tokens, self.cached = [*tokens[:theirs]], theirs
        return self.shared(tokens)

    def part(self, tokens: Sequence[int], at: int, end: int, most: int) -> int:
        return prompt_part(end - at, most)

    def place_to_mark(self, tokens: Sequence[int]) -> int:
        return min(self.place, len(tokens))

    def mark(self) -> None:
        self.marks.append(len(self.tokens))

    def catch_up(self) -> Iterator[Pass]:
        if len(self.tokens) - self.cached > 1:
            yield Pass(self, ())

    def decode(self, passes: Sequence[Pass]) -> list[Scores]:
        (one,) = passes
        draft, again = one.draft, len(self.tokens) - self.cached
        certain = [*one.tokens[: len(one.tokens) - len(draft)]]
        before = [*self.tokens, *certain]
        prefixes = [before[: place + 1] for place in range(self.cached, len(before))]
        for node in range(len(draft)):
            prefixes.append([*before, *(draft.tokens[each] for each in draft.path(node))])
        if one.drafted is None:
            assert len(certain) <= self.most_kept
            self.read.append(certain)
            self.tokens = before
        else:
            assert again <= 1, "the missing tokens come before"
            self._draft, self._pending = draft, certain
        self.cached = len(self.tokens)
        wanted = prefixes[len(prefixes) - one.wanted :]
        hidden = {
            layer: np.array([hidden_row(layer, each) for each in prefixes]) for layer in one.hidden
        }
        logits = np.array([MODEL.logits(each) for each in wanted])
        return [Scores(logits, again=again, hidden=hidden)]

    def commit(self, path: Sequence[int]) -> None:
        self.tokens += [*self._pending, *(self._draft.tokens[node] for node in path)]
        self.cached = max(0, len(self.tokens) - self.loses)


class Reader:
    """Drafts only where it knows every hidden row of the text, and each is right.

    keeps: the most rows of a text that it keeps for the next one. parents: of its drafts.
    """

    def __init__(self, layers: tuple[int, ...], keeps: int, parents: Sequence[int]) -> None:
        self.name = f"reader of {layers}"
        self.traits = Traits(reads_hidden=layers, branches=len(parents))
        self.read_tokens: list[int] = []
        self.text: list[int] = []
        self._keeps, self._parents = keeps, parents

    def held(self, tokens: Sequence[int]) -> int:
        del self.read_tokens[min(self._keeps, common_prefix(self.read_tokens, tokens)) :]
        return len(self.read_tokens)

    def read(self, evaluated: Evaluated) -> Passes[None]:
        start, tokens = evaluated.start, [*evaluated.tokens]
        assert start <= len(self.read_tokens), "rows are missing"
        whole = [*self.read_tokens[:start], *tokens]
        # What the target has lost comes again.
        known = common_prefix(whole, self.read_tokens)
        assert known in (len(whole), len(self.read_tokens)), "other tokens were read there"
        for layer in self.traits.reads_hidden:
            for place, row in enumerate(evaluated.hidden[layer], start=start):
                assert (row == hidden_row(layer, whole[: place + 1])).all(), (layer, place)
            assert len(evaluated.hidden[layer]) == len(tokens)
        self.read_tokens = [*whole, *self.read_tokens[len(whole) :]]
        return
        yield

    def begin(self, tokens: Sequence[int]) -> None:
        self.text = [*tokens]
        self._require_all()

    def passes(self, limit: Limit) -> Passes[Draft]:
        self._require_all()
        # Some drafts are right, all are, or none is.
        sampler, drafted = limit.sampler, list[int]()
        for node, parent in enumerate(self._parents):
            path = Draft(drafted, self._parents[:node]).path(parent)
            before = [*self.text, *(drafted[each] for each in path)]
            prefix = sampler.prefix(before)
            token = sampler.sample(sampler.distribution(MODEL.logits(before), prefix), prefix)
            wrong = (len(self.text) + node) % 3 == 0
            drafted.append((token + wrong) % N_VOCAB)
        return Draft(drafted, self._parents).first(limit.depth)
        yield

    def observe(self, outcome: Outcome) -> None:
        self.text += outcome.tokens

    def _require_all(self) -> None:
        assert self.read_tokens == self.text[:-1]


def plain(prompt: list[int], seed: int, count: int) -> list[int]:
    text, sampler = [*prompt], Sampler(PARAMS, Noise(seed))
    for _ in range(count):
        prefix = sampler.prefix(text)
        text.append(sampler.sample(sampler.distribution(MODEL.logits(text), prefix), prefix))
    return text


PARENTS = [[ROOT, 0, 1, 2], [ROOT, ROOT, 0, 1, 2], [ROOT, ROOT, 1, 1, 2]]
LAYERS = [(2,), (4, 1)]
tokens = st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=12)


@settings(max_examples=100)
@example(
    prompts=[(0, [1, 2, 3]), (9, [0])],
    readers=2,
    keeps=[0, 100],
    parents=PARENTS[0],
    grain=1,
    loses=0,
    chunk=None,
    other=False,
    seed=0,
)
@given(
    prompts=st.lists(st.tuples(st.integers(0, 30), tokens), min_size=1, max_size=3),
    readers=st.integers(0, 2),
    keeps=st.lists(st.sampled_from([0, 5, 100]), min_size=2, max_size=2),
    parents=st.sampled_from(PARENTS),
    grain=st.sampled_from([1, 4]),
    loses=st.integers(0, 3),
    chunk=st.sampled_from([None, 1, 3, 100]),
    other=st.booleans(),
    seed=st.integers(0, 99),
)
def test_every_token_is_read_once_and_every_hidden_row_is_shown(
    *,
    prompts: list[tuple[int, list[int]]],
    readers: int,
    keeps: list[int],
    parents: list[int],
    grain: int,
    loses: int,
    chunk: int | None,
    other: bool,
    seed: int,
) -> None:
    target = Forgetful(grain=grain, loses=loses, other=[], place=MARK)
    drafters = [Reader(LAYERS[i], keeps[i], parents) for i in range(readers)]
    text: list[int] = []
    for kept, added in prompts:
        text = [*text[:kept], *added]
        prompt, stats = text[:-1], Stats()
        expected = plain(text, seed, 8)
        target.other, target.marks, target.read = prompt[: 9 * other], [], []
        known = [
            min(most, common_prefix(each.read_tokens, prompt))
            for each, most in zip(drafters, keeps, strict=False)
        ]
        known.append(len(prompt))
        shared = min(target.shared(prompt), *known)
        held = target.left_by(shared)
        if min(known) == len(prompt):
            held = max(held, len(target.other))
        decoder = Decoder(
            target,
            FixedDepth(drafters, 4),
            RULES["coupled"],
            Sampler(PARAMS, Noise(seed)),
            text,
            stats,
            chunk=(lambda: chunk) if chunk else None,
            ends=lambda token: token == END,
        )
        # A text that is begun anew forgets what it had asked for; one that is begun goes on.
        decoder.begin(1)
        decoder.next_pass()
        asked_for_step = held == len(prompt)
        target.marks.clear()
        decoder.begin(8)
        decoder.next_pass()
        written = [each.id for each in decoder.run(8)]
        assert text == expected and written == text[-8:]
        assert target.tokens == text[:-1]
        assert [token for part in target.read for token in part] == prompt[held:]
        assert all(len(part) <= min(chunk or 6, 6) for part in target.read)
        assert stats.prompt_tokens == len(prompt) + 1
        assert stats.prompt_evaluated == len(prompt) + 1 - held + asked_for_step
        assert stats.prompt_again == max(0, shared - held)
        place = min(MARK, len(prompt))
        assert target.marks == [held, *[place] * (held < place), len(prompt)]
        for each in drafters:
            assert each.read_tokens == text[:-1] and each.text == text


def test_a_text_that_is_cancelled_while_its_prompt_is_read_reads_no_further() -> None:
    target, text = Forgetful(grain=1, loses=0, other=[], place=0), [1] * 20
    decoder = Decoder(
        target,
        FixedDepth([], 0),
        RULES["coupled"],
        Sampler(PARAMS, Noise(0)),
        text,
        Stats(),
        cancelled=lambda: len(target.read) == 2,
    )
    assert list(decoder.run(5)) == [] and len(text) == 20
    assert target.tokens == text[:12]


@pytest.mark.parametrize(
    ("tokens", "mark", "parts"),
    [
        (231, 0, [230]),
        (231, 190, [190, 40]),
        (300, 0, [235, 64]),
        (800, 300, [236, 64, 256, 243]),
        (512 + 41, 0, [256, 232, 64]),
    ],
)
def test_the_last_part_of_a_prompt_and_before_a_mark_is_a_wide_pass(
    monkeypatch: pytest.MonkeyPatch, tokens: int, mark: int, parts: list[int]
) -> None:
    """Wherever it takes several; and it never takes one more."""
    monkeypatch.setattr(Forgetful, "most_kept", 256)
    target, text = Forgetful(grain=1, loses=0, other=[], place=mark), [1] * tokens
    sampler = Sampler(PARAMS, Noise(0))
    decoder = Decoder(target, FixedDepth([], 0), RULES["coupled"], sampler, text, Stats())
    assert len(list(decoder.run(1))) == 1
    assert [*map(len, target.read)] == parts


class Watching(Reader):
    """Drafts nothing; shown: the place and the number of the rows that it is shown each time."""

    def __init__(self, known: list[int]) -> None:
        super().__init__((2,), 99, ())
        self.read_tokens, self.shown = known, list[tuple[int, int]]()

    def begin(self, tokens: Sequence[int]) -> None: ...

    def read(self, evaluated: Evaluated) -> Passes[None]:
        self.shown.append((evaluated.start, len(evaluated.tokens)))
        yield from ()


class Sparing(FixedDepth):
    """Has rows read where few tokens are evaluated for them, and then in every second step."""

    def __init__(self, drafter: Watching, most: int) -> None:
        super().__init__([drafter], 0)
        self.lacking, self._most, self._steps = list[int](), most, 0

    def reads(self, drafter: Drafter, lacking: int | None = None) -> bool:  # type: ignore[override]
        if lacking is None:
            self._steps += 1
            return self._steps % 2 == 0
        self.lacking.append(lacking)
        return lacking <= self._most


@pytest.mark.parametrize("most", [3, 4])
@pytest.mark.parametrize(("held", "known"), [(9, 5), (5, 9), (9, 9)])
def test_rows_are_shown_where_the_policy_says_so(held: int, known: int, most: int) -> None:
    """It is told how many tokens the target evaluates again only for them."""
    text = [1, 2, 3, 0] * 3
    target, drafter = Forgetful(grain=1, loses=0, other=[], place=0), Watching(text[:known])
    target.tokens, target.cached = text[:held], held
    policy, sampler = Sparing(drafter, most), Sampler(PARAMS, Noise(1))
    list(Decoder(target, policy, RULES["coupled"], sampler, [*text], Stats()).run(4))
    lacking = max(0, held - known)
    assert policy.lacking == [lacking]
    first = min(held, known) if lacking <= most else held
    assert [token for part in target.read for token in part] == text[first:-1]
    prompt = [(first, len(text) - 1 - first)]
    assert drafter.shown == ([*prompt, (12, 1), (14, 1)] if lacking <= most else [])
