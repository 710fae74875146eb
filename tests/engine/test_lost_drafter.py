"""A drafter whose machine goes away in the middle of a text: the text is the same, without it."""

from pathlib import Path

import pytest

import localspec
from localspec.errors import WorkerError
from localspec.llama.model import Model
from localspec.models.registry import bundled

PROMPT = [{"role": "user", "content": "How do I list files by size?"}]
HEADS = Path(__file__).parents[1] / "trained"
DRAFTERS = {
    "model": str(bundled().drafter),
    "eagle3": str(HEADS / "eagle3-terminal-9m-q8_0.gguf"),
    "dflash": str(HEADS / "dflash-terminal-9m-q8_0.gguf"),
}


class Failing:
    """Lets the passes of one model fail from now on, once `left` of them were computed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, model: Model, left: int) -> None:
        self.left = left
        monkeypatch.setattr(Model, "require_workers", lambda each: self.check(each is model))

    def check(self, concerned: bool) -> None:
        self.left -= concerned
        if concerned and self.left < 0:
            raise WorkerError("the worker is gone")


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    """The texts of seeds 0 to 4 without drafts, bit for bit."""
    with localspec.load(draft="none", reproducible=True) as engine:
        return [written(engine, seed) for seed in range(5)]


def written(engine: localspec.Engine, seed: int, depth: int | None = None) -> list[int]:
    found = engine.generate(PROMPT, max_tokens=24, seed=seed, depth=depth, ignore_eos=True)
    return list(found.token_ids)


@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize("kind", DRAFTERS)
def test_the_text_is_that_without_drafts(
    plain: list[list[int]], monkeypatch: pytest.MonkeyPatch, kind: str, depth: int | None
) -> None:
    for seed, passes in enumerate((0, 1, 2, 7, 16)):
        draft = ["suffix", DRAFTERS[kind]]
        with (
            localspec.load(draft=draft, reproducible=True) as engine,
            monkeypatch.context() as patch,
        ):
            member = engine.drafter_set.members[-1]
            assert member.sequence
            failing = Failing(patch, member.sequence.model, passes)
            assert written(engine, seed, depth) == plain[seed]
            if depth:
                assert failing.left < 0, "it was needed again"
            lost_at = failing.left
            # It is not asked again, at least not by texts of these settings.
            following = (seed + 1) % 5
            assert written(engine, following) == plain[following]
            if depth is None and lost_at < 0:
                assert failing.left == lost_at


def test_a_target_that_is_gone_ends_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    with localspec.load(draft=DRAFTERS["model"]) as engine, monkeypatch.context() as patch:
        Failing(patch, engine.model, 3)
        tokens = []
        with engine.stream(PROMPT, max_tokens=24, seed=1, ignore_eos=True, depth=3) as running:
            with pytest.raises(WorkerError, match="the worker is gone"):
                tokens += [token.id for token in running]
            assert running.stop_reason == "cancelled"
    assert len(tokens) < 24
