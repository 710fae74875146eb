"""A wide pass before a server is ready, once for each model that is on a GPU."""

from collections.abc import Sequence

import pytest

import localspec
from localspec.llama.context import Context
from localspec.speculation.passes import Pass, Scores

OPTIONS = {"max_tokens": 12, "seed": 3}


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The models and rows of the decodes."""
    decode, seen = Context.decode, list[tuple[str, int]]()

    def counted(self: Context, passes: Sequence[Pass]) -> list[Scores]:
        seen.append((self.model.path.name, sum(map(len, passes))))
        return decode(self, passes)

    monkeypatch.setattr(Context, "decode", counted)
    return seen


def test_each_model_on_a_gpu_is_warmed_up_once(widths: list[tuple[str, int]]) -> None:
    with localspec.load(threads=1, gpu_layers=0) as engine:
        expected = engine.generate("def f", **OPTIONS)  # type: ignore[arg-type]
        models = {engine.model.path.name} | {
            each.model.path.name for each in engine.drafter_set.sequences.values()
        }
        widths.clear()
        engine.warm_up()
        assert not widths, "a processor has nothing to compile"
        for each in (engine.model, *(s.model for s in engine.drafter_set.sequences.values())):
            each.is_offloaded = True
        engine.warm_up()
        assert dict(widths) == dict.fromkeys(models, 160)
        found = engine.generate("def f", **OPTIONS)  # type: ignore[arg-type]
        assert found.token_ids == expected.token_ids
        widths.clear()
        engine.warm_up()
        assert not widths
