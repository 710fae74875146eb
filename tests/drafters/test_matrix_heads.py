"""Medusa heads and MLP speculators draft what the numpy oracles draft, after any verdict."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.eagle3 import LIKELY, write_target
from fakes.matrix_heads import HEADS, MedusaOracle, MlpOracle, write_medusa, write_mlp
from fakes.mutants import Code, Edit
from fakes.tiny import N_VOCAB

from localspec.drafters.medusa import Medusa, MedusaHead
from localspec.drafters.mlp_speculator import MlpSpeculator, Stage
from localspec.drafters.output_row import OutputRowDrafter
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Evaluated, HiddenReader, Limit, Outcome
from localspec.speculation.passes import OUTPUT, run

GREEDY = Sampler(SamplingParams(temperature=0), Noise(1))
WARM = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0), Noise(1))
PROMPT = [1, 259, 30, 266, 271, 90, 275]
KINDS = {"medusa": (write_medusa, MedusaOracle), "mlp": (write_mlp, MlpOracle)}
Oracle = Any


class NumpyMatrix:
    """A matrix whose products numpy computes."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values, np.float32)

    def times(self, vector: np.ndarray) -> np.ndarray:
        product: np.ndarray = self._values @ vector
        return product


def medusa(oracle: MedusaOracle, made: type[Medusa] = Medusa) -> Medusa:
    heads = [
        MedusaHead(
            [
                (
                    NumpyMatrix(oracle.of(k, f"block.{i}.weight")),
                    oracle.of(k, f"block.{i}.bias").astype(np.float32),
                )
                for i in range(int(oracle.weights.own("block_count")))
            ],
            NumpyMatrix(oracle.of(k, "output.weight")),
        )
        for k in range(oracle.heads)
    ]
    return made(heads, name="medusa", n_vocab=N_VOCAB)


def mlp(
    oracle: MlpOracle, made: type[MlpSpeculator] = MlpSpeculator, stage: type[Stage] = Stage
) -> MlpSpeculator:
    def embedding(k: int) -> Callable[[int], np.ndarray]:
        table = oracle.of(k, "token_embd.weight").astype(np.float32)
        return lambda token: table[token]

    stages = [
        stage(
            NumpyMatrix(oracle.of(k, "proj.weight")),
            embedding(k),
            oracle.of(k, "norm.weight").astype(np.float32),
            oracle.of(k, "norm.bias").astype(np.float32),
            NumpyMatrix(oracle.of(k, "output.weight")),
        )
        for k in range(oracle.heads)
    ]
    return made(
        stages,
        name="mlp",
        n_vocab=N_VOCAB,
        known_tokens=N_VOCAB,
        scale_input=bool(oracle.weights.own("scale_input")),
    )


