"""`localspec show`: what it says of real models, and of files built to be odd."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from fakes.command_line import Done, localspec, own_folders
from fakes.hub_disk import HubDisk, write_split
from fakes.projectors import KINDS, write_projector
from fakes.tiny import FAMILIES, write_tiny

from localspec.gguf.facts import facts_of
from localspec.llama.model import Model
from localspec.models.registry import bundled

REPO = "zoo/tiny-GGUF"


def run(folder: Path, *arguments: str) -> Done:
    """`localspec show`, with nothing on this machine but what is in the folder."""
    return localspec("show", *arguments, **own_folders(folder))


def rows(text: str) -> dict[str, str]:
    """The lines of the last block, by their names."""
    block = text.rstrip("\n").split("\n\n")[-1]
    parted = [line.split("  ", 1) for line in block.splitlines()]
    return {name: value.strip() for name, value in parted}


@pytest.fixture(scope="module")
def own_model() -> Iterator[Model]:
    with Model(bundled().target) as model:
        yield model


def test_a_file_that_scales_its_rotations(tmp_path: Path) -> None:
    def scaled(writer: Any) -> None:
        FAMILIES["llama"](writer)
        writer.gguf.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.gguf.add_rope_scaling_factor(4.0)
        writer.gguf.add_rope_scaling_orig_ctx_len(64)

    path = write_tiny(tmp_path / "scaled.gguf", "llama", layers=scaled)
    shown = rows(run(tmp_path, str(path)).out)["context"]
    assert shown == "256 tokens · scaled by yarn, factor 4 of 64"


def test_a_projector_says_what_it_is(tmp_path: Path) -> None:
    done = run(tmp_path, str(write_projector(tmp_path / "mmproj-tiny.gguf", KINDS["llama"])))
    assert done.code == 0, done.err
    shown = rows(done.out)
    assert shown["projector"] == "a model reads images through it (--mmproj)"
    assert shown["architecture"] == "clip" and "chat template" not in shown


def test_all_of_a_pair(tmp_path: Path, own_model: Model) -> None:
    done = run(tmp_path, "terminal")
    assert done.code == 0 and not done.err
    pair, target, drafter = done.out.split("\n\n")
    assert "answers questions about the terminal" in pair
    assert str(bundled().target) in target and str(bundled().drafter) in drafter
    shown = rows(target)
    assert shown["quantisation"] == "Q8_0 100% · 8.51 bits per weight"
    assert shown["parameters"] == "8.5M (8,524,032)"
    assert shown["shape"] == "8 layers, 256 wide, 4 heads, 4 heads of keys and values"
    assert shown["context"] == "2,048 tokens" and shown["cache"].startswith("8.2 kB per token")
    assert shown["memory"] == "attention" and shown["draft heads"] == "none"
    short = own_model.vocabulary_fingerprint[:12]
    assert shown["vocabulary"] == f"BPE, 8,192 tokens, fingerprint {short}"
    assert shown["BOS"] == "0 '<|endoftext|>', added to every prompt"
    assert shown["EOS"] == "2 '<|im_end|>', not added"


def test_the_sampling_and_whose_each_value_is(tmp_path: Path) -> None:
    """The option is whose command it is; else a setting, the pair, the GGUF, the default."""
    pair = "target = 'bundled:terminal-9m-q8_0.gguf'\nsampling = { top_k = 20, top_p = 0.9 }\n"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "models.toml").write_text(f"[pairs.mine]\n{pair}")
    (tmp_path / "home" / "config.toml").write_text("top_p = 0.5\n")
    shown = rows(run(tmp_path, "mine").out)["sampling"]
    own = facts_of(bundled().target).header.metadata["general.sampling.temp"]
    gguf = f"temperature {own:g} (the GGUF)"
    assert shown == f"{gguf}; top_k 20 (pair mine); top_p 0.5 (config.toml); min_p 0.05 (default)"
    record = json.loads(run(tmp_path, "mine", "--json").out)
    assert record["pair"]["sampling"] == {"top_k": 20, "top_p": 0.9}
    assert record["sampling"]["top_p"] == {"value": 0.5, "source": "config.toml"}
    assert record["sampling"]["top_k"] == {"value": 20, "source": "pair mine"}


def test_of_a_pair_that_was_not_fetched_its_own_sampling_is_shown(tmp_path: Path) -> None:
    done = run(tmp_path, "qwen3-8b")
    values = "temperature 0.6, top_k 20, top_p 0.95, min_p 0, presence_penalty 1.5"
    assert rows(done.out)["sampling"] == f"{values} (pair qwen3-8b)"


def test_json_agrees_with_the_loaded_model(tmp_path: Path, own_model: Model) -> None:
    record = json.loads(run(tmp_path, str(bundled().target), "--json").out)
    assert record["pair"] is None and record["drafter"] is None
    model = record["model"]
    assert model["files"] == [str(bundled().target)]
    assert model["context"] == own_model.n_ctx_train
    assert model["chat_template"] == own_model.chat_template
    assert model["vocabulary"] == {
        "type": "BPE",
        "size": own_model.n_vocab,
        "fingerprint": own_model.vocabulary_fingerprint,
        "special": {"bos": own_model.bos, "eos": own_model.eos, "eot": own_model.eos},
        "adds_bos": own_model.adds_bos,
        "adds_eos": own_model.adds_eos,
    }
    pair = json.loads(run(tmp_path, "terminal", "--json").out)
    assert pair["model"] == model and pair["pair"]["name"] == "terminal"
    assert pair["drafter"]["files"] == [str(bundled().drafter)]


def test_the_whole_chat_template(tmp_path: Path, own_model: Model) -> None:
    done = run(tmp_path, "terminal", "--template")
    assert done.out.rstrip("\n") == (own_model.chat_template or "").rstrip("\n")
    assert done.out.endswith("%}\n")


def test_a_repository_and_what_is_not_here(tmp_path: Path) -> None:
    disk = HubDisk(tmp_path / "hub")
    snapshot = disk.add(REPO, {"tiny-Q8_0.gguf": bundled().target})
    done = run(tmp_path, f"{REPO}:q8_0")
    assert rows(done.out)["file"] == str(snapshot / "tiny-Q8_0.gguf")
    missing = run(tmp_path, "zoo/none-GGUF")
    assert missing.code == 3 and not missing.out
    assert "localspec pull zoo/none-GGUF" in missing.err
    # Of a pair that was not fetched, what models.toml says.
    pair = run(tmp_path, "qwen3-8b")
    assert pair.code == 0 and rows(pair.out)["target"] == "Qwen/Qwen3-8B-GGUF"
    assert "localspec pull qwen3-8b" in pair.err
    assert run(tmp_path, "qwen3-8b", "--template").code == 3


def test_a_split_model_is_shown_whole(tmp_path: Path) -> None:
    first, second = write_split(tmp_path / "big-F32")
    for named in (first, second):
        shown = rows(run(tmp_path, str(named)).out)
        assert shown["file"] == f"{first} (and 1 more)"
        assert shown["parameters"] == "128 (128)"
        assert shown["quantisation"] == "F32 100% · 32.00 bits per weight"
        assert shown["chat template"] == "none"
    assert facts_of(first).size == first.stat().st_size + second.stat().st_size
    second.unlink()
    alone = run(tmp_path, str(first))
    assert alone.code == 5 and "one of 2 parts" in alone.err


@pytest.mark.parametrize(
    ("family", "memory"),
    [
        ("llama", "attention"),
        ("gpt2", "attention"),
        ("gemma3", "sliding window"),
        ("mamba", "recurrent"),
    ],
)
def test_what_is_kept_of_a_text(tmp_path: Path, family: str, memory: str) -> None:
    assert facts_of(write_tiny(tmp_path / "tiny.gguf", family)).memory_kind == memory


def odd(path: Path, arch: str = "llama", *tensors: str, **keys: str | int) -> Path:
    """A file with these tensors and metadata, which no library could run."""
    writer = gguf.GGUFWriter(path, arch)
    for name, value in keys.items():
        key = name.replace("__", ".")
        writer.add_uint32(key, value) if isinstance(value, int) else writer.add_string(key, value)
    for name in tensors:
        writer.add_tensor(name, np.ones(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_layers_of_both_kinds_are_a_hybrid(tmp_path: Path) -> None:
    path = odd(tmp_path / "h.gguf", "qwen35", "blk.0.ssm_a", "blk.1.attn_k.weight")
    assert facts_of(path).memory_kind == "hybrid"


def test_heads_that_draft_are_named(tmp_path: Path) -> None:
    named = {"glm4moe__nextn_predict_layers": 1}
    path = odd(tmp_path / "m.gguf", "glm4moe", "blk.1.nextn.eh_proj.weight", **named)
    assert facts_of(path).hidden_state_heads == "MTP (NextN), 1 layer"
    # Some files name heads that they do not have.
    assert facts_of(odd(tmp_path / "n.gguf", "glm4moe", **named)).hidden_state_heads is None
    head = rows(run(tmp_path, str(odd(tmp_path / "e.gguf", "eagle3"))).out)
    assert head["draft heads"] == "EAGLE-3 head, for its own target"
    assert head["vocabulary"] == "none of its own"
    assert head["quantisation"] == "none: it holds no weights"


def test_licence_and_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    keys = {"general__license": "other", "general__license__link": "https://example.org/l"}
    path = odd(tmp_path / "l.gguf", **keys, general__name="\x1b[2Jevil\nfile  /etc")
    shown = run(tmp_path, str(path)).out
    assert "\x1b" not in shown
    assert rows(shown)["name"] == "?[2Jevil?file  /etc"
    assert rows(shown)["licence"] == "other, https://example.org/l"


def test_a_licence_may_be_long(tmp_path: Path) -> None:
    path = odd(tmp_path / "l.gguf", general__license="may " * 5_000)
    assert rows(run(tmp_path, str(path)).out)["licence"] == "may " * 50 + "..."


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [(b"no model", 5, "is not a GGUF file"), (None, 3, "no model file")],
)
def test_what_is_no_model_is_refused(
    tmp_path: Path, content: bytes | None, code: int, said: str
) -> None:
    path = tmp_path / "x.gguf"
    if content:
        path.write_bytes(content)
    done = run(tmp_path, str(path))
    assert (done.code, done.out) == (code, "")
    assert said in done.err and done.err.count("\n") == 1
