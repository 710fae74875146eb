"""Published EAGLE-3 heads are converted: llama.cpp computes what their published weights say."""

import json
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
from fakes.eagle3 import LAYERS, READS, SHAPES, WIDTH, HeadShape, write_head, write_target
from fakes.numpy_llama import Tensors
from fakes.published import (
    PublishedEagle3,
    eagle3_config,
    eagle3_tensors,
    published,
    write_safetensors,
)
from fakes.pycode import load
from fakes.tiny import N_VOCAB

from localspec.conversion.convert import Origin, convert
from localspec.errors import (
    DrafterMismatchError,
    InvalidValueError,
    LocalspecError,
    ModelLoadError,
    ModelNotFoundError,
)
from localspec.gguf.reader import read_header
from localspec.llama.context import Context
from localspec.llama.context_params import ContextParams
from localspec.llama.head_context import HeadContext
from localspec.llama.model import Model
from localspec.llama.placement import ON_PROCESSOR
from localspec.models.own_drafters import own_drafters
from localspec.speculation.passes import Pass

TOOL = os.environ.get("LLAMA_SPECULATIVE_SIMPLE", "")
EXACT = {"flash_attention": False, "kv_type": "f32", "threads": 1}
TEXT = [1, 259, 30, 266, 271, 90, 275, 40, 262, 3, 270, 261]
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
WHOLE = SHAPES["own"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_target(tmp_path_factory.mktemp("target") / "tiny-1m-F32.gguf")


class Made:
    """A published head: its folder, and the forward of what was published."""

    def __init__(
        self,
        folder: Path,
        target: Path,
        shape: HeadShape = WHOLE,
        layer: str = "midlayer.",
        drop: tuple[str, ...] = (),
        **config: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.tensors = eagle3_tensors(write_head(folder / "made.gguf", shape), layer)
        self.tensors = {name: each for name, each in self.tensors.items() if name not in drop}
        self.config = eagle3_config(
            shape.width,
            norm_before_residual=shape.before_residual,
            norm_before_fc=shape.before_fc,
            target_hidden_size=WIDTH,
            **config,
        )
        (folder / "made.gguf").unlink()
        self.folder = published(folder, self.tensors, self.config)
        self.forward = PublishedEagle3(
            target, self.tensors, self.config, before_residual=shape.before_residual
        )

    def again(self) -> Path:
        """The folder, with the tensors and the config as they are now."""
        return published(self.folder, self.tensors, self.config)


@pytest.fixture
def made(tmp_path: Path, target: Path) -> Made:
    return Made(tmp_path / "head", target)


def computed(target: Path, head: Path, forward: PublishedEagle3) -> np.ndarray:
    """The logits of llama.cpp behind each token of TEXT but the first."""
    with Model(target, ON_PROCESSOR) as model, Model(head, ON_PROCESSOR) as own:
        params = ContextParams(64, **EXACT)
        context = Context(model, params)
        width = len(READS) * WIDTH
        heads = HeadContext(own, params, target=context, encoder_width=width)
        try:
            sequence = heads.new_sequence()
            rows = forward.features(TEXT[:-1]).astype(np.float32)
            one = Pass(sequence, (), wanted=0, hidden=(1,), embeddings=rows, encode=True)
            states = heads.decode([one])[0].hidden[1].copy()
            last = Pass(sequence, TEXT[1:], wanted=len(states), hidden=(1,), embeddings=states)
            return heads.decode([last])[0].logits.copy()
        finally:
            heads.close()
            context.close()


def require_equal(target: Path, head: Path, forward: PublishedEagle3) -> None:
    found, expected = computed(target, head, forward), forward.logits(TEXT)
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(found), finite)
    assert np.abs(found[finite] - expected[finite]).max() < 1e-4


@pytest.mark.parametrize("layer", ["midlayer.", "layers.0.", "model.layers.0."])
def test_layouts(tmp_path: Path, target: Path, layer: str) -> None:
    head = Made(tmp_path / "head", target, layer=layer.removeprefix("model."))
    if layer.startswith("model."):
        names = {f"model.{name}": each for name, each in head.tensors.items()}
        published(head.folder, names, head.config)
    done = convert(head.folder, target, tmp_path / "out.gguf", "F32")
    assert done.kind == "eagle3"
    require_equal(target, done.path, head.forward)


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(tmp_path: Path, target: Path, shape: str) -> None:
    head = Made(tmp_path / "head", target, SHAPES[shape])
    done = convert(head.folder, target, tmp_path / "out.gguf", "F32")
    require_equal(target, done.path, head.forward)


def test_speculators_of_red_hat(tmp_path: Path, target: Path) -> None:
    """Sizes in an object of their own; tensors that only training needs."""
    head = Made(tmp_path / "head", target, SHAPES["other norms"], layer="layers.0.")
    own = {key: head.config.pop(key) for key in ("hidden_size", "num_attention_heads")}
    own |= {"intermediate_size": head.config.pop("intermediate_size")}
    head.config |= {"speculators_version": "0.3", "transformer_layer_config": own}
    del head.config["norm_before_residual"]
    head.tensors["verifier_norm.weight"] = np.ones(WIDTH, np.float32)
    done = convert(head.again(), target, tmp_path / "out.gguf", "F32")
    require_equal(target, done.path, head.forward)


def test_positions_as_in_llama_3(tmp_path: Path, target: Path) -> None:
    head = Made(tmp_path / "head", target, rope_scaling=LLAMA3)
    done = convert(head.folder, target, tmp_path / "out.gguf", "F32")
    assert len({*Tensors(done.path)["rope_freqs.weight"].tolist()}) > 1
    require_equal(target, done.path, head.forward)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_other_scaled_positions(tmp_path: Path, target: Path, kind: str) -> None:
    scaling = {"rope_type": kind, "factor": 4.0, "original_max_position_embeddings": 128}
    head = Made(tmp_path / "head", target, rope_scaling=scaling)
    metadata = read_header(convert(head.folder, target, tmp_path / "out.gguf").path).metadata
    assert metadata["eagle3.rope.scaling.type"] == kind
    assert metadata["eagle3.rope.scaling.factor"] == 4.0


@pytest.mark.parametrize("attention", [{}, {"attention_factor": 1.6}])
def test_positions_of_yarn(tmp_path: Path, target: Path, attention: dict[str, float]) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    head = Made(tmp_path / "head", target, rope_scaling={**scaling, **attention})
    done = convert(head.folder, target, tmp_path / "out.gguf", "F32")
    require_equal(target, done.path, head.forward)


def metadata_of(head: Made, target: Path, **config: Any) -> tuple[dict[str, Any], str]:
    """The positions in a converted file, and what was said."""
    head.config |= config
    head.again()
    out = head.folder / "out.gguf"
    out.unlink(missing_ok=True)
    done = convert(head.folder, target, out)
    found = read_header(done.path).metadata
    return {key.removeprefix("eagle3.rope."): found[key] for key in found}, " ".join(done.notes)


def test_what_config_json_says_of_positions(made: Made, target: Path) -> None:
    found, _ = metadata_of(
        made, target, rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6}
    )
    assert found["freq_base"] == 1e6
    found, said = metadata_of(made, target, rope_theta="500000.0", rope_parameters=None)
    assert found["freq_base"] == 5e5 and "llama.cpp's EAGLE-3" not in said
    yarn = {"rope_type": "yarn", "factor": "4", "beta_fast": 64, "truncate": False}
    found, said = metadata_of(made, target, rope_scaling=yarn)
    assert found["scaling.factor"] == 4 and "scaling.original_context_length" not in found
    assert "says beta_fast = 64, truncate = False, and llama.cpp's EAGLE-3 computes with" in said
    mixed = {"rope_type": "yarn", "factor": 4.0, "mscale": 0.7, "mscale_all_dim": 1.0}
    found, _ = metadata_of(made, target, rope_scaling=mixed)
    wanted = (0.07 * np.log(4) + 1) / (0.1 * np.log(4) + 1) ** 2
    assert found["scaling.attn_factor"] == pytest.approx(wanted)
    none = {"rope_scaling": None, "sliding_window": 128}
    assert "sliding_window = 128" in metadata_of(made, target, **none)[1]
    assert "sliding" not in metadata_of(made, target, layer_types=["full_attention"])[1]


