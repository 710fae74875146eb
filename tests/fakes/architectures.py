"""A tiny model of each architecture that llama.cpp computes, with random weights.

The library says which tensors a model has that has these numbers in its header
(`llama_model_init_from_user`); they are filled, and written as a GGUF. So an architecture needs no
list of its tensors here, only the numbers that are its own.
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import llama_cpp
import numpy as np
from fakes import tiny

_WIDTH, _HIDDEN, _CONTEXT, _WINDOW = 256, 384, 512, 32
# Tokens that sparse attention looks at.
_SPARSE = 8

# All that write a text token by token. Without `plm` and `rwkv6qwen2`, on whose numbers here
# llama.cpp ends.
WRITING = (
    "afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bitnet bloom "
    "chatglm codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 "
    "deepseek2-ocr deepseek32 deepseek4 dots1 dots3note ernie4_5 ernie4_5-moe exaone exaone-moe "
    "exaone4 falcon falcon-h1 gemma gemma2 gemma3 gemma3n gemma4 glm-dsa glm4 glm4moe glm5-next "
    "gpt-oss gpt2 gptneox granite granite_swa granitehybrid granitemoe graniteswitch grok "
    "grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 "
    "jamba kimi-k3 kimi-linear laguna lfm2 lfm2moe llama llama4 maincoder mamba mamba2 maple "
    "mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 mpt "
    "muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe olmo olmo2 olmoe openelm orion "
    "paddleocr pangu-embedded phi2 phi3 phimoe plamo plamo2 plamo3 qwen qwen2 qwen2moe qwen2vl "
    "qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl qwen3vlmoe qwen4exp refact rwkv6 rwkv7 "
    "seed_oss smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 talkie xverse"
)
# What is refused, and as what.
REFUSED = {
    "dream": "is a diffusion model",
    "llada": "is a diffusion model",
    "rnd1": "is a diffusion model",
    "t5": "is an encoder-decoder model",
    "llama-embed": "is an embedding model",
    "modern-bert": "is an embedding model",
}

# Layers (2 elsewhere), heads and widths of some.
_SIZES: Mapping[str, Mapping[str, int]] = {
    "llama4": {"layers": 4},
    "gemma4": {"width": 128, "hidden": 192, "layers": 5},
    "gemma3n": {"width": 64, "heads": 1, "hidden": 96, "layers": 22},
    "deepseek4": {"width": 512, "heads": 8, "hidden": 1024, "layers": 4},
    "step35": {"width": 160},
    "laguna": {"width": 160},
    "qwen3": {"heads": 4, "key_value_heads": 1},
    "muse-glimmer": {"heads": 4, "key_value_heads": 2},
    "afmoe": {"heads": 4, "key_value_heads": 2},
    "nemotron_h": {"layers": 3},
    "nemotron_h_moe": {"layers": 3},
    "hrm_text": {"layers": 6},
}
# Latent attention.
_LATENT = (
    "deepseek2 deepseek32 glm-dsa dots3note kimi-linear bailingmoe3 kimi-k3 glm5-next hy_v4 "
    "mistral4"
)
# The second layer has no attention.
_HYBRID = (
    "plamo2 jamba nemotron_h nemotron_h_moe granitehybrid lfm2 lfm2moe kimi-linear bailingmoe3 "
    "kimi-k3 glm5-next"
)
# A mixture of experts.
_EXPERTS = (
    "llama4 cohere2moe grok qwen2moe qwen3moe qwen3next qwen3vlmoe qwen35moe qwen4exp phimoe "
    "dbrx olmoe arctic deepseek deepseek2 deepseek32 dots3note deepseek4 glm4moe glm-dsa "
    "exaone-moe bailingmoe bailingmoe2 bailingmoe3 dots1 afmoe ernie4_5 ernie4_5-moe "
    "hunyuan-moe hy_v3 hy_v4 gpt-oss lfm2moe smallthinker llada-moe grovemoe minimax-01 "
    "minimax-m2 minimax-m3 rnd1 paddleocr mimo2 kimi-linear kimi-k3 glm5-next step35 mistral4 "
    "mellum laguna maple granitemoe nemotron_h_moe deepseek2-ocr"
)
# Of every other layer, attention keeps a running state.
_INTERVAL = "minimax-01 qwen35 qwen35moe qwen3next qwen4exp"
# A sliding window; the second line: in every other layer, by a list.
_WINDOWED = (
    "afmoe cohere2 deepseek4 exaone-moe exaone4 gemma2 gemma3 gemma3n gemma4 laguna lfm2 llama4 "
    "mellum olmo2 gpt-oss phi3 plamo3 smallthinker"
)
_WINDOWED_BY_LIST = "cohere2moe mimo2 step35 spark2_5 muse-glimmer granite_swa dots3note maple"
_CONNECTIONS = {
    "hyper_connection.count": 4,
    "hyper_connection.sinkhorn_iterations": 2,
    "hyper_connection.epsilon": 1.0e-6,
}
_NGRAMS = {
    **_CONNECTIONS,
    "hyper_connection.low_rank": 8,
    "attention.compress_ratios": [4, 4],
    "ple.layers": [0],
    "ple.ngram_size": 3,
    "ple.heads_per_ngram": 2,
    "ple.conv_kernel": 4,
    "ple.eos_token_id": 0,
    "ple.layer_multipliers": np.array([1, 3, 5], np.uint64),
    "ple.head_offsets": np.arange(4, dtype=np.uint64) * tiny.N_VOCAB,
    "ple.head_vocab_sizes": np.full(4, tiny.N_VOCAB, np.uint64),
}
_WEIGHED = {"expert_weights_scale": 1.0, "expert_weights_norm": True, "swiglu_clamp_exp": 10.0}
# What some have for themselves.
_OWN: Mapping[str, Mapping[str, Any]] = {
    "arwkv7": {"token_shift_count": 1},
    "bailingmoe3": {"swiglu_clamp_exp": [0.0, 4.0], "swiglu_clamp_shexp": [0.0, 5.0]},
    "deepseek4": {
        **_CONNECTIONS,
        **_WEIGHED,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "rope.dimension_count": 32,
        "attention.output_group_count": 8,
        "attention.output_lora_rank": 32,
        "attention.compress_ratios": [0, 0, 4, 128],
        "attention.compress_rope_freq_base": 160000.0,
        "hash_layer_count": 0,
    },
    "dots3note": {
        "attention.kv_lora_rank_swa": 512,
        "attention.key_length_swa": 576,
        "attention.value_length_swa": 512,
        "attention.key_length_mla_swa": 192,
        "attention.value_length_mla_swa": 128,
        "rope.freq_base_swa": 10000.0,
        "attention.indexer.types": [1, 0],
    },
    "gemma4": {
        "embedding_length_per_layer_input": 64,
        "attention.shared_kv_layers": 0,
        "attention.key_length_swa": 64,
        "attention.value_length_swa": 64,
        "rope.freq_base_swa": 10000.0,
        "attention.sliding_window_pattern": [1, 1, 1, 1, 0],
    },
    "glm5-next": {**_NGRAMS, "embedding_length_per_layer_input": 32},
    "graniteswitch": {
        "adapters.count": 2,
        "adapters.lora_rank": 4,
        "adapters.token_ids_activate": [260, 265],
        "adapters.token_ids_substitute": [30, 31],
    },
    "hrm_text": {"hrm.layers_per_stack": 1, "hrm.h_cycles": 2, "hrm.l_cycles": 2},
    "hy_v4": {
        **_CONNECTIONS,
        **_WEIGHED,
        "hyper_connection.magnitude": 2.0,
        "attention.indexer.types": [1, 0],
    },
    "maple": {"swiglu_clamp_exp": 7.0},
    "minimax-m3": {"rope.dimension_count": 64},
    "qwen4exp": {**_NGRAMS, "embedding_length_per_layer_input": 64},
}


class _Tensor(ctypes.Structure):
    """The beginning of ggml's `struct ggml_tensor`."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


