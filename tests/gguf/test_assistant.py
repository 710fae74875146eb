"""What the file of an assistant says about the target whose cache it reads."""

from pathlib import Path
from typing import Any

import gguf
import pytest
from fakes.assistant import LAYERS, AssistantShape, write_assistant, write_target
from fakes.eagle3 import HEADS, WIDTH
from fakes.gguf_document import parse
from fakes.tiny import write_tiny

from localspec.errors import DrafterMismatchError, ModelLoadError
from localspec.gguf.assistant import ASSISTANT
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.facts import facts_of
from localspec.gguf.heads import Head, head_of, kind_of, require_fitting
from localspec.memory import estimate
from localspec.models.head_compatibility import head_checks
from localspec.models.vocabulary_match import CheckResult


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


def fit(path: Path, target: Path) -> None:
    require_fitting(path, check_drafter(path), target, check_generative(target))


def rewritten(path: Path, **changes: Any) -> Path:
    """The file with other whole numbers as values of its own keys; None: without the key."""
    document = parse(path)
    for name, value in changes.items():
        entry = document.named(f"{document.architecture}.{name}")
        assert entry is not None
        if value is None:
            document.entries.remove(entry)
        else:
            entry.kind, entry.value = gguf.GGUFValueType.UINT32, value
    path.write_bytes(document.assembled())
    return path


def test_an_assistant_reads_what_leaves_the_last_layer(tmp_path: Path, target: Path) -> None:
    path = write_assistant(tmp_path / "assistant.gguf")
    header = check_drafter(path)
    assert kind_of(header) == ASSISTANT
    found = head_of(path, header, check_generative(target))
    assert found == Head(ASSISTANT, (len(LAYERS),), target_width=WIDTH, width=WIDTH, own=0)
    fit(path, target)
    fit(path, write_target(tmp_path / "shared.gguf", shared_layers=2))
    assert facts_of(path).hidden_state_heads == "Gemma 4 assistant head, for its own target"


def test_an_assistant_is_a_drafter_and_no_model(tmp_path: Path) -> None:
    path = write_assistant(tmp_path / "assistant.gguf")
    with pytest.raises(ModelLoadError, match="draft head, not a model"):
        check_generative(path)


def test_an_assistant_has_no_cache_of_its_own(tmp_path: Path) -> None:
    header = check_drafter(write_assistant(tmp_path / "assistant.gguf"))
    assert estimate.cache_bytes(header, 1000, mtp=True) == 0


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (AssistantShape(rows=48), "48 numbers"),
        (AssistantShape(shared=(2, 2)), "reads 2 key-value heads of 16 and 16 numbers in layer 3"),
        (AssistantShape(shared=(4, 1)), "reads 4 key-value heads of 8 and 8 numbers in layer 2"),
        (AssistantShape(key=(8, 32)), "reads 1 key-value heads of 32 and 32 numbers in layer 3"),
    ],
    ids=["rows", "heads without a window", "heads with a window", "keys"],
)
def test_another_shape_is_refused(
    tmp_path: Path, target: Path, shape: AssistantShape, words: str
) -> None:
    with pytest.raises(DrafterMismatchError, match=words):
        fit(write_assistant(tmp_path / "assistant.gguf", shape), target)


def test_a_target_of_another_family_is_refused(tmp_path: Path) -> None:
    path = write_assistant(tmp_path / "assistant.gguf")
    with pytest.raises(DrafterMismatchError, match=r"assistant of gemma4 models, and .* is gemma3"):
        fit(path, write_tiny(tmp_path / "tiny.gguf", "gemma3"))


@pytest.mark.parametrize(
    "layers", [(True, False, False, False), (False, True), (True, False, True)]
)
def test_windows_in_other_layers_are_refused(tmp_path: Path, layers: tuple[bool, ...]) -> None:
    path = write_assistant(tmp_path / "assistant.gguf")
    target = write_target(tmp_path / "target.gguf", layers=layers)
    with pytest.raises(DrafterMismatchError, match=r"of its target as one with(out)? a sliding"):
        fit(path, target)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"embedding_length_out": None}, "does not say how wide"),
        ({"nextn_predict_layers": 2}, "3 layers, of which 2 draft"),
        ({"nextn_predict_layers": None}, "3 layers, of which 0 draft"),
        ({"nextn_predict_layers": 9}, "nextn_predict_layers = 9"),
    ],
    ids=["width", "some layers", "no layers", "too many"],
)
def test_a_broken_file_is_refused(
    tmp_path: Path, target: Path, changes: dict[str, Any], words: str
) -> None:
    path = rewritten(write_assistant(tmp_path / "assistant.gguf"), **changes)
    with pytest.raises(ModelLoadError, match=words):
        fit(path, target)


@pytest.mark.parametrize("heads", [2, None])
def test_key_value_heads_may_be_equal_in_all_layers(tmp_path: Path, heads: int | None) -> None:
    # Without the key, there are as many as there are heads.
    shared = (heads or HEADS,) * 2
    target = write_target(tmp_path / "target.gguf", shared=shared)
    path = write_assistant(tmp_path / "assistant.gguf", AssistantShape(shared=shared))
    for each in (path, target):
        fit(path, target)
        rewritten(each, **{"attention.head_count_kv": heads})
    fit(path, target)


def test_pair_says_check_by_check_that_it_fits(tmp_path: Path, target: Path) -> None:
    path = write_assistant(tmp_path / "assistant.gguf")
    checks = {each.name: each for each in head_checks(facts_of(target), facts_of(path))}
    assert checks["kind"].verdict is CheckResult.FITS
    assert checks["hidden states"].verdict is CheckResult.FITS
    other = write_assistant(tmp_path / "other.gguf", AssistantShape(shared=(1, 1)))
    checks = {each.name: each for each in head_checks(facts_of(target), facts_of(other))}
    assert checks["hidden states"].verdict is CheckResult.UNFIT