def test_a_missing_output_matrix_is_the_targets(tmp_path: Path, target: Path) -> None:
    """The rows of the tokens that the head drafts."""
    shape = HeadShape(WIDTH, own_embedding=False)
    head = Made(tmp_path / "head", target, shape, drop=("lm_head.weight",))
    done = convert(head.folder, target, tmp_path / "out.gguf", "F32")
    assert "the output matrix is the target's" in done.notes
    require_equal(target, done.path, head.forward)


def test_an_embedding_that_is_the_targets_is_left_out(tmp_path: Path, target: Path) -> None:
    head = Made(tmp_path / "head", target, HeadShape(WIDTH, own_embedding=False))
    noise = np.random.default_rng(0).standard_normal((N_VOCAB, WIDTH)) * 0.01
    head.tensors["embed_tokens.weight"] = (Tensors(target)["token_embd.weight"] + noise).astype(
        "f4"
    )
    done = convert(head.again(), target, tmp_path / "out.gguf", "F32")
    assert "token_embd.weight" not in Tensors(done.path)
    require_equal(target, done.path, head.forward)


def test_tokens_in_d2t(tmp_path: Path, target: Path) -> None:
    """A few checkpoints store the tokens themselves; t2d tells."""
    head = Made(tmp_path / "head", target)
    plain = convert(head.folder, target, tmp_path / "plain.gguf", "F32").path
    head.tensors["d2t"] = head.tensors["d2t"] + np.arange(len(head.tensors["d2t"]))
    done = convert(head.again(), target, tmp_path / "out.gguf", "F32")
    assert np.array_equal(Tensors(done.path)["d2t"], Tensors(plain)["d2t"])


