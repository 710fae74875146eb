"""Several heads in a row, each of which predicts one token further: mistakes are found."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from fakes.drafter_kinds import EXACT, PROMPT
from fakes.library_rows import LibraryRows
from fakes.mtp import TRUNK, ChainOracle, OfRows, write_chain
from fakes.pycode import load
from fakes.recorder import Recorder

from localspec.drafters.mtp import ChainedMtp
from localspec.llama.head_context import HeadContext
from localspec.llama.hidden_states import HiddenStates

HEADS = 3


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chain(tmp_path_factory.mktemp("chain") / "target.gguf", heads=HEADS)


@pytest.fixture
def drafts(target: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    with LibraryRows(target, (TRUNK,)) as rows:
        yield Recorder(ChainedMtp, OfRows(ChainOracle(target), rows), monkeypatch)


def one_head_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer offset is not set."""
    monkeypatch.setattr(HiddenStates, "choose_head", lambda _self, _number: None)


def no_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layer offset is not set back to the first head."""
    usual = HiddenStates.choose_head

    def forward(self: HiddenStates, number: int) -> None:
        if number:
            usual(self, number)

    monkeypatch.setattr(HiddenStates, "choose_head", forward)


def pairs_of_one_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of a draft stay in the cache although not all heads have read them."""
    usual = ChainedMtp._draw

    def draw(self: ChainedMtp, chain: object) -> Iterator[object]:
        before = self._pairs
        yield from usual(self, chain)  # type: ignore[arg-type, misc]
        if self._pairs == before:
            self._cache.truncate(len(self._text))
            self._count(len(self._cache.tokens) - before)

    monkeypatch.setattr(ChainedMtp, "_draw", draw)


MISTAKES = (one_head_for_all, no_way_back, pairs_of_one_head)


def nothing(_monkeypatch: pytest.MonkeyPatch) -> None:
    """No mistake: the same texts are drafted for as they should be."""


@pytest.mark.parametrize("mistake", [nothing, *MISTAKES])
def test_a_planted_mistake_is_found(
    target: Path,
    drafts: Recorder,
    monkeypatch: pytest.MonkeyPatch,
    mistake: Callable[[pytest.MonkeyPatch], None],
) -> None:
    with load(target, draft="mtp", **EXACT) as engine:
        [sequence] = engine.drafter_set.sequences.values()
        assert isinstance(sequence.context, HeadContext)
        drafts.drafts.clear()
        mistake(monkeypatch)
        text, options = PROMPT, {"max_tokens": 15, "temperature": 0, "ignore_eos": True}
        for depth in (3, 1, 2, 3):
            text = [*text, *engine.generate(text, depth=depth, **options).token_ids]
        assert {len(each.tokens) for each in drafts.drafts} == {1, 2, 3}
        with nullcontext() if mistake is nothing else pytest.raises(AssertionError):
            drafts.check()
