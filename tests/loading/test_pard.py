"""A PARD model is named with `pard:`, or says itself that it is one."""

from pathlib import Path

import gguf
import pytest
from fakes.eagle3 import CONTEXT, write_head, write_target
from fakes.pard import MASK, write_pard
from fakes.pycode import load
from fakes.tiny import N_VOCAB

from localspec.drafters.draft_model import DraftModel
from localspec.drafters.pard import Pard
from localspec.drafters.spec import DrafterSpec, parse_draft
from localspec.errors import DrafterMismatchError, ModelNotFoundError
from localspec.gguf.mask_token import is_pard, mask_token
from localspec.gguf.reader import read_header

OPTIONS = {"threads": 1, "context": CONTEXT, "gpu_layers": 0}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


def with_key(source: Path, path: Path, key: str, value: int) -> Path:
    """A copy of a model with one more key."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(path, "llama")
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            of = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, of)
    writer.add_uint32(key, value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("pard:small.gguf", DrafterSpec("pard", "small.gguf")),
        ("pard=7:small.gguf", DrafterSpec("pard", "small.gguf", mask_token=7)),
        ("pard:user/repo:Q8_0", DrafterSpec("pard", "user/repo:Q8_0")),
        ("pard.gguf", DrafterSpec("draft-model", "pard.gguf")),
        ("pard=x:small.gguf", DrafterSpec("draft-model", "pard=x:small.gguf")),
    ],
)
def test_the_option(option: str, expected: DrafterSpec) -> None:
    assert parse_draft(option).specs == (expected,)
    assert parse_draft(["suffix", option]).specs[1] == expected


@pytest.mark.parametrize(
    "key",
    [
        "pard.mask_token_id",
        "pard_token",
        "llama.pard_token",
        "llama.pard.mask_token_id",
        "tokenizer.ggml.mask_token_id",
    ],
)
def test_the_file_names_the_mask_token(tmp_path: Path, key: str) -> None:
    path = with_key(write_pard(tmp_path / "plain.gguf"), tmp_path / "pard.gguf", key, MASK)
    header = read_header(path)
    assert mask_token(path, header) == MASK
    assert mask_token(path, header, given=5) == 5
    # A mask token in the vocabulary alone does not make a PARD model.
    assert is_pard(header) == (not key.startswith("tokenizer"))


def test_it_is_an_ordinary_draft_model_too_and_says_so(tmp_path: Path, target: Path) -> None:
    small = write_pard(tmp_path / "plain.gguf")
    path = with_key(small, tmp_path / "small.gguf", "pard.mask_token_id", MASK)
    with load(target, draft=path, **OPTIONS) as engine:
        [drafter] = engine.drafter_set.drafters
        assert type(drafter) is DraftModel
        assert any("draft='pard:small.gguf'" in note for note in engine.notes)
        engine.switch(draft=f"pard:{path}")
        [drafter] = engine.drafter_set.drafters
        assert isinstance(drafter, Pard)
        assert drafter.name == "small"
        assert not engine.notes
    with load(target, draft=small, **OPTIONS) as engine:
        assert not engine.notes


def test_a_model_that_names_no_mask_token_is_refused_with_the_way_out(
    tmp_path: Path, target: Path
) -> None:
    path = write_pard(tmp_path / "small.gguf")
    with pytest.raises(DrafterMismatchError) as refusal:
        load(target, draft=f"pard:{path}", **OPTIONS)
    assert "small.gguf does not name its mask token" in str(refusal.value)
    assert "pard=151670:small.gguf" in str(refusal.value)


@pytest.mark.parametrize("token", [N_VOCAB, 2**31])
def test_a_mask_token_that_is_not_there_is_refused(
    tmp_path: Path, target: Path, token: int
) -> None:
    small = write_pard(tmp_path / "small.gguf")
    path = with_key(small, tmp_path / "pard.gguf", "pard_token", token)
    with pytest.raises(DrafterMismatchError, match=rf"tokens 0 to {N_VOCAB - 1}.*is {token}"):
        load(target, draft=f"pard:{path}", **OPTIONS)


def test_a_head_is_no_pard_model(tmp_path: Path, target: Path) -> None:
    head = write_head(tmp_path / "head.gguf")
    with pytest.raises(DrafterMismatchError, match="head of kind eagle3"):
        load(target, draft=f"pard:{head}", **OPTIONS)


def test_a_file_that_is_not_there(target: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"there is no model file missing\.gguf"):
        load(target, draft="pard:missing.gguf", **OPTIONS)
