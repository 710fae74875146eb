"""Options of placement without an effect: each is said in one line, and is no error."""

from pathlib import Path
from typing import Any

import pytest
from fakes.mtp import write_target
from fakes.pycode import PYCODE
from fakes.tiny import write_tiny

import localspec
from localspec.gguf.facts import facts_of
from localspec.llama import devices
from localspec.llama.placement import Placement
from localspec.loading.config import RuntimeConfig
from localspec.loading.placement_notes import drafter_note, rounding_note, target_notes
from localspec.models.registry import bundled

DENSE = bundled().target
HEADS = Path(__file__).parents[1] / "trained"
NO_GPU = "this build of llama.cpp finds no GPU"
ON_PROCESSOR = "all layers are on the processor"
ONLY = "A is the only device"
DESK = "10.0.0.7:50052"
NO_MODEL = "nothing that drafts has a model to place"


def said(engine: localspec.Engine) -> list[str]:
    """The notes about options without effect."""
    return [note for note in engine.notes if "no effect" in note]


@pytest.fixture(scope="module")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers are mixtures of experts."""
    return write_tiny(tmp_path_factory.mktemp("moe") / "moe.gguf", "qwen3moe")


@pytest.mark.parametrize(
    ("gpus", "asked", "expected"),
    [
        ([], {}, []),
        ([], {"gpu_layers": 0}, []),
        ([], {"gpu_layers": 20}, [f"gpu_layers 20 has no effect: {NO_GPU}"]),
        ([], {"gpu_layers": -1}, [f"gpu_layers -1 has no effect: {NO_GPU}"]),
        ([], {"gpu_layers": 9, "rpc": (DESK,)}, []),
        (["A"], {"gpu_layers": 20}, []),
        (["A"], {"gpu_layers": 9, "devices": ()}, [f"gpu_layers 9 has no effect: {ON_PROCESSOR}"]),
        (["A"], {"gpu_layers": 0, "rpc": (DESK,)}, [f"no layer is on {DESK}: gpu_layers is 0"]),
        (["A"], {"gpu_layers": 0, "devices": (DESK,)}, [f"no layer is on {DESK}: gpu_layers is 0"]),
        ([], {"split_mode": "row"}, [f"split_mode row has no effect: {NO_GPU}"]),
        (["A"], {"split_mode": "row"}, [f"split_mode row has no effect: {ONLY}"]),
        (["A", "B"], {"split_mode": "row"}, []),
        (
            ["A", "B"],
            {"split_mode": "row", "devices": ("A",)},
            [f"split_mode row has no effect: {ONLY}"],
        ),
        (
            ["A", "B"],
            {"split_mode": "row", "gpu_layers": 0},
            [f"split_mode row has no effect: {ON_PROCESSOR}"],
        ),
        ([], {"tensor_split": (3, 1)}, [f"tensor_split 3,1 has no effect: {NO_GPU}"]),
        (["A"], {"tensor_split": (1.5,)}, [f"tensor_split 1.5 has no effect: {ONLY}"]),
        (["A"], {"tensor_split": (3, 1), "rpc": (DESK,)}, []),
        ([], {"tensor_split": (3, 1), "rpc": (DESK,)}, []),
        (["A"], {"split_mode": "row", "devices": (DESK,)}, []),
        (
            ["A"],
            {"tensor_split": (3, 1), "devices": ()},
            [f"tensor_split 3,1 has no effect: {ON_PROCESSOR}"],
        ),
        (["A"], {"cpu_moe": 2}, [f"cpu_moe 2 has no effect: {DENSE.name} has no experts"]),
        ([], {"cpu_moe": -1}, [f"cpu_moe -1 has no effect: {DENSE.name} has no experts"]),
    ],
)
def test_what_of_a_targets_placement_has_no_effect(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], asked: dict[str, Any], expected: list[str]
) -> None:
    monkeypatch.setattr(devices, "usual_gpus", lambda: gpus)
    assert [*target_notes(Placement(**asked), facts_of(DENSE))] == expected


@pytest.mark.parametrize(
    ("gpus", "asked", "why"),
    [
        (["A"], {}, None),
        ([], {}, NO_GPU),
        (["A"], {"gpu_layers": 0}, ON_PROCESSOR),
        (["A"], {"devices": ()}, ON_PROCESSOR),
    ],
)
def test_experts_that_would_be_on_the_processor_anyway(
    monkeypatch: pytest.MonkeyPatch, moe: Path, gpus: list[str], asked: dict[str, Any], why: str
) -> None:
    monkeypatch.setattr(devices, "usual_gpus", lambda: gpus)
    said = [*target_notes(Placement(cpu_moe=1, **asked), facts_of(moe))]
    assert said == ([f"cpu_moe 1 has no effect: {why}"] if why else [])


def test_what_has_no_effect_is_loaded_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "usual_gpus", list)
    options: dict[str, Any] = {"max_tokens": 12, "seed": 1, "ignore_eos": True}
    with localspec.load(draft="none") as engine:
        plain = engine.generate("ls", **options).token_ids
        assert not said(engine)
    with localspec.load(
        draft="none", gpu_layers=4, split_mode="row", tensor_split=(3, 1), cpu_moe=2
    ) as engine:
        assert engine.generate("ls", **options).token_ids == plain
        assert [note.split()[0] for note in said(engine)] == [
            "gpu_layers",
            "split_mode",
            "tensor_split",
            "cpu_moe",
        ]


def test_flash_attention_that_reproducible_passes_have_not() -> None:
    with localspec.load(draft="none", reproducible=True, flash_attention=True) as engine:
        assert said(engine) == ["flash_attention=True has no effect: reproducible turns it off"]
    with localspec.load(draft="none", reproducible=True) as engine:
        assert not said(engine)


@pytest.mark.parametrize(
    ("draft", "expected"),
    [
        ("none", "draft_device has no effect: nothing drafts"),
        ("suffix", f"draft_device has no effect: {NO_MODEL}"),
        (
            str(HEADS / "medusa-terminal-9m-q8_0.gguf"),
            "draft_device has no effect: a head of this kind is always computed on the processor",
        ),
        (str(HEADS / "eagle3-terminal-9m-q8_0.gguf"), None),
        (str(bundled().drafter), None),
        (["suffix", str(bundled().drafter)], None),
    ],
)
def test_a_place_for_drafters_that_have_none(draft: Any, expected: str | None) -> None:
    with localspec.load(draft=draft, draft_device=["none"]) as engine:
        assert said(engine) == ([expected] if expected else [])
    with localspec.load(draft=draft) as engine:
        assert not said(engine)


def test_heads_inside_the_target_are_where_it_is(tmp_path: Path) -> None:
    target = write_target(tmp_path / "mtp.gguf")
    with localspec.load(target, "mtp", draft_device=["none"], draft_gpu_layers=1) as engine:
        assert said(engine) == [
            "draft_device and draft_gpu_layers have no effect: the heads inside the target are "
            "where the target is"
        ]


def test_layers_of_a_drafter_for_devices_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "usual_gpus", list)
    with localspec.load(draft=str(bundled().drafter), draft_gpu_layers=3) as engine:
        assert said(engine) == [f"draft_gpu_layers 3 has no effect: {NO_GPU}"]
    options: dict[str, Any] = {"draft_gpu_layers": 3, "draft_device": ["none"]}
    with localspec.load(draft=str(bundled().drafter), **options) as engine:
        assert said(engine) == [f"draft_gpu_layers 3 has no effect: {ON_PROCESSOR}"]


def test_it_follows_the_drafters_that_are_loaded() -> None:
    with localspec.load(draft=str(bundled().drafter), draft_device=["none"]) as engine:
        assert not said(engine)
        engine.switch(draft="suffix")
        assert said(engine) == [f"draft_device has no effect: {NO_MODEL}"]
        engine.switch(draft=str(bundled().drafter))
        assert not said(engine)


def test_a_place_that_names_nothing_needs_no_word() -> None:
    assert drafter_note(Placement(), []) is None


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        ("none", "nothing drafts"),
        ("suffix", "nothing that drafts has a model with a KV cache"),
        (str(HEADS / "medusa-terminal-9m-q8_0.gguf"), "a head of this kind has no KV cache"),
        (str(bundled().drafter), None),
    ],
)
def test_caches_that_no_drafter_has(draft: str, why: str | None) -> None:
    with localspec.load(draft=draft, draft_rope_scale=2, drafter_kv_type="q8_0") as engine:
        names = "draft_rope_scale and drafter_kv_type have no effect"
        assert said(engine) == ([f"{names}: {why}"] if why else [])
    with localspec.load(draft=draft) as engine:
        assert said(engine) == []


@pytest.mark.parametrize("flash", [None, False])
def test_a_cache_of_32_bits_has_the_digits_of_16_with_flash_attention(flash: bool | None) -> None:
    found = {}
    for kv_type in ("f16", "f32", "f32/f16"):
        options: Any = {"threads": 1, "context": 256, "flash_attention": flash}
        with localspec.load(PYCODE.target, "none", kv_type=kv_type, **options) as engine:
            notes = [note for note in engine.notes if note.startswith("kv_type ")]
            asked: Any = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
            text = engine.generate("def f(x):\n    return", logprobs=True, **asked)
        said = bool(notes) and notes[0].endswith("flash_attention=False reads all digits")
        assert said == (flash is None and kv_type != "f16")
        found[kv_type] = text.logprobs
    assert (found["f16"] == found["f32"]) == (flash is None)
    assert (found["f16"] == found["f32/f16"]) == (flash is None)


def test_what_is_said_of_a_cache_of_32_bits() -> None:
    both = RuntimeConfig(kv_type="f32/q8_0", drafter_kv_type="f32/f16")
    assert rounding_note(both, "kv_type") == (
        "kv_type f32/q8_0 gives the digits of f16/q8_0, which takes less memory: flash attention "
        "reads it as f16"
    )
    assert rounding_note(both, "drafter_kv_type") == (
        "drafter_kv_type f32/f16 gives the digits of f16, which takes less memory: flash attention "
        "reads it as f16; flash_attention=False reads all digits"
    )
    assert rounding_note(RuntimeConfig(kv_type="f32", reproducible=True), "kv_type") is None