MADE: dict[str, Callable[..., OutputRowDrafter]] = {"medusa": medusa, "mlp": mlp}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def oracle(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return oracle_of(kind, tmp_path_factory.mktemp(kind))


def oracle_of(kind: str, folder: Path) -> Oracle:
    write, make = KINDS[kind]
    return make(write_target(folder / "target.gguf"), write(folder / "heads.gguf"))


class Text:
    """A text that heads draft for, as the decoder drives it."""

    def __init__(self, oracle: Oracle, drafter: OutputRowDrafter) -> None:
        self.text: list[int] = []
        self.oracle, self.drafter = oracle, drafter

    def begin(self, text: list[int]) -> None:
        prompt = text[:-1]
        held = self.drafter.held(prompt)
        assert held == len(prompt)
        # The target reads some of it again, in parts without rows.
        if prompt != self.text[: len(prompt)] or len(prompt) != self.drafter._read:
            half = len(prompt) // 2
            for start, end in ((half, len(prompt) - 1), (len(prompt) - 1, len(prompt))):
                run(self.drafter.read(Evaluated(start, prompt[start:end], {})))
        self.text = list(text)
        self.drafter.begin(text)

    def draft(self, depth: int = 4, sampler: Sampler = WARM) -> list[int]:
        limit = Limit(depth, sampler.prefix(self.text), sampler, needs_probs=True)
        draft = run(self.drafter.passes(limit))
        tokens = [int(token) for token in draft.tokens]
        prefix = sampler.prefix(self.text)
        rows = self.oracle.draft_logits(self.text, tokens) if tokens else []
        for row, probs, token in zip(rows, draft.probs or (), tokens, strict=True):
            expected = sampler.distribution(row.astype(np.float32), prefix)
            assert np.abs(probs.dense(N_VOCAB) - expected.dense(N_VOCAB)).max() < 1e-4
            assert sampler.sample(expected, prefix) == token
            prefix = prefix.then(token)
        return tokens

    def step(self, accepted: list[int], token: int, again: int = 0) -> None:
        """The target accepts some tokens and gives one. again: tokens evaluated once more."""
        evaluated = [self.text[-1], *accepted]
        start = len(self.text) - 1 - again
        self.text += [*accepted, token]
        self.drafter.observe(Outcome([*accepted, token], len(accepted)))
        tokens = [*self.text[start : start + again], *evaluated]
        rows = np.array(
            [self.oracle.row(self.text[: start + 1 + i]) for i in range(len(tokens))], np.float32
        )
        run(self.drafter.read(Evaluated(start, tokens, {OUTPUT: rows})))


@pytest.fixture
def text(kind: str, oracle: Oracle) -> Text:
    return Text(oracle, MADE[kind](oracle))


@pytest.mark.parametrize("sampler", [GREEDY, WARM], ids=["greedy", "warm"])
def test_drafts_stay_right_after_any_verdict(
    kind: str, oracle: Oracle, text: Text, sampler: Sampler
) -> None:
    rng = np.random.default_rng(1)
    text.begin(PROMPT)
    assert text.draft() == []
    text.step([], 266)
    accepted = set()
    for round_ in range(16):
        drafted = text.draft(int(rng.integers(1, HEADS + 3)), sampler)
        assert 0 < len(drafted) <= oracle.heads
        kept = int(rng.integers(0, len(drafted) + 1))
        accepted.add(kept)
        text.step(drafted[:kept], int(rng.choice(LIKELY)), again=round_ % 3)
        # One that has been fed the same text as a whole drafts the same.
        fresh = Text(oracle, MADE[kind](oracle))
        fresh.begin(text.text[:-1])
        fresh.step([], text.text[-1])
        assert fresh.draft(3, sampler) == text.draft(3, sampler)
    assert {0, 1, 2} <= accepted


def test_it_reads_hidden_rows_and_needs_no_passes(text: Text) -> None:
    assert isinstance(text.drafter, HiddenReader)
    assert text.drafter.traits.reads_hidden == (OUTPUT,)
    assert text.drafter.traits.only_last_row
    assert text.drafter.traits.deepest == text.oracle.heads
    text.begin(PROMPT)
    text.step([], 266)
    limit = Limit(3, GREEDY.prefix(text.text), GREEDY)
    assert next(text.drafter.passes(limit), None) is None


def test_another_text_has_another_row(text: Text) -> None:
    text.begin(PROMPT)
    text.step([], 266)
    assert text.draft()
    # As long, with another token in the middle; and one that begins alike.
    for other in ([*text.text[:3], 77, *text.text[4:]], text.text[:5], [*text.text, 40, 41]):
        text.begin(other)
        assert text.draft() == []
        text.step([], 259)
        assert text.draft()


def test_a_text_that_goes_on_keeps_its_row(text: Text) -> None:
    text.begin(PROMPT)
    text.step([], 266)
    text.drafter.begin(list(text.text))
    assert text.draft()
    # Another pending token after the same tokens.
    text.begin([*text.text[:-1], 271])
    assert text.draft()


def test_rows_that_are_missing_end_drafts_until_they_come(text: Text) -> None:
    text.begin(PROMPT)
    text.step([], 266)
    text.drafter.observe(Outcome([259], 0))
    text.text += [259]
    run(text.drafter.read(Evaluated(len(PROMPT), [266], {})))
    assert text.draft() == []
    text.step([], 271)
    assert text.draft()


def test_go_on_and_cancelling_end_a_draft(text: Text) -> None:
    text.begin(PROMPT)
    text.step([], 266)
    margins: list[float] = []

    def twice(margin: float) -> bool:
        margins.append(margin)
        return len(margins) < 2

    limit = Limit(6, GREEDY.prefix(text.text), GREEDY, go_on=twice)
    assert len(run(text.drafter.passes(limit)).tokens) == 2
    first = np.sort(text.oracle.draft_logits(text.text, [0])[0])
    assert margins[0] == pytest.approx(first[-1] - first[-2], abs=1e-3)
    cancelled = Limit(6, GREEDY.prefix(text.text), GREEDY, cancelled=lambda: True)
    assert not run(text.drafter.passes(cancelled)).tokens


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_no_numbers_end_drafts(text: Text, bad: float) -> None:
    text.begin(PROMPT)
    text.step([], 266)
    assert text.drafter._row is not None
    text.drafter._row = np.full_like(text.drafter._row, bad)
    with np.errstate(all="ignore"):
        assert text.draft() == []


def test_a_token_without_an_embedding_ends_an_mlps_draft(tmp_path: Path) -> None:
    oracle = oracle_of("mlp", tmp_path)
    drafter = mlp(oracle)
    drafter._known_tokens = 275
    text = Text(oracle, drafter)
    text.begin(PROMPT)
    text.step([], 275)
    assert text.draft() == []
    text.step([], 274)
    assert text.draft()


def test_numbers_far_below_zero_are_none_behind_a_medusa_block() -> None:
    row, bias = np.ones(2, np.float32), np.full(2, -1e4, np.float32)
    head = MedusaHead([(NumpyMatrix(np.eye(2)), bias)], NumpyMatrix(np.eye(2)))
    assert (head.logits(row) == row).all()


def planted() -> Iterator[tuple[str, Callable[[Oracle], OutputRowDrafter]]]:
    def of(made: Any, *edits: Edit) -> Callable[[Oracle], OutputRowDrafter]:
        build, cls = (medusa, Medusa) if made == "medusa" else (mlp, MlpSpeculator)

        def mistaken() -> Any:
            if not edits[0].where.__qualname__.startswith("OutputRowDrafter"):
                return Code(*edits).of(cls)
            # A method of the class above: the one with the mistake goes below.
            name = edits[0].where.__name__
            method = getattr(Code(*edits).of(OutputRowDrafter), name)
            return type(cls.__name__, (cls,), {name: method})

        return lambda oracle: build(oracle, mistaken())

    both = [
        (
            "the row before",
            Edit(OutputRowDrafter.read, "rows[-1]", "rows[-2 if len(rows) > 1 else -1]"),
        ),
        (
            "another text's row",
            Edit(OutputRowDrafter.begin, "            self._row = None\n", "            pass\n"),
        ),
        (
            "the row of a text of the same length",
            Edit(
                OutputRowDrafter.begin,
                " or self._text[: self._read] != list(tokens[:-1])",
                "",
            ),
        ),
        (
            "a row that is not of the last token",
            Edit(OutputRowDrafter.passes, " and self._read == len(self._text) - 1", ""),
        ),
    ]
    for name, edit in both:
        for made in KINDS:
            yield f"{made}: {name}", of(made, edit)
    yield (
        "medusa: heads exchanged",
        of("medusa", Edit(Medusa.draw, "in self._heads:", "in self._heads[::-1]:")),
    )
    yield (
        "medusa: the first head left out",
        of("medusa", Edit(Medusa.draw, "in self._heads:", "in self._heads[1:]:")),
    )
    yield (
        "mlp: the first token again and again",
        of("mlp", Edit(MlpSpeculator.draw, "token = chain.tokens[-1]", "token = pending")),
    )
    yield (
        "mlp: the first row again and again",
        of(
            "mlp",
            Edit(
                MlpSpeculator.draw,
                "state = stage.next_state(state, token",
                "state = stage.next_state(row, token",
            ),
        ),
    )
    yield (
        "mlp: the input not scaled",
        of("mlp", Edit(MlpSpeculator.draw, "if self._scale_input else row", "if False else row")),
    )


MISTAKES = dict(planted())


def go_through(text: Text) -> None:
    """What a text goes through in which mistakes show."""
    text.begin(PROMPT)
    text.step([], 266)
    for kept in (0, 1, 2, 0, 3):
        drafted = text.draft()
        text.step(drafted[:kept], 266)
    for other in ([*text.text[:3], 77, *text.text[4:]], [*text.text, 40, 41]):
        text.begin(other)
        assert text.draft() == []
        text.step([], 259)
        text.draft()
    same_length = [*text.text[:3], 78, *text.text[4:]]
    text.text = same_length
    text.drafter.begin(same_length)
    assert text.draft() == []
    text.step([], 259)
    # A step whose row did not come.
    text.drafter.observe(Outcome([259], 0))
    text.text += [259]
    assert text.draft() == []


def test_the_text_without_a_mistake(text: Text) -> None:
    go_through(text)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(tmp_path: Path, mistake: str) -> None:
    oracle = oracle_of(mistake.partition(":")[0], tmp_path)
    text = Text(oracle, MISTAKES[mistake](oracle))
    with pytest.raises((AssertionError, ValueError)):
        go_through(text)
