"""A device that fails in the middle of texts: they go on, with the same tokens, and it is said.

With Metal only a line of the library's log tells of it; the logits are those of an earlier pass.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakes.failing_device import device_fails, passes_refused
from fakes.machine import FakeClock
from fakes.tiny import write_tiny
from numpy.typing import NDArray

import localspec
import localspec.engine.scheduler as scheduler_module
from localspec.conversation.session import Session
from localspec.engine.engine import Engine
from localspec.engine.state_store import StateStore
from localspec.errors import DeviceError, LocalspecError, ModelLoadError, PassError
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
    before, told = counts(engine), failures_told(engine)
    with device_fails(1, later=later, after=after) as left:
        found = engine.generate(PROMPTS[0], depth=depth, **OPTIONS)
    assert not left
    assert found.token_ids == expected
    # The target is made anew, or a draft model, which reads its text again, too.
    assert (counts(engine) - before).sum(0).tolist() == [1, 1]
    assert failures_told(engine) not in (told, [])


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
    assert failures_told(engine)


@pytest.mark.parametrize("status", [1, 2, -2])
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen35", "mamba"])
def test_a_text_goes_on_without_a_drafter_whose_passes_are_refused(
    tmp_path: Path, family: str, after: int, status: int
) -> None:
    """Whatever llama.cpp refuses them for; the next text drafts as if nothing had happened."""
    path, prompt = write_tiny(tmp_path / "a.gguf", family), [1, 5, 6, 7, 8]
    options: dict[str, Any] = {"threads": 1, "context": 128, "gpu_layers": 0}
    asked = OPTIONS | {"depth": 3, "ignore_eos": True}
    with localspec.load(path, draft=path, **options) as engine:
        fresh = engine.generate(prompt, **asked)
        following = engine.generate([*prompt, 9], **asked)
    with localspec.load(path, draft=path, **options) as engine:
        [drafter] = engine.drafter_set.sequences.values()
        with passes_refused(drafter.context, status, after=after) as left:
            found = engine.generate(prompt, **asked)
        assert not left
        assert found.token_ids == fresh.token_ids
        assert found.stats.drafted < fresh.stats.drafted
        told = [note for note in engine.notes if "refused 1 decode while" in note]
        assert len(told) == 1
        again = engine.generate([*prompt, 9], **asked)
        assert again.token_ids == following.token_ids
        assert again.stats.accepted == again.stats.drafted > 0


def test_a_target_whose_passes_are_refused_ends_the_text(engine: Engine) -> None:
    expected = engine.generate(PROMPTS[0], **OPTIONS).token_ids
    target, told = engine.slots.own.target.context, list(engine.notes)
    with passes_refused(target, 1), pytest.raises(PassError, match=r"\(status 1,"):
        engine.generate(PROMPTS[0], **OPTIONS)
    assert list(engine.notes) == told
    assert engine.generate(PROMPTS[0], **OPTIONS).token_ids == expected


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
    longer = [*PROMPTS[0], {"role": "assistant", "content": undisturbed.text}, *PROMPTS[1]]
    undisturbed_longer = engine.generate(longer, depth=3, **OPTIONS)
    for prompt, expected in ((PROMPTS[0], undisturbed), (longer, undisturbed_longer)):
        before, told = counts(engine), failures_told(engine)
        with device_fails(1, later=True, after=after) as left:
            assert engine.generate(PROMPTS[0], depth=3, **OPTIONS).text == undisturbed.text
        assert not left
        again = engine.generate(prompt, depth=3, **OPTIONS)
        assert again.text == expected.text
        assert again.stats.accepted == expected.stats.accepted > 0
        failed, renewed = (counts(engine) - before).T.tolist()
        assert sum(failed) == 1
        assert renewed == ([1] * len(renewed) if failed[0] else failed)
        assert failures_told(engine) not in (told, [])


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_texts_that_share_the_caches_of_target_and_head(kind: str) -> None:
    """Wherever it fails, each text is the one that it is alone, and the next ones draft again."""
    head = HEADS / f"{kind}-terminal-9m-q8_0.gguf"
    options: dict[str, Any] = {"threads": 1, "context": 512, "gpu_layers": 0, "texts": 2}
    with localspec.load(draft=str(head), **options) as engine:
        expected = [engine.generate(each, depth=3, **OPTIONS).token_ids for each in PROMPTS]
        accepted = [each.stats.accepted for each in engine.generate(PROMPTS, depth=3, **OPTIONS)]
        for after in (*range(6), 11, 16, 20, 25):
            with device_fails(1, later=True, after=after) as left:
                found = engine.generate(PROMPTS, depth=3, **OPTIONS)
            assert not left
            assert [each.token_ids for each in found] == expected
            again = engine.generate(PROMPTS, depth=3, **OPTIONS)
            assert [each.token_ids for each in again] == expected
            assert [each.stats.accepted for each in again] == accepted
        assert counts(engine)[:, 0].all()


def test_what_else_is_done_with_a_lost_target(
    with_head: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Threads may change, and a text cannot be saved, while there is no memory."""
    expected = with_head.generate(PROMPTS[0], depth=3, **OPTIONS)
    (target, *_), store = contexts_of(with_head), StateStore(tmp_path)
    with Session(with_head, max_tokens=8) as session:
        list(session.send("List files"))
        lost = session._slot.target.context
        with monkeypatch.context() as patch:
            patch.setattr(lost, "new_handle", no_memory)
            with pytest.raises(DeviceError, match="no memory is left"):
                lost.renew()
            lost.set_threads(1)
            with pytest.raises(DeviceError, match="no memory is left"):
                session.save_state("a", store)
        assert session.save_state("a", store) is not None  # nothing is there to save
        list(session.send("And then?"))
        assert session.save_state("a", store) is None
    with monkeypatch.context() as patch:
        patch.setattr(target, "new_handle", no_memory)
        with pytest.raises(DeviceError, match="no memory is left"):
            target.renew()
        assert not target.hidden.layers
    assert with_head.generate(PROMPTS[0], depth=3, **OPTIONS).text == expected.text


