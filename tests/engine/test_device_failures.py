"""A device that fails in the middle of texts: they go on, with the same tokens, and it is said.

With Metal only a line of the library's log tells of it; the logits are those of an earlier pass.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.failing_device import device_fails

import localspec
from localspec.engine.engine import Engine
from localspec.errors import LocalspecError

HEADS = Path(__file__).parents[1] / "trained"
PROMPTS = [
    [{"role": "user", "content": f"How do I {each}?"}]
    for each in ("list files by size", "find a word in all files")
]
OPTIONS: dict[str, Any] = {"max_tokens": 40, "seed": 5, "temperature": 0.8}
FAILED = "the device has failed"


@pytest.fixture(scope="module", params=["auto", "suffix", "none"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    options: dict[str, Any] = {"threads": 1, "context": 512, "gpu_layers": 0}
    with localspec.load(draft=request.param, reproducible=True, **options) as made:
        yield made


@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_text_goes_on(engine: Engine, after: int, later: bool) -> None:
    depth = 4 if engine.drafter_set.names else None
    expected = engine.generate(PROMPTS[0], depth=depth, **OPTIONS).token_ids
    before = engine.slot.target.context.renewals
    with device_fails(1, later=later, after=after) as left:
        found = engine.generate(PROMPTS[0], depth=depth, **OPTIONS)
    assert not left
    assert found.token_ids == expected
    renewed = engine.slot.target.context.renewals - before
    # The failure may have been in the drafter's own decode.
    assert renewed == 1 or (renewed == 0 and engine.drafter_set.names)
    if renewed:
        assert [note for note in engine.notes if note.startswith(FAILED)]


def test_texts_beside_each_other_go_on(engine: Engine) -> None:
    expected = [engine.generate(each, **OPTIONS).token_ids for each in PROMPTS]
    with device_fails(1, later=True, after=3) as left:
        found = engine.generate(PROMPTS, **OPTIONS)
    assert not left
    assert [each.token_ids for each in found] == expected


def test_a_device_that_fails_for_good_is_told_and_the_next_text_tries_again(engine: Engine) -> None:
    expected = engine.generate(PROMPTS[0], **OPTIONS).token_ids
    with device_fails(1000, later=True, after=1), pytest.raises(LocalspecError) as told:
        engine.generate(PROMPTS[0], **OPTIONS)
    assert "command buffer 0 failed with status 5" in str(told.value)
    assert engine.generate(PROMPTS[0], **OPTIONS).token_ids == expected
    assert [note for note in engine.notes if note.startswith(FAILED)]


@pytest.mark.parametrize("kind", ["eagle3", "dflash", "medusa"])
@pytest.mark.parametrize("after", [0, 1, 4, 5, 6, 7])
def test_heads_beside_the_target(kind: str, after: int) -> None:
    """A text goes on without a head that has failed; both are made anew."""
    head = HEADS / f"{kind}-terminal-9m-q8_0.gguf"
    options: dict[str, Any] = {"threads": 1, "context": 512, "gpu_layers": 0}
    with localspec.load(draft=str(head), reproducible=True, **options) as engine:
        undisturbed = engine.generate(PROMPTS[0], depth=3, **OPTIONS)
        with device_fails(1, later=True, after=after) as left:
            assert engine.generate(PROMPTS[0], depth=3, **OPTIONS).text == undisturbed.text
        assert not left
        # A head that has missed rows reads them with the next text.
        for _ in range(2):
            again = engine.generate(PROMPTS[0], depth=3, **OPTIONS)
            assert again.text == undisturbed.text
    assert engine.slot.target.context.renewals == 1
    assert again.stats.accepted == undisturbed.stats.accepted > 0
