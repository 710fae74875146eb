"""A head that cannot read its target is refused before it ends the process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes.eagle3 import READS, SHAPES, HeadShape, write_head, write_target
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
        target = write_tiny(path, family) if family else write_target(path)
        drafter = write_head(tmp_path / "head.gguf", shape, family=family or "llama", **head)
        return checked_head(
            facts_of(target, check_generative(target)), facts_of(drafter, check_drafter(drafter))
        )

    return checked


@pytest.mark.parametrize("shape", SHAPES)
def test_heads_of_all_shapes_fit_their_target(check: Check, shape: str) -> None:
    assert check(SHAPES[shape]).layers == READS


@pytest.mark.parametrize("family", ["gpt2", "mamba", "gemma3"])
def test_an_architecture_without_hidden_states_is_refused(
    check: Check, probed: list[str], family: str
) -> None:
    for _ in range(2):
        with pytest.raises(DrafterMismatchError) as refusal:
            check(family=family, reads=(0, 1, 1))
        assert str(refusal.value).startswith("head.gguf cannot draft for target.gguf: llama.cpp")
        assert "no hidden states of this architecture" in str(refusal.value)
        assert str(refusal.value).endswith("use --draft suffix")


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


def test_a_child_that_is_killed_tells_nothing(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = ChildExit(-9, "begun", "")
    with monkeypatch.context() as patch:
        patch.setattr(head_check, "run_hidden_states_probe", lambda *_, **__: killed)
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
