"""Files of Medusa heads and MLP speculators: what is loaded, and what is refused in one line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from fakes.eagle3 import CONTEXT, WIDTH, write_target
from fakes.matrix_heads import HEADS, MedusaOracle, MlpOracle, write_medusa, write_mlp
from fakes.pycode import load
from fakes.tiny import N_VOCAB, write_tiny

from localspec.errors import DrafterMismatchError, LocalspecError, ModelLoadError
from localspec.gguf.check import check_drafter, check_generative
from localspec.gguf.facts import facts_of
from localspec.gguf.matrix_heads import MEDUSA, MLP, MatrixHead, matrix_head_of
from localspec.gguf.reader import read_header
from localspec.llama.context_params import ContextParams
from localspec.loading.matrix_heads import LoadedMatrixHead, checked_matrix_head
from localspec.memory.available import HOST, FreeMemory
from localspec.memory.memory_plan import best_plan
from localspec.memory.request import MemoryRequest
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.drafter import Evaluated, Limit, Outcome
from localspec.speculation.passes import OUTPUT, run

OPTIONS = {"threads": 1, "context": CONTEXT, "gpu_layers": 0}
Write = Callable[..., Path]
WRITERS: dict[str, Write] = {"medusa": write_medusa, "mlp-speculator": write_mlp}
ORACLES: dict[str, Any] = {"medusa": MedusaOracle, "mlp-speculator": MlpOracle}


@pytest.fixture(params=WRITERS)
def architecture(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def write(architecture: str) -> Write:
    return WRITERS[architecture]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return write_target(tmp_path / "target.gguf")


def drafted(head: LoadedMatrixHead, row: np.ndarray, text: list[int], depth: int) -> list[int]:
    """What heads draft from a row behind a text's last token but one."""
    drafter: Any = head.drafter(N_VOCAB)
    run(drafter.read(Evaluated(0, text[:-1], {OUTPUT: row[np.newaxis].astype(np.float32)})))
    drafter._text = text[:-1]
    drafter.observe(Outcome(text[-1:], 0))
    sampler = Sampler(SamplingParams(temperature=0), Noise(1))
    return [
        int(token)
        for token in run(drafter.passes(Limit(depth, sampler.prefix(text), sampler))).tokens
    ]


def test_what_a_file_says(tmp_path: Path) -> None:
    medusa = write_medusa(tmp_path / "medusa.gguf")
    assert matrix_head_of(medusa, check_drafter(medusa)) == MatrixHead(
        MEDUSA, HEADS, WIDTH, WIDTH, N_VOCAB, blocks=2
    )
    mlp = write_mlp(tmp_path / "mlp.gguf", inner=48)
    assert matrix_head_of(mlp, check_drafter(mlp)) == MatrixHead(
        MLP, 4, WIDTH, 48, N_VOCAB, scale_input=True
    )
    assert "Medusa" in str(facts_of(medusa).hidden_state_heads)
    assert "MLP" in str(facts_of(mlp).hidden_state_heads)


def test_heads_are_no_model(tmp_path: Path, write: Write) -> None:
    with pytest.raises(ModelLoadError, match="draft head, not a model"):
        check_generative(write(tmp_path / "heads.gguf"))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0"])
@pytest.mark.parametrize("output", ["own", "target"])
def test_drafts_are_those_of_the_oracle(
    tmp_path: Path, target: Path, architecture: str, kind: str, output: str
) -> None:
    path = WRITERS[architecture](tmp_path / "heads.gguf", kind=kind, output=output)
    of = facts_of(target)
    head = checked_matrix_head(of, facts_of(path))
    loaded = LoadedMatrixHead(path, head, of, threads=2)
    oracle = ORACLES[architecture](target, path)
    text = [1, 259, 30, 266, 271]
    found = drafted(loaded, oracle.row(text[:-1]), text, 4)
    assert len(found) == 4
    rows = oracle.draft_logits(text, found)
    # Products with Q8_0 round the vector to 8 bits.
    tolerance = {"F32": 1e-3, "F16": 0.05, "BF16": 0.2, "Q8_0": 0.5}[kind]
    for row, token in zip(rows, found, strict=True):
        assert row[token] > row.max() - tolerance
    assert loaded.seconds().first > 0


