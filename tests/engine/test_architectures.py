"""The promise on every architecture: the text of a seed is the same whatever drafts, however the
cache was cut, beside other texts, and behind a state that was saved.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import architectures
from fakes.known_text import Knows
from fakes.pycode import load

from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.engine.engine import Engine
from localspec.engine.generation import Generation
from localspec.engine.state_store import StateStore
from localspec.errors import ModelLoadError
from localspec.gguf.reader import read_header
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.sequence import KVSequence
from localspec.loading.places import most_texts
from localspec.speculation.draft import Draft

BEGUN = [1, *(3 + (7 * n * n + 11 * n) % 270 for n in range(60))]
OTHER = [*BEGUN[:40], *(5 + 13 * n % 250 for n in range(10))]
# The first is read in two passes beside others. The others are equally long, and so share decodes
# where there are running states.
SIDE_BY_SIDE = [
    [1, *(5 + 13 * n * n % 250 for n in range(150))],
    [1, *(4 + (3 * n * n + 17 * n) % 250 for n in range(60))],
    BEGUN,
]
OPTIONS = {"threads": 1, "context": 512, "kv_type": "f32", "flash_attention": False}
# Log-probabilities beside others differ by so much at most; those of a wrong state by 1 and more.
ROUNDING = 0.03


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


def test_texts_side_by_side(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What passes take is measured, and digits are tried, by the test above.
    profile = CostProfile({1: 1.0, 8: 2.0}, {model.stem: DrafterSeconds(0.1, 0.1, 0.01)})
    monkeypatch.setattr("localspec.loading.loader.calibrate", lambda *_: profile)
    monkeypatch.setattr("localspec.loading.equal_digits.measured", lambda *_: None)
    # With flash attention, unlike OPTIONS: texts share a cache, and decodes.
    with load(model, model, **OPTIONS | {"flash_attention": None}) as engine:
        results = engine.generate(
            SIDE_BY_SIDE,
            max_tokens=24,
            temperature=0.8,
            seed=5,
            depth=3,
            ignore_eos=True,
            logprobs=True,
        )
        params = ContextParams(OPTIONS["context"], kv_type=OPTIONS["kv_type"])
        with single_sequence(engine.model, params) as alone:
            for prompt, result in zip(SIDE_BY_SIDE, results, strict=True):
                expected = logprobs(alone, prompt, result.token_ids)
                assert result.logprobs == pytest.approx(expected, abs=ROUNDING)
    counts = [result.stats for result in results]
    # A draft that rounding has changed is rejected.
    assert sum(each.accepted for each in counts) > 0.8 * sum(each.drafted for each in counts) > 0
    shares = most_texts(read_header(model), OPTIONS["context"], branches=0) > 1
    assert any(each.shared_steps for each in counts) is shares


def logprobs(alone: KVSequence, prompt: list[int], tokens: list[int]) -> list[float]:
    """The log-probabilities of tokens behind a prompt, by one pass of a text without others."""
    alone.set_tokens(prompt[:-1])
    logits = alone.score(prompt[-1], Draft(tokens[:-1])).logits
    found = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return found[range(len(tokens)), tokens].tolist()


@pytest.mark.parametrize("arch", architectures.REFUSED)
def test_what_writes_no_text_token_by_token_is_refused(arch: str, tmp_path: Path) -> None:
    path = architectures.write(arch, tmp_path / "model.gguf")
    with pytest.raises(ModelLoadError, match=architectures.REFUSED[arch]):
        load(path, "none", **OPTIONS)
