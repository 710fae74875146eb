"""A device that fails in the middle of texts: they go on, with the same tokens, and it is said.

With Metal only a line of the library's log tells of it; the logits are those of an earlier pass.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.failing_device import device_fails
from numpy.typing import NDArray

import localspec
from localspec.engine.engine import Engine
from localspec.errors import DeviceError, LocalspecError, ModelLoadError
from localspec.llama.context import Context

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
    contexts = contexts_of(engine)
    before = [each.renewals for each in contexts]
    with device_fails(1, later=later, after=after) as left:
        found = engine.generate(PROMPTS[0], depth=depth, **OPTIONS)
    assert not left
    assert found.token_ids == expected
    # The target is made anew, or a draft model, which reads its text again, too.
    assert sum(each.renewals for each in contexts) == sum(before) + 1
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


@pytest.fixture(scope="module", params=["eagle3", "dflash", "medusa"])
def with_head(request: pytest.FixtureRequest) -> Iterator[Engine]:
    head = HEADS / f"{request.param}-terminal-9m-q8_0.gguf"
    options: dict[str, Any] = {"threads": 1, "context": 512, "gpu_layers": 0}
    with localspec.load(draft=str(head), reproducible=True, **options) as made:
        yield made


@pytest.mark.parametrize("after", range(8))
def test_heads_beside_the_target(with_head: Engine, after: int) -> None:
    """A text goes on without a head that has failed, which reads the next text; only it is anew."""
    engine = with_head
    undisturbed = engine.generate(PROMPTS[0], depth=3, **OPTIONS)
    target, *heads = contexts_of(engine)
    before = counts(target, *heads)
    with device_fails(1, later=True, after=after) as left:
        assert engine.generate(PROMPTS[0], depth=3, **OPTIONS).text == undisturbed.text
    assert not left
    again = engine.generate(PROMPTS[0], depth=3, **OPTIONS)
    assert again.text == undisturbed.text
    assert again.stats.accepted == undisturbed.stats.accepted > 0
    failed, renewed = (counts(target, *heads) - before).T.tolist()
    assert sum(failed) == 1
    assert renewed == ([1] * (1 + len(heads)) if failed[0] else failed)
    assert [note for note in engine.notes if note.startswith(FAILED)]


def test_a_head_that_fails_drafts_the_next_text_also_where_the_depth_is_chosen(
    with_head: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [name] = with_head.drafter_set.names
    [head] = [*contexts_of(with_head)[1:]] or [None]
    if head is None:
        pytest.skip("a head of matrices is no context of its own")

    def origins() -> set[str]:
        return {each.drafter for each in with_head.generate(PROMPTS[0], **OPTIONS).stats.records}

    assert name in origins()
    failures = head.failures
    with monkeypatch.context() as patch:
        patch.setattr(head, "_run_batch", lambda: -3)
        assert name not in origins()
    assert head.failures == failures + 1
    assert name in origins()
    assert f"while {name} drafted" in "; ".join(with_head.notes)


@pytest.mark.parametrize("of_head", [False, True])
def test_a_context_that_cannot_be_made_anew_is_made_with_the_next_text(
    with_head: Engine, of_head: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No memory may be left just then. Without a head the text goes on, without its target not."""
    undisturbed = with_head.generate(PROMPTS[0], depth=3, **OPTIONS)
    target, *heads = contexts_of(with_head)
    if of_head and not heads:
        pytest.skip("a head of matrices is no context of its own")
    without = heads[0] if of_head else target

    def no_memory(*_args: Any) -> Any:
        raise ModelLoadError("no memory is left for the cache")

    monkeypatch.setattr(without, "new_handle", no_memory)
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(without, "_run_batch", lambda: -3)
            if of_head:
                found = with_head.generate(PROMPTS[0], depth=3, **OPTIONS)
                assert found.text == undisturbed.text
            else:
                with pytest.raises(DeviceError, match="no memory is left"):
                    with_head.generate(PROMPTS[0], depth=3, **OPTIONS)
        assert without.has_failed
    monkeypatch.undo()
    again = with_head.generate(PROMPTS[0], depth=3, **OPTIONS)
    assert (again.text, again.stats.accepted) == (undisturbed.text, undisturbed.stats.accepted)
    assert not without.has_failed


def counts(*contexts: Context) -> NDArray[np.int64]:
    """How often each has failed, and was made anew."""
    return np.array([(each.failures, each.renewals) for each in contexts])


def contexts_of(engine: Engine) -> list[Context]:
    """The target's context, then those that draft for it."""
    target = engine.slot.target.context
    drafting = [each.context for each in engine.drafter_set.sequences.values()]
    return [target, *(each for each in drafting if each is not target)]