class _InitParams(ctypes.Structure):
    """The options with which ggml reads a GGUF."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def header(arch: str) -> dict[str, Any]:
    """The numbers of a tiny model by their keys, without the name of the architecture."""
    size = _SIZES.get(arch, {})
    latent, by_list = arch in _LATENT.split(), arch in _WINDOWED_BY_LIST.split()
    width = size.get("width", 128 if latent else _WIDTH)
    heads = size.get("heads", 1 if latent else 2)
    hidden = size.get("hidden", 192 if latent else _HIDDEN)
    layers = size.get("layers", 2)
    head = width // heads
    key_value_heads: Any = size.get("key_value_heads", heads)
    heads_by_layer: Any = heads
    if arch in _HYBRID.split():
        key_value_heads = [0 if layer == 1 else heads for layer in range(layers)]
        heads_by_layer = heads if arch == "glm5-next" else key_value_heads
    elif arch.startswith(("mamba", "rwkv", "arwkv")):
        heads_by_layer = key_value_heads = 0
    keys: dict[str, Any] = {
        "vocab_size": tiny.N_VOCAB,
        "context_length": _CONTEXT,
        "embedding_length": width,
        "features_length": width,
        "block_count": layers,
        "leading_dense_block_count": 1,
        "feed_forward_length": hidden,
        "use_parallel_residual": False,
        "logit_scale": 1.0,
        "time_mix_extra_dim": 64,
        "time_decay_extra_dim": 128,
        "attention.head_count": heads_by_layer,
        "attention.head_count_kv": 1 if arch == "deepseek4" else key_value_heads,
        "attention.max_alibi_bias": 8.0,
        "attention.clamp_kqv": 1.0,
        "attention.layer_norm_epsilon": 1e-5,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "attention.group_norm_epsilon": 1e-5,
        "attention.group_norm_groups": 8,
        "attention.q_lora_rank": 64 if arch == "deepseek4" else 512,
        "attention.relative_buckets_count": 8,
        "attention.decay_lora_rank": 64,
        "attention.iclr_lora_rank": 64,
        "attention.value_residual_mix_lora_rank": 32,
        "attention.gate_lora_rank": 64,
        "attention.indexer.head_count": heads if arch == "minimax-m3" else 64,
        "attention.indexer.key_length": head if arch == "qwen4exp" else 128,
        "attention.indexer.top_k": _SPARSE,
        "attention.indexer.block_size": 4,
        "attention.indexer.kpool": 4,
        "attention.indexer.kpool_select_tail": True,
        "attention.indexer.local_blocks": 1,
        "rope.dimension_sections": [8, 12, 12, 0] if arch == "bailingmoe3" else [head // 4] * 4,
        "ssm.inner_size": 256
        if arch in ("qwen3next", "qwen35", "qwen35moe", "qwen4exp")
        else 2 * width,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.time_step_rank": heads,
        "ssm.group_count": 0 if arch == "plamo2" else 2,
        "kda.head_dim": 128,
        "kda.safe_gate": True,
        "kda.gate_lower_bound": -5.0,
        "wkv.head_size": head,
        "shortconv.l_cache": 3,
        "residual_scale": 3.5565588200778455,
        "attn_res.block_size": 12,
        "activation.situ_beta": 4.0,
        "activation.situ_linear_beta": 25.0,
        "xielu.alpha_n": 1.0,
        "xielu.alpha_p": 1.0,
        "xielu.beta": 1.0,
        "xielu.eps": 1.0e-7,
    }
    if arch in ("nemotron_h", "nemotron_h_moe"):
        keys["feed_forward_length"] = [0 if layer <= 1 else hidden for layer in range(layers)]
    if arch in _EXPERTS.split():
        keys |= {
            "expert_feed_forward_length": hidden,
            "expert_shared_feed_forward_length": hidden // 2,
            "expert_latent_length": hidden,
            "interleave_moe_layer_step": 2,
            "expert_count": 2,
            "expert_used_count": 2,
            "expert_shared_count": 1,
            "expert_gating_func": 4 if arch == "deepseek4" else 2,
            "expert_group_scale": 1.0,
            "experts_per_group": 1,
        }
    if latent or arch == "minicpm3":
        keys["attention.kv_lora_rank"] = 512
    if arch in _INTERVAL.split():
        keys["full_attention_interval"] = 2
    if by_list or arch in _WINDOWED.split():
        odd = [layer % 2 for layer in range(layers)]
        keys["attention.sliding_window"] = _WINDOW
        keys["attention.sliding_window_pattern"] = odd if by_list else 2
    if latent:
        keys |= {
            "attention.key_length": 512 if arch == "glm5-next" else 576,
            "attention.value_length": 512,
            "rope.dimension_count": 0 if arch == "glm5-next" else 64,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
        }
    return keys | _OWN.get(arch, {})


def write(arch: str, path: Path) -> Path:
    """A GGUF of 32-bit floats."""
    with TemporaryDirectory() as folder:
        wanted = _wanted(_with_header(Path(folder) / "header.gguf", arch))
    writer = _with_header(path, arch)
    random = np.random.default_rng(0)
    for name, shape in wanted.items():
        writer.add_tensor(name, _values(name, shape, random))
    _close(writer, tensors=True)
    return path


def _with_header(path: Path, arch: str) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, arch)
    for key, value in header(arch).items():
        _add(writer, key if key.startswith("xielu") else f"{arch}.{key}", value)
    tiny._byte_pairs(writer)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(tiny.TURNS)
    return writer


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, np.ndarray):
        writer.add_key_value(
            key, value.tolist(), gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT64
        )
    elif isinstance(value, list):
        kind = (
            gguf.GGUFValueType.FLOAT32 if isinstance(value[0], float) else gguf.GGUFValueType.UINT32
        )
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, kind)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_uint32(key, value)


def _close(writer: gguf.GGUFWriter, *, tensors: bool = False) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    if tensors:
        writer.write_tensors_to_file()
    writer.close()


def _wanted(writer: gguf.GGUFWriter) -> dict[str, tuple[int, ...]]:
    """The tensors of a model with this header, by name: their shapes in numpy's order."""
    path = writer.path
    _close(writer)
    base = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    base.gguf_init_from_file.restype = ctypes.c_void_p
    base.gguf_init_from_file.argtypes = (ctypes.c_char_p, _InitParams)
    base.gguf_free.argtypes = (ctypes.c_void_p,)
    base.ggml_get_name.restype = ctypes.c_char_p
    base.ggml_get_name.argtypes = (ctypes.c_void_p,)
    metadata = base.gguf_init_from_file(str(path).encode(), _InitParams(no_alloc=True, ctx=None))
    found: dict[str, tuple[int, ...]] = {}

    @llama_cpp.llama_model_set_tensor_data_t
    def note(tensor: int, _: int | None) -> None:
        shape = list(_Tensor.from_address(tensor).ne)
        while len(shape) > 1 and shape[-1] == 1:
            shape.pop()
        found[base.ggml_get_name(tensor).decode()] = tuple(reversed(shape))

    params = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_init_from_user(metadata, note, None, params)
    base.gguf_free(metadata)
    if not model:
        raise ValueError(f"{path}: no such model")
    llama_cpp.llama_model_free(model)
    return found


def _values(name: str, shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    values = (random.standard_normal(shape) * 0.1).astype(np.float32)
    if "ssm_a" in name:  # the state decays
        return -np.abs(values)
    if name.endswith(("_q_norm.weight", "_k_norm.weight")):
        return values + 0.3  # some architectures do not scale attention by the length of a head
    if name.endswith("norm.weight"):
        return values + 1
    return values
