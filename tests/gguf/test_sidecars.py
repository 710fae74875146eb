"""Which drafters beside a target are chosen; names as real repositories have them."""

import random

import pytest

from localspec.gguf.files import ModelFiles, choose_model, group_files, sidecar_kind
from localspec.gguf.sidecars import best_sidecars, is_named_like

GGML = [
    "Qwen3.8-27B-Q4_K_M.gguf",
    "Qwen3.8-27B-Q8_0.gguf",
    "dflash-Qwen3.8-27B-Q8_0.gguf",
    "mmproj-Qwen3.8-27B-Q8_0.gguf",
    "mtp-Qwen3.8-27B-BF16.gguf",
    "mtp-Qwen3.8-27B-Q4_0.gguf",
    "mtp-Qwen3.8-27B-Q8_0.gguf",
]
UNSLOTH = [
    "MTP/mtp-gemma-4-E4B-it-BF16.gguf",
    "MTP/mtp-gemma-4-E4B-it-Q4_0.gguf",
    "gemma-4-E4B-it-Q8_0.gguf",
    "gemma-4-E4B-it-UD-Q4_K_XL.gguf",
    "mtp-gemma-4-E4B-it.gguf",
]
SPLIT = [
    "Q4_K_M/big-Q4_K_M-00001-of-00002.gguf",
    "Q4_K_M/big-Q4_K_M-00002-of-00002.gguf",
    "Q4_K_M/dspark-big-Q8_0.gguf",
    "Q8_0/big-Q8_0-00001-of-00002.gguf",
    "Q8_0/big-Q8_0-00002-of-00002.gguf",
    "dspark-big-Q4_K_M.gguf",
    "eagle3-big-BF16.gguf",
]
UNSORTED = [
    "gpt-oss-20b-mxfp4.gguf",
    "eagle3-gpt-oss-20b-BF16.gguf",
    "Eagle3-gpt-oss-20b-Q8_0.gguf",
]


@pytest.mark.parametrize(
    ("files", "quant", "found"),
    [
        # The same quantisation, else the closest number of bits.
        (GGML, "Q8_0", {"mtp": "mtp-Qwen3.8-27B-Q8_0.gguf"}),
        (GGML, "Q4_K_M", {"mtp": "mtp-Qwen3.8-27B-Q4_0.gguf"}),
        (GGML, "Q4_K_M", {"dflash": "dflash-Qwen3.8-27B-Q8_0.gguf"}),
        # A folder named after a kind counts as the one above it; a name without bits comes last.
        (UNSLOTH, "UD-Q4_K_XL", {"mtp": "MTP/mtp-gemma-4-E4B-it-Q4_0.gguf"}),
        (UNSLOTH, "Q8_0", {"mtp": "MTP/mtp-gemma-4-E4B-it-Q4_0.gguf"}),
        # The deepest folder that both share comes before the quantisation.
        (SPLIT, "Q4_K_M", {"dspark": "Q4_K_M/dspark-big-Q8_0.gguf"}),
        (SPLIT, "Q8_0", {"dspark": "dspark-big-Q4_K_M.gguf", "eagle3": "eagle3-big-BF16.gguf"}),
        (UNSORTED, None, {"eagle3": "Eagle3-gpt-oss-20b-Q8_0.gguf"}),
        (["model-Q8_0.gguf", "mmproj-F16.gguf"], None, {}),
    ],
)
def test_the_best_sidecar_of_each_kind(
    files: list[str], quant: str | None, found: dict[str, str]
) -> None:
    shuffled = random.Random(3).sample(files, len(files))
    target = choose_model(shuffled, quant, "user/repo")
    chosen = {kind: each.first for kind, each in best_sidecars(shuffled, target).items()}
    assert {kind: chosen.get(kind) for kind in found} == found
    assert found or not chosen


def test_a_sidecar_is_never_the_model() -> None:
    for files in (GGML, UNSLOTH, SPLIT, UNSORTED):
        assert not any(sidecar_kind(each.first) for each in group_files(files))


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("mtp-x-Q8_0.gguf", "mtp"),
        ("MTP/x-Q8_0.gguf", "mtp"),
        ("deep/er/Eagle3/x.gguf", "eagle3"),
        ("dflash-kquant.gguf", "dflash"),
        ("DSPARK-x.gguf", "dspark"),
        ("x-mtp-Q8_0.gguf", None),
        ("Qwen3.5-9B-DFlash.Q8_0.gguf", None),
        ("mtp/deep/x.gguf", None),
        ("mtp.gguf", None),
    ],
)
def test_the_kind_is_in_the_name(file: str, kind: str | None) -> None:
    assert sidecar_kind(file) == kind


@pytest.mark.parametrize(
    ("sidecar", "target", "alike"),
    [
        ("mtp-Qwen3.8-27B-Q4_0.gguf", "Qwen3.8-27B-UD-Q4_K_M.gguf", True),
        ("MTP/mtp-gemma-4-12b-it.gguf", "gemma-4-12b-it-Q4_K_M.gguf", True),
        ("dspark-big-Q8_0.gguf", "big-Q4_K_M-00001-of-00002.gguf", True),
        ("mtp-Qwen3.8-27B-Q4_0.gguf", "Qwen3.8-27B-abliterated-Q4_K_M.gguf", True),
        ("mtp-Qwen3.8-27B-Q4_0.gguf", "Qwen3.6-27B-Q4_K_M.gguf", False),
        ("mtp-Qwen3.8-2-Q4_0.gguf", "Qwen3.8-27B-Q4_K_M.gguf", False),
        ("dflash-kquant.gguf", "Muse-Glimmer-30B-UD-Q4_K_XL.gguf", False),
        ("mtp-Q4_0.gguf", "Qwen3.8-27B-Q4_K_M.gguf", False),
    ],
)
def test_names_tell_what_belongs_together(sidecar: str, target: str, alike: bool) -> None:
    assert is_named_like(ModelFiles((sidecar,)), ModelFiles((target,))) is alike
