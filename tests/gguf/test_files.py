"""Which file of a repository is meant; file names as real repositories have them."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import ModelNotFoundError
from localspec.gguf.files import (
    PREFERRED,
    ModelFiles,
    NotListedError,
    choose_model,
    files_of,
    group_files,
)

QWEN = [
    ".gitattributes",
    "LICENSE",
    "Qwen3-8B-Q4_K_M.gguf",
    "Qwen3-8B-Q5_0.gguf",
    "Qwen3-8B-Q5_K_M.gguf",
    "Qwen3-8B-Q6_K.gguf",
    "Qwen3-8B-Q8_0.gguf",
    "README.md",
    "params",
]
# One model in one file and in parts, and others in parts only.
QWEN_CODER = [
    "qwen2.5-coder-7b-instruct-fp16-00001-of-00002.gguf",
    "qwen2.5-coder-7b-instruct-fp16-00002-of-00002.gguf",
    "qwen2.5-coder-7b-instruct-q4_k_m-00001-of-00002.gguf",
    "qwen2.5-coder-7b-instruct-q4_k_m-00002-of-00002.gguf",
    "qwen2.5-coder-7b-instruct-q4_k_m.gguf",
]
QWEN_FOLDERS = [
    f"{quant}/Qwen3-235B-A22B-{quant}-{part:05}-of-{count:05}.gguf"
    for quant, count in (("Q4_K_M", 5), ("Q8_0", 9))
    for part in range(1, count + 1)
]
BARTOWSKI = [
    "google_gemma-3-12b-it-IQ3_XXS.gguf",
    "google_gemma-3-12b-it-Q4_K_L.gguf",
    "google_gemma-3-12b-it-Q4_K_M.gguf",
    "google_gemma-3-12b-it-bf16.gguf",
    "google_gemma-3-12b-it-imatrix.gguf",
    "mmproj-google_gemma-3-12b-it-bf16.gguf",
    "mmproj-google_gemma-3-12b-it-f16.gguf",
]
UNSLOTH = [
    "MTP/mtp-gemma-4-E2B-it-BF16.gguf",
    "MTP/mtp-gemma-4-E2B-it-Q8_0.gguf",
    "gemma-4-E2B-it-Q4_K_M.gguf",
    "gemma-4-E2B-it-Q8_0.gguf",
    "gemma-4-E2B-it-UD-Q2_K_XL.gguf",
    "gemma-4-E2B-it-UD-Q4_K_XL.gguf",
    "mmproj-BF16.gguf",
    "mmproj-F16.gguf",
    "mtp-gemma-4-E2B-it.gguf",
]
UNSLOTH_DYNAMIC = [
    "BF16/Qwen3.6-35B-A3B-BF16-00001-of-00002.gguf",
    "BF16/Qwen3.6-35B-A3B-BF16-00002-of-00002.gguf",
    "Qwen3.6-35B-A3B-UD-Q4_K_M.gguf",
    "Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf",
    "Qwen3.6-35B-A3B-MXFP4_MOE.gguf",
]
GGML = [
    "gemma-4-12B-it-Q4_0.gguf",
    "mmproj-gemma-4-12B-it-Q8_0.gguf",
    "mtp-gemma-4-12B-it-Q4_0.gguf",
]
MISTRAL = [
    "Ministral-3-3B-Instruct-2512-BF16-mmproj.gguf",
    "Ministral-3-3B-Instruct-2512-BF16.gguf",
    "Ministral-3-3B-Instruct-2512-Q4_K_M.gguf",
    "Ministral-3-3B-Instruct-2512-Q8_0.gguf",
]
ALL = (QWEN, QWEN_CODER, QWEN_FOLDERS, BARTOWSKI, UNSLOTH, UNSLOTH_DYNAMIC, GGML, MISTRAL)


@pytest.mark.parametrize(
    ("files", "quant", "first"),
    [
        (QWEN, None, "Qwen3-8B-Q4_K_M.gguf"),
        (QWEN, "q8_0", "Qwen3-8B-Q8_0.gguf"),
        (QWEN, "Q5_k_M", "Qwen3-8B-Q5_K_M.gguf"),
        (QWEN_CODER, None, "qwen2.5-coder-7b-instruct-q4_k_m.gguf"),
        (QWEN_CODER, "F16", "qwen2.5-coder-7b-instruct-fp16-00001-of-00002.gguf"),
        (QWEN_CODER, "fp16", "qwen2.5-coder-7b-instruct-fp16-00001-of-00002.gguf"),
        (QWEN_FOLDERS, None, "Q4_K_M/Qwen3-235B-A22B-Q4_K_M-00001-of-00005.gguf"),
        (QWEN_FOLDERS, "q8_0", "Q8_0/Qwen3-235B-A22B-Q8_0-00001-of-00009.gguf"),
        (BARTOWSKI, None, "google_gemma-3-12b-it-Q4_K_M.gguf"),
        (BARTOWSKI, "BF16", "google_gemma-3-12b-it-bf16.gguf"),
        (BARTOWSKI, "iq3_xxs", "google_gemma-3-12b-it-IQ3_XXS.gguf"),
        (UNSLOTH, "Q8_0", "gemma-4-E2B-it-Q8_0.gguf"),
        (UNSLOTH, "ud-q4_k_xl", "gemma-4-E2B-it-UD-Q4_K_XL.gguf"),
        (UNSLOTH_DYNAMIC, None, "Qwen3.6-35B-A3B-UD-Q4_K_M.gguf"),
        (UNSLOTH_DYNAMIC, "mxfp4_moe", "Qwen3.6-35B-A3B-MXFP4_MOE.gguf"),
        (QWEN, "Q4", "Qwen3-8B-Q4_K_M.gguf"),
        (QWEN, "q5", "Qwen3-8B-Q5_K_M.gguf"),
        (QWEN, "Q8", "Qwen3-8B-Q8_0.gguf"),
        (QWEN, "Q5_K", "Qwen3-8B-Q5_K_M.gguf"),
        (QWEN_FOLDERS, "Q8_0", "Q8_0/Qwen3-235B-A22B-Q8_0-00001-of-00009.gguf"),
        (QWEN_CODER, QWEN_CODER[1], QWEN_CODER[0]),
        (UNSLOTH, "Q4_K_XL", "gemma-4-E2B-it-UD-Q4_K_XL.gguf"),
        (UNSLOTH, "UD-Q4", "gemma-4-E2B-it-UD-Q4_K_XL.gguf"),
        (UNSLOTH_DYNAMIC, "mxfp4", "Qwen3.6-35B-A3B-MXFP4_MOE.gguf"),
        (BARTOWSKI, "IQ3", "google_gemma-3-12b-it-IQ3_XXS.gguf"),
        (["m-Q4_0_4_4.gguf", "m-Q4_1.gguf"], "Q4", "m-Q4_1.gguf"),
        (["old/m.gguf", "new/m.gguf"], "new", "new/m.gguf"),
        (["imatrix/m-Q4_K_M.gguf", "imatrix/m.gguf"], None, "imatrix/m-Q4_K_M.gguf"),
        (["imatrix/m-IQ3_M.gguf", "m-Q8_0.gguf"], "IQ3_M", "imatrix/m-IQ3_M.gguf"),
        (GGML, None, "gemma-4-12B-it-Q4_0.gguf"),
        (MISTRAL, "BF16", "Ministral-3-3B-Instruct-2512-BF16.gguf"),
        (["gpt-oss-20b-MXFP4.gguf"], None, "gpt-oss-20b-MXFP4.gguf"),
        (["Llama-3.IQ2_XXS.gguf", "Llama-3.IQ2_M.gguf"], None, "Llama-3.IQ2_M.gguf"),
        (["model.gguf"], None, "model.gguf"),
    ],
)
def test_the_model_that_is_meant(files: list[str], quant: str | None, first: str) -> None:
    assert choose_model(files, quant, "user/repo").first == first


@pytest.mark.parametrize("files", ALL)
def test_the_order_of_the_files_does_not_matter(files: list[str]) -> None:
    shuffled = random.Random(1).sample(files, len(files))
    assert group_files(shuffled) == group_files(files)


@pytest.mark.parametrize("files", ALL)
def test_a_model_can_be_named_by_its_file(files: list[str]) -> None:
    for model in group_files(files):
        assert choose_model(files, model.first, "user/repo") == model
        assert choose_model(files, model.first.rpartition("/")[2], "user/repo") == model


@pytest.mark.parametrize("files", ALL)
def test_every_quantisation_that_is_listed_can_be_asked_for(files: list[str]) -> None:
    with pytest.raises(ModelNotFoundError) as refusal:
        choose_model(files, "Q1_X", "user/repo")
    listed = str(refusal.value).removeprefix("user/repo has no Q1_X; it has ").split(", ")
    assert {choose_model(files, label, "user/repo") for label in listed} == set(group_files(files))


def test_an_unknown_quantisation_lists_what_there_is() -> None:
    with pytest.raises(ModelNotFoundError) as refusal:
        choose_model(QWEN, "Q3_K_M", "Qwen/Qwen3-8B-GGUF")
    assert str(refusal.value) == (
        "Qwen/Qwen3-8B-GGUF has no Q3_K_M; it has Q4_K_M, Q5_0, Q5_K_M, Q6_K, Q8_0"
    )


def test_a_split_model_is_one_model_with_its_parts_in_order() -> None:
    assert [len(model.paths) for model in group_files(QWEN_FOLDERS)] == [5, 9]
    assert all(list(model.paths) == sorted(model.paths) for model in group_files(QWEN_FOLDERS))


def test_a_split_model_without_all_its_parts_is_none() -> None:
    for missing in QWEN_FOLDERS[:5]:
        files = [file for file in QWEN_FOLDERS if file != missing]
        assert choose_model(files, None, "user/repo").quant == "Q8_0"
        with pytest.raises(ModelNotFoundError, match="has no Q4_K_M; it has Q8_0"):
            choose_model(files, "Q4_K_M", "user/repo")


@pytest.mark.parametrize("stem", ["owl", "mtp-owl", "mmproj-owl"])
def test_parts_on_disk_are_found_by_their_names_alone(stem: str, tmp_path: Path) -> None:
    parts = tuple(tmp_path / f"{stem}-0000{number}-of-00002.gguf" for number in (1, 2))
    for file in (*parts, tmp_path / f"{stem}.gguf"):
        file.touch()
    assert files_of(parts[0]) == files_of(parts[1]) == parts
    assert files_of(tmp_path / f"{stem}.gguf") == (tmp_path / f"{stem}.gguf",)
    parts[1].unlink()
    assert files_of(parts[0]) == parts[:1]


def test_a_model_in_one_file_is_taken_before_its_parts() -> None:
    parts = [file for file in QWEN_CODER if "q4_k_m-0000" in file]
    assert choose_model(parts, "Q4_K_M", "user/repo") == ModelFiles(tuple(parts))
    assert choose_model(QWEN_CODER, "Q4_K_M", "user/repo").paths == (
        "qwen2.5-coder-7b-instruct-q4_k_m.gguf",
    )


def test_what_only_belongs_to_a_model_is_skipped() -> None:
    for files in ALL:
        for model in group_files(files):
            assert not any(word in model.first for word in ("mmproj", "mtp-", "imatrix"))
    with pytest.raises(ModelNotFoundError, match="holds no GGUF model"):
        choose_model(["mmproj-BF16.gguf", "imatrix.gguf"], None, "user/repo")


@pytest.mark.parametrize(
    "file",
    [
        "imatrix.gguf",
        "imatrix-Q8_0.gguf",
        "imatrix_unsloth.gguf",
        "Qwen3-8B.imatrix.gguf",
        "Qwen3-8B-Q4_K_M-imatrix.gguf",
        "Qwen3-8B-imatrix-BF16.gguf",
        "Imatrix/Qwen3-8B.gguf",
        "imatrix/Qwen3-8B-imatrix.gguf",
        "mmproj-model-f16.gguf",
        "Qwen3-VL-8B.mmproj-Q8_0.gguf",
        "Qwen3-VL-8B-MMPROJ-F16.gguf",
        "mmproj/Qwen3-VL-8B-F16.gguf",
    ],
)
def test_encoders_and_importance_matrices_are_never_models(file: str) -> None:
    assert group_files([file]) == []
    with pytest.raises(ModelNotFoundError) as refusal:
        choose_model([file, "model-Q2_K.gguf"], file, "user/repo")
    assert str(refusal.value) == f"{file} of user/repo is no language model; it has Q2_K"
    with pytest.raises(ModelNotFoundError, match=r"has no Q4_0; it has Q2_K$"):
        choose_model([file, "model-Q2_K.gguf"], "Q4_0", "user/repo")


def test_a_model_quantised_with_an_importance_matrix_is_one() -> None:
    (model,) = group_files(["Qwen3-8B-imatrix-IQ4_XS.gguf"])
    assert model.quant == "IQ4_XS"


@pytest.mark.parametrize(
    ("file", "quant"),
    [
        ("BF16/Qwen3-8B-00001-of-00001.gguf", "BF16"),
        ("fp16/model.gguf", "F16"),
        ("f16/model-00001-of-00001.gguf", "F16"),
        ("ggml-model-f16.gguf", "F16"),
        ("Qwen3-8B.fp16.gguf", "F16"),
        ("Qwen3-8B_bf16.gguf", "BF16"),
        ("Nemotron-3-30B-A3B-BF16-Q4_K_M.gguf", "Q4_K_M"),
        ("BF16/Nemotron-UD-IQ4_XS.gguf", "UD-IQ4_XS"),
    ],
)
def test_a_quantisation_is_read_off_the_path(file: str, quant: str) -> None:
    (model,) = group_files([file])
    assert model.quant == quant
    for written in {quant, quant.lower(), quant.replace("F16", "FP16")} - {"BFP16", "bfp16"}:
        assert choose_model([file, "other-Q2_K.gguf"], written, "user/repo") == model


def test_how_no_quantisation_begins_lists_what_there_is() -> None:
    for written in ("Q3", "Q", "K_M", "4"):
        with pytest.raises(ModelNotFoundError, match=f"has no {written}; it has Q4_K_M, Q5_0"):
            choose_model(QWEN, written, "user/repo")


@pytest.mark.parametrize(
    ("file", "quant"),
    [
        ("m-Q2_K_L.gguf", "Q2_K"),
        ("m-UD-Q4_K_XL.gguf", "Q4_K"),
        ("m-Q4_K_S.gguf", "Q4_K"),
        ("m-Q6_K_L.gguf", "q6_k"),
        ("m-UD-IQ3_XXS.gguf", "IQ3_XXS"),
    ],
)
def test_a_whole_label_means_no_other_one(file: str, quant: str) -> None:
    with pytest.raises(NotListedError, match=f"has no {quant}; it has"):
        choose_model([file], quant, "user/repo")


@pytest.mark.parametrize("quant", ["Q4", "Q5_K", "ud-q2", "Q4_K_XL"])
def test_a_beginning_is_no_exact_name(quant: str) -> None:
    files = [*QWEN[3:], *UNSLOTH[4:6]]
    assert choose_model(files, quant, "user/repo")
    with pytest.raises(NotListedError, match=f"has no {quant}; it has"):
        choose_model(files, quant, "user/repo", exact=True)


def test_several_models_that_begin_so_are_not_guessed_between() -> None:
    files = ["small-Q4_0.gguf", "large-Q4_0.gguf"]
    with pytest.raises(ModelNotFoundError, match="several models of that kind"):
        choose_model(files, "Q4", "user/repo")


def test_a_repository_of_heads_alone_is_one_of_drafters() -> None:
    heads = ["mmproj-BF16.gguf", "MTP/mtp-model-Q8_0.gguf", "MTP/mtp-model-Q4_0.gguf"]
    assert choose_model(heads, None, "user/repo").first == "MTP/mtp-model-Q4_0.gguf"
    assert choose_model(heads, "q8_0", "user/repo").first == "MTP/mtp-model-Q8_0.gguf"
    # Beside a model a head is named by its file.
    with pytest.raises(ModelNotFoundError, match=r"has no BF16; it has Q4_K_M, Q8_0, UD-Q2_K_XL"):
        choose_model(UNSLOTH, "BF16", "user/repo")
    named = choose_model(UNSLOTH, "mtp-gemma-4-E2B-it-BF16.gguf", "user/repo")
    assert named.first == "MTP/mtp-gemma-4-E2B-it-BF16.gguf"


@pytest.mark.parametrize("quant", [None, "Q8_0"])
def test_several_models_of_one_quantisation_are_not_guessed_between(quant: str | None) -> None:
    files = ["small-Q8_0.gguf", "large-Q8_0.gguf"]
    with pytest.raises(ModelNotFoundError) as refusal:
        choose_model(files, quant, "user/repo")
    assert str(refusal.value) == (
        "user/repo has several models of that kind (large-Q8_0.gguf, small-Q8_0.gguf); "
        "name one as user/repo:FILE"
    )
    assert choose_model(files, "small-Q8_0.gguf", "user/repo").first == "small-Q8_0.gguf"


def test_a_split_model_of_which_a_part_is_missing_is_named() -> None:
    files = ["Q8_0/owl-Q8_0-00001-of-00003.gguf", "Q8_0/owl-Q8_0-00003-of-00003.gguf", "README.md"]
    with pytest.raises(ModelNotFoundError) as refusal:
        choose_model(files, None, "user/repo")
    assert str(refusal.value) == (
        "user/repo has a split model that lacks Q8_0/owl-Q8_0-00002-of-00003.gguf"
    )


def test_a_repository_without_gguf_files_says_so() -> None:
    with pytest.raises(ModelNotFoundError, match="user/repo holds no GGUF model; name a") as error:
        choose_model(["README.md"], None, "user/repo")
    assert "convert" not in str(error.value)
    with pytest.raises(ModelNotFoundError, match="user/repo holds no GGUF model; name a") as error:
        choose_model(["model.safetensors", "README.md"], None, "user/repo")
    assert "maybe user/repo-GGUF; localspec convert makes" in str(error.value)


def test_files_and_folders_are_named_in_any_case() -> None:
    files = ["low/owl-Q2_K.gguf", "Low/Owl-Q2_K.gguf", "BF16/owl-BF16.gguf", "owl-Q4_0.gguf"]
    for wanted in ("OWL-q4_0.GGUF", "owl-Q4_0.gguf"):
        assert choose_model(files, wanted, "user/repo").first == "owl-Q4_0.gguf"
    for wanted in ("bf16/OWL-bf16.gguf", "owl-bf16.gguf", "bF16"):
        assert choose_model(files, wanted, "user/repo").first == "BF16/owl-BF16.gguf"
    # What is written exactly so comes first.
    assert choose_model(files, "Low/Owl-Q2_K.gguf", "user/repo").first == "Low/Owl-Q2_K.gguf"
    with pytest.raises(ModelNotFoundError, match="several models"):
        choose_model(files, "LOW/OWL-Q2_K.gguf", "user/repo")
    assert (
        choose_model(["Small/owl.gguf", "owl-Q4_0.gguf"], "small", "u/r").first == "Small/owl.gguf"
    )


@given(st.permutations(PREFERRED), st.integers(1, len(PREFERRED)))
def test_without_a_quantisation_the_best_preferred_one_is_taken(
    shuffled: list[str], count: int
) -> None:
    files = [f"model-{quant}.gguf" for quant in shuffled[:count]]
    best = min(shuffled[:count], key=PREFERRED.index)
    assert choose_model(files, None, "user/repo").quant == best
