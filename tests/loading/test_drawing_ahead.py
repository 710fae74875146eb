"""Why a drafter on a device of its own draws nothing ahead is said, and only there."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import pycode
from fakes.ahead import give_each_model_a_device
from fakes.drafter_kinds import EXACT, write_pair
from fakes.mamba import write_mamba

import localspec
from localspec.conversation.session import Session
from localspec.llama.rollback import Rollback
from localspec.loading import drawing_ahead
from localspec.loading.drawing_ahead import SHARED_DEVICE, nothing_ahead, obstacle
from localspec.models.kinds import DRAFT_MODEL, HEADS, PARD, THROUGH_TEXT
from localspec.models.registry import bundled
from localspec.speculation.rules import RULES

A_HEAD = "a head drafts from hidden states of the target's last pass"
CODE = "def read_lines(path):\n    with open(path) as file:\n"


@pytest.fixture
def own_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    give_each_model_a_device(monkeypatch)


def said(engine: localspec.Engine) -> list[str]:
    """The notes about drawing ahead."""
    return [note for note in engine.notes if "ahead" in note]


def note(name: str, why: str) -> str:
    return (
        f"{name} has a device of its own, but draws nothing ahead while the target computes: {why}"
    )


@pytest.mark.parametrize(
    ("kind", "family", "expected"),
    [
        ("eagle3", "llama", [note("head", A_HEAD)]),
        ("dflash", "llama", [note("head", A_HEAD)]),
        ("mtp sidecar", "qwen35", [note("mtp-head", A_HEAD)]),
        ("assistant", "gemma4", [note("assistant", A_HEAD)]),
        ("pard", "llama", [note("pard", "a PARD model drafts all its tokens in one pass")]),
        # These have no device: they are in the target's model, or no model of the library.
        ("mtp inside", "qwen35", []),
        ("medusa", "llama", []),
    ],
)
def test_kinds_that_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, family: str, expected: list[str]
) -> None:
    pair = write_pair(kind, family, tmp_path)
    with monkeypatch.context() as patch:
        give_each_model_a_device(patch)
        with pycode.load(pair.target, draft=pair.draft, **EXACT) as engine:
            assert said(engine) == expected
    with pycode.load(pair.target, draft=pair.draft, **EXACT) as engine:
        assert not said(engine)


@pytest.mark.usefixtures("own_devices")
def test_draft_models_that_cannot(tmp_path: Path) -> None:
    other = bundled().drafter
    assert other
    recurrent = write_mamba(tmp_path / "mamba.gguf", pycode.PYCODE.target)
    with pycode.load(draft=str(other)) as engine:
        assert said(engine) == [note(other.stem, "its vocabulary is not the target's")]
        engine.switch(draft=str(recurrent))
        assert said(engine) == [note("mamba", "its cache cannot be cut at any token")]
        engine.switch(draft=["suffix", str(pycode.PYCODE.drafter)])
        assert not said(engine)


@pytest.mark.parametrize("kind", [DRAFT_MODEL, PARD, THROUGH_TEXT, *sorted(HEADS)])
def test_a_shared_device_is_the_first_reason(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """A kind that cannot is no news where no drafter could."""
    monkeypatch.setattr(drawing_ahead, "devices_of", lambda model: model)

    def found(own: set[str], theirs: set[str]) -> str | None:
        drafter: Any = SimpleNamespace(model=own, rollback=Rollback.PARTIAL)
        return obstacle(kind, drafter, SimpleNamespace(model=theirs))  # type: ignore[arg-type]

    assert found({"a", "b"}, {"b", "c"}) == SHARED_DEVICE
    reason = found({"a"}, {"b", "c"})
    assert (reason is None) == (kind == DRAFT_MODEL)
    assert reason != SHARED_DEVICE


def why_nothing(engine: localspec.Engine, rule: str, **options: Any) -> str | None:
    """Why nothing was drawn ahead in a text."""
    result = engine.generate(CODE, seed=1, ignore_eos=True, rule=rule, **options)
    return nothing_ahead(engine.drafter_set, RULES[rule], result.stats)


@pytest.mark.usefixtures("own_devices")
@pytest.mark.parametrize("rule", ["token", "block"])
def test_rules_that_keep_no_text(rule: str) -> None:
    expected = f"under rule {rule} the target draws the token after a draft by itself"
    drafter = str(pycode.PYCODE.drafter)
    with pycode.load(draft=["suffix", drafter]) as engine:
        name = pycode.PYCODE.drafter.stem
        assert why_nothing(engine, rule, max_tokens=16, depth=3, drafter=name) == expected
        assert why_nothing(engine, "coupled", max_tokens=32, depth=3, drafter=name) is None
        # Nothing could be expected of a text that it did not draft for.
        assert why_nothing(engine, rule, max_tokens=16, depth=3, drafter="suffix") is None
        assert why_nothing(engine, rule, max_tokens=16, depth=0) is None


@pytest.mark.usefixtures("own_devices")
def test_a_text_that_is_too_short() -> None:
    """The only draft reaches to its end."""
    with pycode.load(draft=str(pycode.PYCODE.drafter)) as engine:
        why = why_nothing(engine, "coupled", max_tokens=3, depth=1, temperature=0)
    assert why
    assert why.startswith("the text or the target's passes were too short")


@pytest.mark.usefixtures("own_devices")
def test_room_for_several_texts() -> None:
    """`localspec serve` makes room for several when it begins."""
    name = pycode.PYCODE.drafter.stem
    with pycode.load(draft=["suffix", str(pycode.PYCODE.drafter)]) as engine:
        with Session(engine):
            assert not said(engine)
            with Session(engine):
                assert said(engine) == [
                    note(
                        name,
                        "it does so only where there is room for one text, not for 2 (texts=1)",
                    )
                ]
                engine.switch(draft="suffix")
                assert not said(engine)
        assert not said(engine)


@pytest.mark.parametrize("rule", ["coupled", "token"])
def test_on_one_device_there_is_nothing_to_say(rule: str) -> None:
    with pycode.load(draft=str(pycode.PYCODE.drafter)) as engine:
        assert why_nothing(engine, rule, max_tokens=16, depth=3) is None
        with Session(engine), Session(engine):
            assert not said(engine)
