"""LoRA adapters as their files and options say them; those that llama.cpp would end on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from fakes.lora import write_lora
from fakes.tiny import N_VOCAB, WIDTH, tiny_model, write_tiny

from localspec.errors import InvalidValueError, ModelLoadError, ModelNotFoundError
from localspec.gguf.facts import facts_of
from localspec.gguf.lora import Lora, LoraFile, fitting_adapters, unused_note


def ones(*shape: int, kind: Any = np.float32) -> Any:
    return np.ones(shape, kind)


def fitting(path: Path, target: Path | None = None, scale: float = 1.0) -> LoraFile:
    [found] = fitting_adapters([Lora(path, scale)], facts_of(target or tiny_model("llama")))
    return found


def test_an_adapter_is_read_and_told(tmp_path: Path) -> None:
    def more(writer: gguf.GGUFWriter) -> None:
        writer.add_string("adapter.lora.task_name", "shells")
        writer.add_string("adapter.lora.prompt_prefix", "$")
        writer.add_string("general.base_model.0.name", "Tiny")

    norm = [("blk.0.attn_norm.weight", ones(WIDTH))]
    path = write_lora(tmp_path / "a.gguf", tiny_model("llama"), change=more, more=norm)
    found = fitting(path, scale=0.5)
    assert (found.rank, found.alpha, len(found.pairs), found.norms) == (4, 8.0, 15, 1)
    assert (found.task, found.prompt_prefix, found.base) == ("shells", "$", "Tiny")
    assert [*found.notes] == [
        "LoRA adapter a.gguf, scale 0.5: rank 4, 15 matrices of architecture llama; in F32, so "
        "drafts may change near-ties (not with reproducible)",
        "a.gguf: 1 norm left out, as llama.cpp reads its matrices only",
    ]
    assert sum(each.size for each in found.tensors) < path.stat().st_size
    assert unused_note([found], 15, "m.gguf") is unused_note([found], None, "m.gguf") is None
    assert "a.gguf: only 11 of 15 changes count" in str(unused_note([found], 11, "m.gguf"))


def test_types_that_give_one_row_other_digits(tmp_path: Path) -> None:
    target = tiny_model("llama")
    for kind, apart in (("F32", ["F32"]), ("F16", ["F16"]), ("BF16", ["BF16"]), ("Q8_0", [])):
        found = fitting(write_lora(tmp_path / f"{kind}.gguf", target, kind=kind, rank=32))
        assert found.types_apart == apart
        assert ("near-ties" in next(iter(found.notes))) == bool(apart)
    # The converter leaves matrices in floats that have no whole blocks.
    mixed = [(f"{QUERY}.lora_a", ones(32, WIDTH)), (f"{QUERY}.lora_b", ones(32, 32))]
    path = tmp_path / "mixed.gguf"
    write_lora(path, target, kind="Q8_0", rank=32, matrices=("attn_k",), more=mixed)
    assert fitting(path).types_apart == ["F32"]


def test_what_is_typed(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    odd = tmp_path / "b:2"
    for each in (file, odd):
        each.touch()
    assert Lora.parse(file) == Lora.parse(str(file)) == Lora(file, 1.0)
    assert Lora.parse(f"{file}:0.25") == Lora(file, 0.25)
    assert Lora.parse(f"{file}:-1") == Lora(file, -1.0)
    assert Lora.parse(str(odd)) == Lora.parse(odd) == Lora(odd, 1.0)
    assert Lora.parse(f"{odd}:3") == Lora(odd, 3.0)
    third = Lora(file, 1 / 3)
    assert Lora.parse(third.option) == third and str(third) == "a.gguf:0.333333"
    with pytest.raises(InvalidValueError, match=r"its scale 'half' is no number: write FILE"):
        Lora.parse(f"{file}:half")
    for scale in ("0", "nan", "inf", "1001", "-1e9"):
        with pytest.raises(InvalidValueError, match="its scale must be from -1000 to 1000 and not"):
            Lora.parse(f"{file}:{scale}")


Change = Callable[[gguf.GGUFWriter], Any]
KEYS: dict[str, tuple[Change, str]] = {
    "activated": (
        lambda writer: writer.add_array("adapter.alora.invocation_tokens", [5, 6]),
        "is an activated adapter",
    ),
    "of control vectors": (
        lambda writer: writer.kv_data[0].update(
            {"adapter.type": gguf.GGUFValue("control", gguf.GGUFValueType.STRING)}
        ),
        "is an adapter of type 'control', not lora",
    ),
    "of a list": (
        lambda writer: writer.kv_data[0].update(
            {
                "adapter.type": gguf.GGUFValue(
                    ["lora"], gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING
                )
            }
        ),
        "is an adapter whose type is no text, not lora",
    ),
    "a model": (
        lambda writer: writer.kv_data[0].pop("general.type"),
        r"is no LoRA adapter \(llama\); llama.cpp's convert_lora_to_gguf.py makes one",
    ),
    # llama.cpp ends on these two.
    "a number for a type": (
        lambda writer: writer.kv_data[0].update(
            {"general.type": gguf.GGUFValue(3, gguf.GGUFValueType.UINT32)}
        ),
        "is no LoRA adapter",
    ),
    "a long alpha": (
        lambda writer: writer.kv_data[0].update(
            {"adapter.lora.alpha": gguf.GGUFValue(8.0, gguf.GGUFValueType.FLOAT64)}
        ),
        "metadata key 'adapter.lora.alpha' has type 12, not 6",
    ),
    "no number": (
        lambda writer: writer.kv_data[0].update(
            {"adapter.lora.alpha": gguf.GGUFValue(float("nan"), gguf.GGUFValueType.FLOAT32)}
        ),
        "has the alpha nan, not a number",
    ),
}


@pytest.mark.parametrize("name", KEYS)
def test_keys_that_are_refused(name: str, tmp_path: Path) -> None:
    change, said = KEYS[name]
    path = write_lora(tmp_path / "a.gguf", tiny_model("llama"), change=change)
    with pytest.raises(ModelLoadError, match=said):
        fitting(path)


QUERY = "blk.0.attn_q.weight"
# Those without a comment make llama.cpp end the process, at load or with the first token.
TENSORS: dict[str, tuple[list[tuple[str, Any]], str]] = {
    "another width": (  # refused by llama.cpp, too
        [(f"{QUERY}.lora_a", ones(4, 40)), (f"{QUERY}.lora_b", ones(32, 4))],
        "changes 'blk.0.attn_q.weight' by matrices of 40x4 and 4x32, which is 32x32 in llama.gguf",
    ),
    "another rank": (  # refused by llama.cpp, too
        [(f"{QUERY}.lora_a", ones(4, WIDTH)), (f"{QUERY}.lora_b", ones(32, 8))],
        "by matrices of 32x4 and 8x32",
    ),
    "experts": (
        [(f"{QUERY}.lora_a", ones(3, 4, WIDTH)), (f"{QUERY}.lora_b", ones(1, 32, 4))],
        "by matrices of 32x4x3 and 4x32",
    ),
    "another rank of the embedding": (
        [
            ("token_embd.weight.lora_a", ones(N_VOCAB, 4)),
            ("token_embd.weight.lora_b", ones(WIDTH, 8)),
        ],
        "changes 'token_embd.weight' by matrices of",
    ),
    "whole numbers": (
        [
            (f"{QUERY}.lora_a", ones(4, WIDTH, kind=np.int32)),
            (f"{QUERY}.lora_b", ones(32, 4, kind=np.int32)),
        ],
        "stores tensor 'blk.0.attn_q.weight.lora_a' as I32, which llama.cpp cannot compute with",
    ),
    "one of two": ([(f"{QUERY}.lora_b", ones(32, 4))], "has no tensor 'blk.0.attn_q.weight.lora_a"),
    "a layer more": (
        [("blk.2.attn_q.weight.lora_a", ones(4, 32)), ("blk.2.attn_q.weight.lora_b", ones(32, 4))],
        "changes 'blk.2.attn_q.weight', which llama.gguf has not: it was made for another model",
    ),
    "a weight": (
        [(QUERY, ones(32, 32))],
        "has a tensor 'blk.0.attn_q.weight', which is no part of",
    ),
    "norms alone": ([("blk.0.attn_norm.weight", ones(32))], "changes no matrix; make it again"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_are_refused(name: str, tmp_path: Path) -> None:
    more, said = TENSORS[name]
    path = write_lora(tmp_path / "a.gguf", tiny_model("llama"), matrices=(), more=more)
    with pytest.raises(ModelLoadError, match=said):
        fitting(path)


def test_other_models_and_other_files(tmp_path: Path) -> None:
    path = write_lora(tmp_path / "a.gguf", tiny_model("qwen3"))
    with pytest.raises(ModelLoadError, match=r"for models of architecture 'qwen3', and llama\.gg"):
        fitting(path)
    with pytest.raises(ModelLoadError, match="is no LoRA adapter"):
        fitting(tiny_model("llama"))
    with pytest.raises(ModelNotFoundError):
        fitting(tmp_path / "none.gguf")
    peft = tmp_path / "peft"
    peft.mkdir()
    for file in (peft / "adapter_config.json", tmp_path / "adapter_model.safetensors"):
        file.touch()
    for other in (peft, tmp_path / "adapter_model.safetensors"):
        with pytest.raises(ModelLoadError, match=r"in another format; llama\.cpp's convert_lora"):
            fitting(other)


def test_an_embedding_that_is_the_output_too(tmp_path: Path, monkeypatch: Any) -> None:
    """llama.cpp ends when it multiplies with such an adapter."""
    target = tiny_model("llama")
    path = write_lora(tmp_path / "a.gguf", target, matrices=("token_embd",))
    assert fitting(path).rank == 4
    facts = facts_of(target)
    tied = [each for each in facts.tensors if each.name != "output.weight"]
    with pytest.raises(ModelLoadError, match=r"the output matrix of llama\.gguf as well"):
        fitting_adapters([Lora(path)], type(facts)(facts.files, facts.header, tied))


def test_more_adapters_than_are_added_in_one_order(tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "llama.gguf", "llama")
    paths = [
        write_lora(tmp_path / f"{seed}.gguf", target, seed=seed, matrices=("attn_q",))
        for seed in range(3)
    ]
    facts = facts_of(target)
    assert len(fitting_adapters([*map(Lora, paths[:2])], facts)) == 2
    # A third one decides the order of two, also where it changes other matrices.
    key, value = (
        write_lora(tmp_path / f"{name}.gguf", target, matrices=(name,))
        for name in ("attn_k", "attn_v")
    )
    both = r"of which 0\.gguf:1 and 1\.gguf:1 both change 'blk.0.attn_q.weight': of more than 2"
    for several in (paths, [*paths[:2], key], [key, *paths[:2]], [paths[0], key, paths[1]]):
        with pytest.raises(InvalidValueError, match=both):
            fitting_adapters([*map(Lora, several)], facts)
    with pytest.raises(InvalidValueError, match=r"0\.gguf:1 and 0\.gguf:0\.5 both change"):
        fitting_adapters([Lora(paths[0]), Lora(key), Lora(paths[0], 0.5)], facts)
    assert len(fitting_adapters([*map(Lora, [paths[0], key, value])], facts)) == 3