def test_texts_share_the_weights(tmp_path: Path, target: Path, write: Write) -> None:
    path = write(tmp_path / "heads.gguf")
    with load(target, draft=path, **OPTIONS) as engine:
        slots = [engine.slots.open() for _ in range(2)]
        [one], [two] = ([*slot.loaded.drafter_set.drafters] for slot in slots)
        assert one is not two
        shared = "_heads" if hasattr(one, "_heads") else "_stages"
        assert getattr(one, shared) is getattr(two, shared)
        assert engine.drafter_set.model_paths == [path]
        assert engine.drafter_set.sequences == {}
        assert engine.drafter_set.measured


def test_a_switch_to_them_keeps_the_text(tmp_path: Path, target: Path, write: Write) -> None:
    path = write(tmp_path / "heads.gguf")
    with load(target, draft="suffix", **OPTIONS) as engine:
        first = engine.generate([1, 5, 9], max_tokens=8, seed=2, ignore_eos=True)
        cached = list(engine.slots.own.target.tokens)
        assert len(cached) > 8
        engine.switch(draft=path)
        assert engine.slots.own.target.tokens == cached
        longer = [1, 5, 9, *first.token_ids]
        found = engine.generate(longer, max_tokens=8, seed=2, ignore_eos=True)
        engine.switch(draft="none")
        plain = engine.generate(longer, max_tokens=8, seed=2, ignore_eos=True)
        assert found.token_ids == plain.token_ids


def test_the_memory_plan_counts_them(tmp_path: Path, target: Path, write: Write) -> None:
    path = write(tmp_path / "heads.gguf")
    of, heads = facts_of(target), facts_of(path)
    free = FreeMemory({HOST: 1 << 40})
    without = best_plan(MemoryRequest(target=of, context=ContextParams(256)), free)
    request = MemoryRequest(target=of, context=ContextParams(256), matrix_heads=(heads,))
    assert best_plan(request, free).needed == without.needed + heads.size
    # Without an output matrix, they read the target's a second time.
    borrowing = facts_of(write(tmp_path / "borrowing.gguf", output="target"))
    [output] = [each.size for each in of.tensors if each.name == "output.weight"]
    with_output = best_plan(replace(request, matrix_heads=(borrowing,)), free).needed
    assert with_output == without.needed + borrowing.size + output
    # With a byte too few, the heads are refused, or left out if nobody named them.
    needed = best_plan(request, FreeMemory({HOST: without.needed})).needed
    little = FreeMemory({HOST: needed - 1})
    fixed = replace(request, fixed_context=True)
    assert "draft='suffix'" in str(best_plan(fixed, little).refusal)
    optional = best_plan(replace(fixed, optional_drafter=True), little)
    assert optional.refusal is None
    assert "heads.gguf is left out" in str(optional.no_drafter)


# What is refused.


@pytest.mark.parametrize("change", [{"width": 16}, {"tokens": N_VOCAB - 200}])
def test_heads_of_another_target(
    tmp_path: Path, target: Path, write: Write, change: dict[str, int]
) -> None:
    path = write(tmp_path / "heads.gguf", **change)
    with pytest.raises(DrafterMismatchError, match=r"heads\.gguf .*target\.gguf.*draft='suffix'"):
        load(target, draft=path, **OPTIONS)


def test_the_targets_output_must_fit(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ModelLoadError, match="no output matrix, and its rows of 48"):
        check_drafter(write_mlp(tmp_path / "mlp.gguf", inner=48, output="target"))