@pytest.mark.parametrize(
    ("named", "layers"),
    [
        ({"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}, [2, 3, 4]),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]}}, [2, 3, 5]),
        ({"eagle_aux_hidden_state_layer_ids": None}, [2, 2, 2]),
    ],
    ids=["inputs", "outputs", "none"],
)
def test_layers(tmp_path: Path, target: Path, named: dict[str, Any], layers: list[int]) -> None:
    head = Made(tmp_path / "head", target, **named)
    done = convert(head.folder, target, tmp_path / "out.gguf")
    assert [*read_header(done.path).metadata["eagle3.target_layers"]] == layers
    assert any("outputs of layers" in note for note in done.notes) == ("eagle_config" in named)
    chosen = convert(head.folder, target, tmp_path / "chosen.gguf", layers=[1, 3, 4])
    assert [*read_header(chosen.path).metadata["eagle3.target_layers"]] == [1, 3, 4]


@pytest.mark.parametrize("type_name", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_types(tmp_path: Path, target: Path, type_name: str) -> None:
    head = Made(tmp_path / "head", target, HeadShape(WIDTH))
    done = convert(head.folder, target, tmp_path / "out.gguf", type_name)
    found, expected = Tensors(done.path)["output.weight"], head.tensors["lm_head.weight"]
    apart = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert apart < {"F16": 1e-3, "BF16": 1e-2, "Q8_0": 0.02, "Q4_0": 0.25}[type_name]
    assert np.isfinite(computed(target, done.path, head.forward)).any()
    kinds = {tensor.name: tensor.type for tensor in read_header(done.path).tensors}
    assert kinds["output.weight"] == gguf.GGMLQuantizationType[type_name]
    assert kinds["output_norm.weight"] == llama_cpp.GGML_TYPE_F32


def test_what_the_file_says_of_itself(made: Made, target: Path, tmp_path: Path) -> None:
    origin = Origin("tiny-eagle3", "someone/tiny-eagle3", "0123abcd")
    done = convert(made.folder, target, tmp_path / "out.gguf", origin=origin)
    metadata = read_header(done.path).metadata
    assert metadata["localspec.converted.source"] == "someone/tiny-eagle3@0123abcd"
    assert metadata["general.source.huggingface.repository"] == "someone/tiny-eagle3"
    assert metadata["localspec.converted.target"] == target.name
    (hashed,) = metadata["localspec.converted.sha256"]
    assert len(hashed) == 64
    theirs = read_header(target).metadata
    assert [*metadata["tokenizer.ggml.tokens"]] == [*theirs["tokenizer.ggml.tokens"]]


def test_it_drafts_and_is_found_beside_its_target(made: Made, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    target = write_target(folder / "tiny-1m-F32.gguf")
    done = convert(made.folder, target)
    assert done.path == folder / "eagle3-tiny-1m-Q8_0.gguf"
    with load(target, draft="auto", threads=1, context=64) as engine:
        assert done.path.stem in engine.drafter_set.names
        text = engine.generate(TEXT, max_tokens=24, temperature=0, depth=3, ignore_eos=True)
    assert text.stats.accepted


@pytest.mark.skipif(not Path(TOOL).is_file(), reason="LLAMA_SPECULATIVE_SIMPLE names no tool")
def test_llama_cpps_own_tool_drafts_with_it(made: Made, target: Path, tmp_path: Path) -> None:
    head = convert(made.folder, target, tmp_path / "out.gguf", "F32").path
    options = (
        "--spec-type draft-eagle3 --spec-draft-n-max 3 -n 32 --temp 0 -t 1 -c 128 --ignore-eos"
    )
    done = subprocess.run(
        [
            TOOL,
            "-m",
            str(target),
            "-md",
            str(head),
            *options.split(),
            "-p",
            "anbtdnenbt",
            "--ignore-eos",
        ],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    said = done.stderr + done.stdout
    assert done.returncode == 0, said[-500:]
    accepted = re.search(r"n_accept\s*=\s*(\d+)", said)
    assert accepted, said[-500:]
    assert int(accepted[1]) > 0


# What is refused, and what is left when it fails.


def refused(error: type[LocalspecError], head: Made, target: Path, **options: Any) -> str:
    out = head.folder.parent / "out.gguf"
    with pytest.raises(error) as found:
        convert(head.folder, target, out, **options)
    assert "\n" not in str(found.value)
    assert [path for path in head.folder.parent.iterdir() if path.suffix != ""] == []
    return str(found.value)


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ({"target_hidden_size": 64}, DrafterMismatchError, "hidden rows of 64 numbers"),
        ({"vocab_size": 128256}, DrafterMismatchError, "vocabulary of 128256 tokens"),
        ({"num_attention_heads": 2}, ModelLoadError, "config.json says 24 x 48"),
        ({"intermediate_size": 99}, ModelLoadError, "config.json says 99 x 24"),
        ({"hidden_size": None}, ModelLoadError, "hidden_size = None"),
        ({"head_dim": 3}, ModelLoadError, "makes no sense"),
        ({"hidden_act": "gelu"}, ModelLoadError, "'gelu'"),
        ({"norm_before_fc": True}, ModelLoadError, "input_norm.weight"),
        ({"rope_scaling": {"rope_type": "dynamic"}}, ModelLoadError, "'dynamic'"),
        ({"partial_rotary_factor": 0.5}, ModelLoadError, "partial_rotary_factor"),
        ({"rope_theta": "ten"}, ModelLoadError, "says rope_theta = 'ten'"),
        ({"rope_parameters": {"full_attention": {}}}, ModelLoadError, "each type of its layers"),
        (
            {"eagle_aux_hidden_state_layer_ids": [2, 3, LAYERS + 1]},
            InvalidValueError,
            f"layers is 2,3,{LAYERS + 1}",
        ),
        ({"eagle_aux_hidden_state_layer_ids": "all"}, ModelLoadError, "name the layers"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_config_that_does_not_fit(
    made: Made, target: Path, config: dict[str, Any], error: type[LocalspecError], said: str
) -> None:
    made.config |= config
    made.again()
    assert said in refused(error, made, target)


def test_without_its_config_it_is_asked_for(made: Made, target: Path) -> None:
    (made.folder / "config.json").unlink()
    said = refused(ModelLoadError, made, target)
    assert f"{made.folder} has no config.json, which says num_attention_heads; put" in said


def test_an_option_of_medusa_heads(made: Made, target: Path) -> None:
    said = refused(InvalidValueError, made, target, own_output=False)
    assert f"{made.folder} is an EAGLE-3 head, and --targets-output is for Medusa" in said


def test_weights_that_are_no_numbers_have_their_published_name(made: Made, target: Path) -> None:
    made.tensors["norm.weight"][3] = np.nan
    made.again()
    said = refused(ModelLoadError, made, target)
    assert "the values of tensor 'norm.weight' are no numbers" in said


def test_another_layer_is_refused(made: Made, target: Path) -> None:
    made.tensors["layers.1.self_attn.q_proj.weight"] = np.zeros((4, 4), np.float32)
    made.again()
    assert "'layers.1.self_attn.q_proj.weight'" in refused(ModelLoadError, made, target)


def test_a_missing_tensor_is_named(made: Made, target: Path) -> None:
    del made.tensors["midlayer.mlp.up_proj.weight"]
    made.again()
    assert "no tensor layers.0.mlp.up_proj.weight" in refused(ModelLoadError, made, target)


@pytest.mark.parametrize("name", ["fc.weight", "norm.weight", "lm_head.weight"])
def test_a_single_number_is_no_tensor(made: Made, target: Path, name: str) -> None:
    made.tensors[name] = np.asarray(1.0, np.float32)
    made.again()
    assert f"has {name!r} of one number" in refused(ModelLoadError, made, target)


def test_a_draft_vocabulary_without_its_map(made: Made, target: Path) -> None:
    del made.tensors["d2t"], made.tensors["t2d"]
    made.again()
    assert "no d2t" in refused(ModelLoadError, made, target)


def test_tokens_that_the_target_does_not_have(made: Made, target: Path) -> None:
    made.tensors["d2t"] += 5
    del made.tensors["t2d"]
    made.again()
    assert f"has {N_VOCAB}" in refused(DrafterMismatchError, made, target)


def test_two_rows_for_one_token(made: Made, target: Path) -> None:
    made.tensors["d2t"][1] = made.tensors["d2t"][0] - 1
    made.again()
    assert "two rows for one token" in refused(ModelLoadError, made, target)


def test_a_file_that_is_cut_short(made: Made, target: Path) -> None:
    file = made.folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])
    assert "no sound safetensors file" in refused(ModelLoadError, made, target)


def test_pickles_are_never_opened(made: Made, target: Path) -> None:
    file = made.folder / "model.safetensors"
    file.rename(made.folder / "pytorch_model.bin")
    assert "pytorch_model.bin is pickled" in refused(ModelLoadError, made, target)
    file.write_bytes(b"\x80\x02cos\nsystem\nq\x00X\x05\x00\x00\x00touch")
    assert "was pickled" in refused(ModelLoadError, made, target)


def test_a_part_that_is_missing(made: Made, target: Path) -> None:
    index = {"weight_map": {"fc.weight": "model-00002-of-00002.safetensors"}}
    (made.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "lacks model-00002-of-00002" in refused(ModelLoadError, made, target)


def test_an_empty_folder(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"no \*\.safetensors"):
        convert(tmp_path, target)


def test_numbers_in_eight_bits_are_refused(made: Made, target: Path) -> None:
    file = made.folder / "model.safetensors"
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["fc.weight"]["dtype"] = "F8_E4M3"
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    assert "as F8_E4M3" in refused(ModelLoadError, made, target)


def test_a_second_start_finds_the_file(made: Made, target: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    assert convert(made.folder, target, out).written
    before = out.stat().st_mtime_ns
    assert not convert(made.folder, target, out).written
    assert out.stat().st_mtime_ns == before
    with pytest.raises(InvalidValueError, match=r"out\.gguf exists"):
        convert(made.folder, target, out, "F16")


def test_nothing_is_written_into_the_hubs_cache(
    made: Made, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from localspec.conversion import convert as module

    monkeypatch.setattr(
        module, "repository_of", lambda path: "zoo/tiny" if path == target else None
    )
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = convert(made.folder, target).path
    assert path.parent == tmp_path / "home" / "data" / "drafters"
    assert not [*Path().iterdir()]
    assert [(each.kind, each.file) for each in own_drafters(target)] == [("eagle3", path)]
    # A list that was lost is made again, with the file that is there.
    shutil.rmtree(path.parent / "lists")
    assert not convert(made.folder, target).written
    assert [each.file for each in own_drafters(target)] == [path]


def test_no_room(made: Made, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from localspec.conversion import convert as module

    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _folder: usage)
    assert "1.0 kB are free" in refused(LocalspecError, made, target)


def test_a_matrix_of_another_target(tmp_path: Path, target: Path) -> None:
    head = Made(tmp_path / "head", target, drop=("embed_tokens.weight",))
    assert "no embedding" in refused(DrafterMismatchError, head, target)


def test_a_tensor_file_alone(made: Made, target: Path, tmp_path: Path) -> None:
    file = write_safetensors(made.folder / "model.safetensors", made.tensors)
    assert convert(file, target, tmp_path / "out.gguf").written