def test_a_head_that_fails_drafts_the_next_text_also_where_the_depth_is_chosen(
    with_head: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    [name] = with_head.drafter_set.names
    target, *heads = contexts_of(with_head)
    if not heads:
        pytest.skip("a head of matrices is no context of its own")
    [head], clock = heads, FakeClock()

    def takes(context: Context, seconds: float) -> None:
        usual = context._timed_run

        def timed_run() -> float:
            usual()
            clock.now += seconds
            return seconds

        monkeypatch.setattr(context, "_timed_run", timed_run)

    # A pass of the target takes a second, whatever its rows, so that drafting pays on any machine.
    monkeypatch.setattr(scheduler_module, "running_clock", clock)
    takes(target, 1.0)
    takes(head, 0.001)

    def origins() -> set[str]:
        return {each.drafter for each in with_head.generate(PROMPTS[0], **OPTIONS).stats.records}

    assert name in origins()
    failures, told = head.failures, failures_told(with_head)
    with monkeypatch.context() as patch:
        patch.setattr(head, "_run_batch", lambda: -3)
        assert name not in origins()
    assert head.failures == failures + 1
    assert name in origins()
    assert failures_told(with_head) != told
    assert f"while {name} drafted" in failures_told(with_head)[0]


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


def no_memory(*_args: Any) -> Any:
    raise ModelLoadError("no memory is left for the cache")


def failures_told(engine: Engine) -> list[str]:
    return [note for note in engine.notes if note.startswith(FAILED)]


def counts(engine: Engine) -> NDArray[np.int64]:
    """How often each context has failed, and was made anew."""
    return np.array([(each.failures, each.renewals) for each in contexts_of(engine)])


def contexts_of(engine: Engine) -> list[Context]:
    """The target's context, then those that draft for it."""
    target = engine.slots.own.target.context
    drafting = [each.context for each in engine.drafter_set.sequences.values()]
    return [target, *(each for each in drafting if each is not target)]