def test_a_build_that_cannot_multiply_is_said(
    tmp_path: Path, target: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.llama import library, matrix

    usual: Callable[..., object] = library.symbol
    monkeypatch.setattr(
        library,
        "symbol",
        lambda name, *rest: None if name == "ggml_mul_mat" else usual(name, *rest),
    )
    matrix._function.cache_clear()
    try:
        with pytest.raises(ModelLoadError, match="lacks ggml_mul_mat"):
            checked_matrix_head(facts_of(target), facts_of(write(tmp_path / "heads.gguf")))
    finally:
        matrix._function.cache_clear()


@pytest.mark.parametrize("family", ["gemma3", "mamba", "qwen35"])
def test_targets_of_any_kind(tmp_path: Path, write: Write, family: str) -> None:
    target = write_tiny(tmp_path / "target.gguf", family, quantised=False)
    path = write(tmp_path / "heads.gguf")
    options = {"max_tokens": 20, "temperature": 0.8, "seed": 1, "ignore_eos": True}
    exact = {**OPTIONS, "context": 128, "flash_attention": False, "kv_type": "f32"}
    with load(target, draft="none", **exact) as plain, load(target, draft=path, **exact) as engine:
        for depth in (2, 5):
            expected = plain.generate([1, 30, 40], **options)
            found = engine.generate([1, 30, 40], depth=depth, **options)
            assert found.token_ids == expected.token_ids
            assert found.stats.drafted


# Mutated files: each is refused in one line, or drafts.

NUMBERS = ("head_count", "embedding_length", "vocab_size", "block_count", "inner_length")
VALUES: tuple[Any, ...] = (None, 0, -1, 1, 3, 31, 33, 63, 2**24 + 1, 2**31, 1.5, "8", True)
PARTS = (
    *("head.0.", "head.1.", "block.0", "block.1", ".bias", ".output", "token_embd", ".proj"),
    *(".norm.weight", ".norm.bias", "head.2.proj", "head.3."),
)


def survives(path: Path, target: Path) -> bool:
    """Load the heads and draft with them; whether they were not refused."""
    of = facts_of(target)
    try:
        check_drafter(path)
        head = checked_matrix_head(of, facts_of(path))
        found = drafted(LoadedMatrixHead(path, head, of, 1), np.ones(WIDTH), [1, 2, 3], 4)
    except LocalspecError as error:
        assert "\n" not in str(error)
        assert "heads.gguf" in str(error) or "heads" in str(error)
        return False
    assert all(0 <= token < N_VOCAB for token in found)
    return True


@pytest.mark.parametrize("key", NUMBERS)
def test_numbers_that_do_not_fit(tmp_path: Path, target: Path, write: Write, key: str) -> None:
    path = tmp_path / "heads.gguf"
    kept = sum(survives(write(path, **{key: value}), target) for value in VALUES)
    # Fewer heads or blocks are no mistake, and later heads may share the tensors of the last one. A
    # key of the other kind is ignored.
    foreign = {"block_count": "mlp-speculator", "inner_length": "medusa"}.get(key)
    if read_header(path).architecture == foreign:
        assert kept == len(VALUES)
    else:
        assert kept <= {"head_count": 4, "block_count": 2}.get(key, 1)


@pytest.mark.parametrize("part", PARTS)
def test_tensors_that_are_missing(tmp_path: Path, target: Path, write: Write, part: str) -> None:
    path = tmp_path / "heads.gguf"
    whole = {tensor.name for tensor in read_header(write(path)).tensors}
    written = {tensor.name for tensor in read_header(write(path, leave=[part])).tensors}
    # Later heads may share the tensors of earlier ones, except for blocks; the first one's must be
    # there.
    optional = not any(name.startswith("head.0.") or ".block." in name for name in whole - written)
    shared_output = part == ".output"
    assert survives(path, target) == (optional or shared_output)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_headers(tmp_path: Path, target: Path, write: Write, seed: int) -> None:
    path = write(tmp_path / "heads.gguf")
    data, rng = path.read_bytes(), np.random.default_rng(seed)
    header = read_header(path).tensors[0].offset
    refused = 0
    for _ in range(8):
        damaged = bytearray(data)
        for place in rng.integers(0, header, 3):
            damaged[place] = rng.integers(0, 256)
        path.write_bytes(
            damaged[: int(rng.integers(header, len(data)))] if rng.random() < 0.3 else damaged
        )
        refused += not survives(path, target)
    assert refused


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_1", "I32", "F64"])
def test_types_that_are_not_read(tmp_path: Path, target: Path, write: Write, kind: str) -> None:
    path = write(tmp_path / "heads.gguf")
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path, read_header(path).architecture)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            writer.add_key_value(name, field.contents(), field.types[0])
    wanted = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[wanted]
    for tensor in reader.tensors:
        rows, columns = tensor.data.shape if tensor.data.ndim > 1 else (1, len(tensor.data))
        shape = tuple(int(each) for each in reversed(tensor.shape))
        if columns % block or tensor.data.ndim == 1:
            writer.add_tensor(tensor.name, np.array(tensor.data))
        else:
            raw = np.zeros((rows, columns // block * size), np.uint8)
            writer.add_tensor(tensor.name, raw, raw_dtype=wanted)
        assert shape
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert not survives(path, target)
