"""A head that cannot read its target is refused before it ends the process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import families, mtp
from fakes.dflash import KINDS, write_block_head
from fakes.eagle3 import READS, SHAPES, HeadShape, write_head, write_target
from fakes.pycode import load
from fakes.tiny import write_tiny

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.facts import facts_of
from localspec.loading import head_check
from localspec.loading.head_check import checked_head
from localspec.utils.child_process import ChildExit

Check = Callable[..., Any]


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The heads that were tried out in a child process."""
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    names: list[str] = []
    run = head_check.run_hidden_states_probe

    def counted(target: Path, head: Path, *rest: Any, **options: Any) -> ChildExit:
        names.append(head.name)
        return run(target, head, *rest, **options)

    monkeypatch.setattr(head_check, "run_hidden_states_probe", counted)
    return names


@pytest.fixture
def check(tmp_path: Path, probed: list[str]) -> Check:
    def checked(shape: HeadShape = SHAPES["own"], *, family: str = "", **head: Any) -> Any:
        path = tmp_path / "target.gguf"
        if family in families.DEAF:
            target = families.target(family)
        else:
            target = write_tiny(path, family) if family else write_target(path)
        drafter = write_head(tmp_path / "head.gguf", shape, family=family or "llama", **head)
        return checked_head(
            facts_of(target, check_generative(target)), facts_of(drafter, check_drafter(drafter))
        )

    return checked


@pytest.mark.parametrize("shape", SHAPES)
def test_heads_of_all_shapes_fit_their_target(check: Check, shape: str) -> None:
    assert check(SHAPES[shape]).layers == READS


@pytest.mark.parametrize("kind", KINDS)
def test_heads_that_draft_blocks_fit_their_target(
    tmp_path: Path, probed: list[str], kind: str
) -> None:
    target = write_target(tmp_path / "target.gguf")
    head = write_block_head(tmp_path / "head.gguf", KINDS[kind][0])
    found = checked_head(facts_of(target), facts_of(head))
    assert found.layers == READS and found.block and probed == ["head.gguf"]


@pytest.mark.parametrize(
    ("kind", "without"),
    [
        ("dflash", "blk.1.attn_k_norm.weight"),
        ("dspark", "markov_w2.weight"),
        ("dflash2", "blk.0.ffn_conv_base"),
    ],
)
def test_a_head_without_a_tensor_is_refused(
    tmp_path: Path, probed: list[str], kind: str, without: str
) -> None:
    target = write_target(tmp_path / "target.gguf")
    head = write_block_head(tmp_path / "head.gguf", KINDS[kind][0], without=without)
    with pytest.raises(DrafterMismatchError, match=without):
        checked_head(facts_of(target), facts_of(head))


@pytest.mark.parametrize("family", ["gpt2", *families.DEAF])
def test_an_architecture_without_hidden_states_is_refused(
    check: Check, probed: list[str], family: str
) -> None:
    for _ in range(2):
        with pytest.raises(DrafterMismatchError) as refusal:
            check(family=family, reads=(0, 1, 1))
        assert str(refusal.value).startswith("head.gguf cannot draft for ")
        assert f"hidden rows of {family} cannot be read by this llama.cpp (" in str(refusal.value)
        assert str(refusal.value).endswith("use another drafter")


@pytest.mark.parametrize("family", ["qwen3", "qwen3moe", "qwen35"])
def test_architectures_with_hidden_states_are_not_refused(check: Check, family: str) -> None:
    check(family=family, reads=(0, 1, 1))


def test_a_pair_is_tried_out_once(check: Check, probed: list[str], tmp_path: Path) -> None:
    check()
    facts = [
        facts_of(tmp_path / name, check_drafter(tmp_path / name))
        for name in ("target.gguf", "head.gguf")
    ]
    checked_head(*facts)
    assert probed == ["head.gguf"]
    write_head(tmp_path / "head.gguf", reads=(1, 2, 3))
    checked_head(facts[0], facts_of(tmp_path / "head.gguf"))
    assert probed == ["head.gguf"] * 2


@pytest.mark.parametrize(
    "shape",
    [
        HeadShape(24, own_embedding=False),
        HeadShape(24, d2t=False, own_output=False),
        HeadShape(32, own_output=False),
    ],
    ids=["embedding of another width", "output of another width", "output of other tokens"],
)
def test_a_head_of_another_target_is_refused(check: Check, shape: HeadShape) -> None:
    with pytest.raises(DrafterMismatchError, match=r"head\.gguf does not fit target\.gguf: "):
        check(shape)


def test_a_layer_that_is_not_there_is_refused_without_a_try(
    check: Check, probed: list[str]
) -> None:
    with pytest.raises(DrafterMismatchError, match=r"layer 6, and target\.gguf has 5 layers"):
        check(reads=(1, 2, 6))
    assert not probed


@pytest.mark.parametrize(
    "ended",
    [
        ChildExit(-9, "begun", ""),
        ChildExit(-6, "begun", "GGML_ASSERT(ctx->mem_buffer != NULL) failed"),
        ChildExit(ModelLoadError.exit_code, "begun", "cannot be loaded: std::bad_alloc"),
    ],
)
def test_a_child_that_is_killed_or_lacks_memory_tells_nothing(
    ended: ChildExit, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(head_check, "run_hidden_states_probe", lambda *_, **__: ended)
        with pytest.raises(ModelLoadError):
            check()
    assert check().layers == READS


def test_where_no_process_can_be_started_it_is_said(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> ChildExit:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(head_check, "run_hidden_states_probe", refuse)
    with pytest.raises(ModelLoadError, match="Resource temporarily unavailable"):
        check()


def test_a_head_that_reads_the_last_rows_leaves_the_text(tmp_path: Path) -> None:
    trunk = mtp.write_target(tmp_path / "trunk.gguf", heads=0)
    sidecar = mtp.write_sidecar(tmp_path / "sidecar.gguf")
    options = {"max_tokens": 8, "seed": 2, "ignore_eos": True}
    with load(trunk, "suffix", threads=1, context=256, gpu_layers=0) as engine:
        first = engine.generate([1, 5, 9], **options)
        cached = list(engine.slots.own.target.tokens)
        assert len(cached) > 8
        engine.switch(draft=sidecar)
        assert engine.slots.own.target.tokens == cached
        longer = [1, 5, 9, *first.token_ids]
        found = engine.generate(longer, **options)
        engine.switch(draft="none")
        assert engine.generate(longer, **options).token_ids == found.token_ids
