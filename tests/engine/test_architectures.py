"""The promise on every architecture: the text of a seed is the same whatever drafts, however the
cache was cut, beside other texts, and behind a state that was saved.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import architectures
from fakes.known_text import Knows
from fakes.pycode import load

from localspec.engine.engine import Engine
from localspec.engine.generation import Generation
from localspec.engine.state_store import StateStore
from localspec.errors import ModelLoadError

BEGUN = [1, *(3 + (7 * n * n + 11 * n) % 270 for n in range(60))]
OTHER = [*BEGUN[:40], *(5 + 13 * n % 250 for n in range(10))]
OPTIONS = {"threads": 1, "context": 512, "kv_type": "f32", "flash_attention": False}


@pytest.fixture(params=architectures.WRITING.split())
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    yield (path := architectures.write(request.param, tmp_path / f"{request.param}.gguf"))
    path.unlink()


def generate(engine: Engine, prompt: list[int], **options: object) -> Generation:
    given = {"max_tokens": 40, "temperature": 0.8, "seed": 5, "ignore_eos": True}
    return engine.generate(prompt, **given | options)


def test_text_of_seed(model: Path, tmp_path: Path) -> None:
    store = StateStore(tmp_path)
    with load(model, "none", **OPTIONS) as engine:
        begun = generate(engine, BEGUN).token_ids
        on = [*BEGUN, *begun[:20], 9, 10, 11]
        gone_on, other = generate(engine, on).token_ids, generate(engine, OTHER).token_ids
    with load(model, model, **OPTIONS) as engine:
        result = generate(engine, on, depth=4)
        assert result.token_ids == gone_on
        assert result.stats.accepted == result.stats.drafted > 0
        assert generate(engine, OTHER, depth=4).token_ids == other
        beside = engine.generate(
            [on, BEGUN, OTHER], max_tokens=40, temperature=0.8, seed=5, ignore_eos=True, depth=3
        )
        assert [each.token_ids for each in beside] == [gone_on, begun, other]
        assert generate(engine, BEGUN, depth=4).token_ids == begun
        assert engine.slots.own.save("text", store) is None
    with load(model, Knows([*BEGUN, *begun]), **OPTIONS) as engine:
        result = generate(engine, BEGUN, depth=7)
        assert result.token_ids == begun
        assert 0 < result.stats.accepted < result.stats.drafted
        assert engine.slots.own.load("text", store) is None
        result = generate(engine, on, depth=7)
        assert result.token_ids == gone_on


@pytest.mark.parametrize("arch", architectures.REFUSED)
def test_what_writes_no_text_token_by_token_is_refused(arch: str, tmp_path: Path) -> None:
    path = architectures.write(arch, tmp_path / "model.gguf")
    with pytest.raises(ModelLoadError, match=architectures.REFUSED[arch]):
        load(path, "none", **OPTIONS)
