"""Ollama's manifests and blobs: which models there are, and what is wrong with others."""

import json
from pathlib import Path

import pytest
from fakes.eagle3 import write_head
from fakes.other_tools import LAYER, OllamaStore

from localspec.imports.collection import Collection
from localspec.imports.ollama import is_ollama, ollama_collections
from localspec.models.registry import bundled

TARGET, DRAFTER = bundled()


@pytest.fixture
def store(tmp_path: Path) -> OllamaStore:
    return OllamaStore(tmp_path / "models")


def by_id(store: OllamaStore) -> dict[str, Collection]:
    return {each.id: each for each in ollama_collections(store.folder)}


def problem(store: OllamaStore) -> str:
    """What is wrong with the only model."""
    [found] = ollama_collections(store.folder)
    assert not found.models()
    [said] = found.problems.values()
    return said


def test_names_are_those_that_ollama_shows(store: OllamaStore) -> None:
    for name in (
        "llama3.2:3b",
        "registry.ollama.ai/somebody/owl:latest",
        "hf.co/zoo/tiny-GGUF:Q4_0",
        "example.org/a/b:c",
    ):
        store.add(name, {"model": TARGET})
    found = by_id(store)
    assert [*found] == [
        "example.org/a/b:c",
        "hf.co/zoo/tiny-GGUF:Q4_0",
        "llama3.2:3b",
        "somebody/owl:latest",
    ]
    repositories = {name: each.repository for name, each in found.items()}
    assert repositories["hf.co/zoo/tiny-GGUF:Q4_0"] == "zoo/tiny-GGUF"
    assert repositories["somebody/owl:latest"] is None
    assert is_ollama(store.folder) and not is_ollama(store.folder / "blobs")


def test_a_model_is_its_blob_named_after_its_tag_and_quantisation(store: OllamaStore) -> None:
    store.add("owl:9m", {"model": TARGET, "template": b"x", "license": b"y"}, quant="Q4_K_M")
    [found] = ollama_collections(store.folder)
    [(name, names)] = found.models().items()
    assert name == "ollama:owl:9m" and names.first == "owl-9m-Q4_K_M.gguf"
    blob = found.files[names.first]
    assert blob.parent == store.folder / "blobs" and blob.read_bytes() == TARGET.read_bytes()


def test_a_tag_that_names_its_quantisation_is_believed(store: OllamaStore) -> None:
    store.add("owl:9m-q8_0", {"model": TARGET}, quant="Q4_K_M")
    store.add("owl:odd", {"model": TARGET}, quant="../../x")
    found = by_id(store)
    assert [*found["owl:9m-q8_0"].files] == ["owl-9m-q8_0.gguf"]
    assert [*found["owl:odd"].files] == ["owl-odd.gguf"]


def test_a_drafter_of_a_model_lies_beside_it(store: OllamaStore, tmp_path: Path) -> None:
    head = write_head(tmp_path / "head.gguf")
    store.add("owl:head", {"model": TARGET, "draft": head}, quant="Q8_0")
    store.add("owl:small", {"model": TARGET, "draft": DRAFTER}, quant="Q8_0")
    found = by_id(store)
    assert [*found["owl:head"].files] == ["owl-head-Q8_0.gguf", "eagle3-owl-head.gguf"]
    assert [*found["owl:small"].models()] == [
        "ollama:owl:small:draft-owl-small.gguf",
        "ollama:owl:small",
    ]


def test_adapters_are_left_out_and_projectors_lie_beside_their_model(store: OllamaStore) -> None:
    store.add("owl:9m", {"model": TARGET, "adapter": b"a", "projector": b"p"})
    [found] = ollama_collections(store.folder)
    assert [*found.models()] == ["ollama:owl:9m"]
    assert "is an adapter" in found.problems["ollama:owl:9m:adapter"]
    assert [*found.files] == ["owl-9m.gguf", "mmproj.gguf"]


def test_of_a_list_of_manifests_that_for_llama_cpp_is_taken(store: OllamaStore) -> None:
    child = store.blob(json.dumps(store.manifest({"model": TARGET})).encode())
    other = {"runner": "mlx", **store.manifest({"tensor": b"t"})}
    both = {"manifests": [other, {"runner": "llamacpp", "digest": child}]}
    store.write("owl:both", json.dumps(both), root="manifests-v2")
    # Where both layouts have a tag, the newer one counts.
    store.write("owl:both", "{")
    store.write("owl:mlx", json.dumps({"manifests": [other]}))
    found = by_id(store)
    assert [*found["owl:both"].models()] == ["ollama:owl:both"]
    assert "for other runners only" in found["owl:mlx"].problems["ollama:owl:mlx"]


def test_a_blob_that_is_gone_is_said(store: OllamaStore) -> None:
    store.add("owl:9m", {"model": TARGET})
    for blob in (store.folder / "blobs").iterdir():
        blob.unlink()
    assert "has lost its file blobs/sha256-" in problem(store)
    assert "ollama pull owl:9m" in problem(store)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "has a broken manifest"),
        ("", "has a broken manifest"),
        ("[" * 100_000, "has a broken manifest"),
        ("[]", "a manifest that is no object"),
        ("{}", "a manifest without layers"),
        ('{"layers": {}}', "a manifest without layers"),
        ('{"layers": [1]}', "a manifest without layers"),
        ('{"layers": []}', "has no weights on this disk"),
        ('{"manifests": [1, {"runner": ["mlx"]}]}', "for other runners only"),
        ('{"manifests": [{"runner": "ollama", "digest": 5}]}', "names '5', which is no digest"),
    ],
)
def test_a_broken_manifest_is_one_line(store: OllamaStore, text: str, said: str) -> None:
    store.write("owl:9m", text)
    assert said in problem(store)


@pytest.mark.parametrize(
    "digest",
    [
        "sha256:../../../../etc/passwd",
        f"sha256:{'a' * 63}/",
        f"sha256:{'g' * 64}",
        f"sha256:{'a' * 64}\n",
        f"../{'a' * 64}",
        "",
        None,
        {"sha256": "x"},
    ],
    ids=str,
)
def test_a_digest_never_leads_out_of_the_folder(store: OllamaStore, digest: object) -> None:
    layers = [{"mediaType": f"{LAYER}model", "digest": digest}]
    store.write("owl:9m", json.dumps({"layers": layers}))
    assert "which is no digest" in problem(store)


def test_tensors_for_another_runner_are_no_gguf(store: OllamaStore) -> None:
    store.add("owl:9m", {"tensor": b"t"})
    assert "is no GGUF file" in problem(store)


def test_a_store_that_holds_something_else_is_read_as_far_as_it_goes(store: OllamaStore) -> None:
    store.add("owl:9m", {"model": TARGET})
    above = store.folder / "manifests" / "registry.ollama.ai" / "library" / "owl"
    (above / ".DS_Store").write_text("x")
    (above / "folder").mkdir()
    (above / "gone").symlink_to(above / "nowhere")
    found = by_id(store)
    assert [*found] == ["owl:9m", "owl:gone"]
    assert "cannot be read" in found["owl:gone"].problems["ollama:owl:gone"]
