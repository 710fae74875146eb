"""Tiny models with random weights, one per family: they load and decode in milliseconds."""

import atexit
from collections.abc import Callable
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import gguf
import numpy as np

WIDTH, LAYERS, HEADS, KEY_VALUE_HEADS, HEAD, HIDDEN, EXPERTS = 32, 2, 4, 2, 8, 64, 4
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_WORDS = [f"▁{a}{b}" for a in "abcdef" for b in "nrst"]
_SPECIAL = ["<unk>", "<s>", "</s>"]
# The types of words, in a SentencePiece vocabulary, that are no ordinary tokens.
_TYPES: dict[str, int] = {}
# The tokens that models which lean find likely.
LIKELY = (259, 266, 271, 275)
_LEAN = 3.0
FIRST_MESSAGE = "{{ messages[0].content }}"
# A chat in the special tokens there are.
TURNS = """
{%- for message in messages %}
    {{- '<s>' ~ message.role[0] ~ ' ' ~ message.content ~ '</s>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<s>a ' }}
{%- endif %}
"""
# The families whose vocabulary is one of SentencePiece; others have byte-level BPE.
PIECES = ("llama", "gemma3", "gemma4", "phi3")
N_VOCAB = len(_SPECIAL) + len(_BYTES) + len(_WORDS)


class _Writer:
    """Adds tensors by their name, of rows by columns, or vectors of ones.

    leans: whether rows have a large first number, for which the output finds LIKELY tokens likely.
    embedding: what the embeddings are multiplied with.
    """

    embedding = 1.0

    def __init__(
        self, path: Path, arch: str, *, quantised: bool, leans: bool = False, seed: int = 0
    ) -> None:
        self.gguf = gguf.GGUFWriter(path, arch)
        self._quantised, self._leans = quantised, leans
        self._random = np.random.default_rng(seed)

    def matrix(self, name: str, *shape: int, kind: str = "F32") -> None:
        values = (self._random.standard_normal(shape) * 0.1).astype(np.float32)
        if self._leans:
            values = _leaning(name, values)
        if name == "token_embd":
            values *= self.embedding
        quantized = gguf.GGMLQuantizationType[kind if self._quantised else "F32"]
        self.gguf.add_tensor(
            f"{name}.weight", gguf.quants.quantize(values, quantized), raw_dtype=quantized
        )

    def vector(self, name: str, size: int = WIDTH, end: str = "weight") -> None:
        self.gguf.add_tensor(f"{name}.{end}", np.ones(size, np.float32))

    def bias(self, name: str, *shape: int) -> None:
        values = (self._random.standard_normal(shape) * 0.1).astype(np.float32)
        values[..., 0] = 0
        self.gguf.add_tensor(f"{name}.bias", values)


def _leaning(name: str, values: np.ndarray) -> np.ndarray:
    """The values of a matrix in a model that leans."""
    if name == "token_embd":
        values *= 10
        values[:, 0] = _LEAN
    elif name == "output":
        values *= 5
        values[:, 0] = [8 if token in LIKELY else -8 for token in range(len(values))]
    else:
        values *= 2.5
        if values.shape[-2] == WIDTH:
            values[..., 0, :] = 0  # the large first number stays
    return values


def write_tiny(
    path: Path,
    family: str,
    *,
    quantised: bool = True,
    template: str = FIRST_MESSAGE,
    context: int = 256,
    layers: Callable[[_Writer], None] | None = None,
    leans: bool = False,
    seed: int = 0,
) -> Path:
    """A GGUF of one of FAMILIES: a few hundred tokens, two layers, width 32.

    quantised: some of its matrices are; else logits differ by the rounding of 32-bit floats only.
    template: for chats. context: tokens that it says it was made for. layers: adds what a family
    that is not one of FAMILIES has. leans: whether it finds LIKELY tokens likely.
    """
    writer = _Writer(path, family, quantised=quantised, leans=leans, seed=seed)
    header = writer.gguf
    header.add_context_length(context)
    header.add_embedding_length(WIDTH)
    header.add_feed_forward_length(HIDDEN)
    header.add_block_count(LAYERS)
    header.add_head_count(HEADS)
    header.add_head_count_kv(KEY_VALUE_HEADS)
    header.add_bos_token_id(1)
    header.add_eos_token_id(2)
    header.add_add_bos_token(True)
    header.add_chat_template(template)
    (layers or FAMILIES[family])(writer)
    writer.matrix("token_embd", N_VOCAB, WIDTH, kind="Q8_0")
    writer.matrix("output", N_VOCAB, WIDTH, kind="Q4_0")
    writer.vector("output_norm")
    header.write_header_to_file()
    header.write_kv_data_to_file()
    header.write_tensors_to_file()
    header.close()
    return path


@cache
def tiny_folder() -> Path:
    """Where the models of `tiny_model` are, until the tests end."""
    folder = Path(mkdtemp())
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


@cache
def tiny_model(family: str) -> Path:
    """A model of 32-bit floats that chats, made for 512 tokens; written once."""
    file = tiny_folder() / f"{family}.gguf"
    return write_tiny(file, family, quantised=False, template=TURNS, context=512)


def _llama(writer: _Writer) -> None:
    _pieces(writer.gguf)
    writer.gguf.add_layer_norm_rms_eps(1e-5)
    writer.gguf.add_rope_dimension_count(HEAD)
    writer.gguf.add_rope_freq_base(10000.0)
    for layer in range(LAYERS):
        _attention(writer, layer)
        _feed_forward(writer, layer)


def _qwen3(writer: _Writer) -> None:
    """Byte-level BPE, heads normed on their own, heads of a size of their own."""
    _byte_pairs(writer.gguf)
    _qwen3_attention(writer)
    for layer in range(LAYERS):
        _feed_forward(writer, layer)


def _qwen3moe(writer: _Writer) -> None:
    """As qwen3, with a mixture of experts."""
    _byte_pairs(writer.gguf)
    writer.gguf.add_expert_count(EXPERTS)
    writer.gguf.add_expert_used_count(2)
    writer.gguf.add_expert_feed_forward_length(HIDDEN)
    _qwen3_attention(writer)
    for layer in range(LAYERS):
        writer.vector(f"blk.{layer}.ffn_norm")
        writer.matrix(f"blk.{layer}.ffn_gate_inp", EXPERTS, WIDTH)
        for name in ("ffn_gate_exps", "ffn_up_exps"):
            writer.matrix(f"blk.{layer}.{name}", EXPERTS, HIDDEN, WIDTH)
        writer.matrix(f"blk.{layer}.ffn_down_exps", EXPERTS, WIDTH, HIDDEN)


def _gemma3(writer: _Writer) -> None:
    """A sliding window, and norms after as well as before."""
    _pieces(writer.gguf)
    _qwen3_attention(writer)
    writer.gguf.add_sliding_window(16)
    for layer in range(LAYERS):
        writer.vector(f"blk.{layer}.post_attention_norm")
        writer.vector(f"blk.{layer}.post_ffw_norm")
        _feed_forward(writer, layer)


def _gpt2(writer: _Writer) -> None:
    """Positions in a table, one matrix for queries, keys and values, biases, layer norm."""
    _byte_pairs(writer.gguf)
    writer.gguf.add_layer_norm_eps(1e-5)
    writer.gguf.kv_data[0].pop("gpt2.attention.head_count_kv")
    writer.matrix("position_embd", 256, WIDTH)
    writer.vector("output_norm", end="bias")
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        for name, rows, columns in (
            ("attn_qkv", 3 * WIDTH, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_up", HIDDEN, WIDTH),
            ("ffn_down", WIDTH, HIDDEN),
        ):
            writer.matrix(f"{blk}.{name}", rows, columns)
            writer.vector(f"{blk}.{name}", rows, end="bias")
        for name in ("attn_norm", "ffn_norm"):
            writer.vector(f"{blk}.{name}")
            writer.vector(f"{blk}.{name}", end="bias")


def _mamba(writer: _Writer) -> None:
    """Recurrent."""
    inner, state, kernel, rank = 64, 16, 4, 2
    _byte_pairs(writer.gguf)
    for key in ("head_count", "head_count_kv"):
        writer.gguf.kv_data[0].pop(f"mamba.attention.{key}")
    writer.gguf.add_head_count(0)
    writer.gguf.add_ssm_conv_kernel(kernel)
    writer.gguf.add_ssm_inner_size(inner)
    writer.gguf.add_ssm_state_size(state)
    writer.gguf.add_ssm_time_step_rank(rank)
    writer.gguf.add_layer_norm_rms_eps(1e-5)
    for layer in range(LAYERS):
        blk = f"blk.{layer}"
        writer.vector(f"{blk}.attn_norm")
        writer.matrix(f"{blk}.ssm_in", 2 * inner, WIDTH)
        writer.matrix(f"{blk}.ssm_conv1d", inner, kernel)
        writer.vector(f"{blk}.ssm_conv1d", inner, end="bias")
        writer.matrix(f"{blk}.ssm_x", rank + 2 * state, inner)
        writer.matrix(f"{blk}.ssm_dt", inner, rank)
        writer.vector(f"{blk}.ssm_dt", inner, end="bias")
        writer.gguf.add_tensor(f"{blk}.ssm_a", -np.ones((inner, state), np.float32))
        writer.gguf.add_tensor(f"{blk}.ssm_d", np.ones(inner, np.float32))
        writer.matrix(f"{blk}.ssm_out", WIDTH, inner)


def _qwen35(writer: _Writer) -> None:
    """A hybrid: of its four layers, the last is attention and three keep a running state."""
    header, layers = writer.gguf, 4
    state, heads, groups, kernel = 16, 4, 2, 4
    inner, channels = heads * state, (heads + 2 * groups) * state
    _byte_pairs(header)
    header.kv_data[0].pop("qwen35.block_count")
    header.add_block_count(layers)
    header.add_full_attention_interval(layers)
    header.add_layer_norm_rms_eps(1e-6)
    header.add_key_length(HEAD)
    header.add_value_length(HEAD)
    header.add_rope_dimension_sections([2, 1, 1, 0])
    header.add_ssm_conv_kernel(kernel)
    header.add_ssm_inner_size(inner)
    header.add_ssm_state_size(state)
    header.add_ssm_time_step_rank(heads)
    header.add_ssm_group_count(groups)
    for layer in range(layers):
        blk = f"blk.{layer}"
        _feed_forward(writer, layer, norm="post_attention_norm")
        if layer == layers - 1:
            _attention(writer, layer, gated=True)
            writer.vector(f"{blk}.attn_q_norm", HEAD)
            writer.vector(f"{blk}.attn_k_norm", HEAD)
            continue
        writer.vector(f"{blk}.attn_norm")
        writer.matrix(f"{blk}.attn_qkv", channels, WIDTH)
        writer.matrix(f"{blk}.attn_gate", inner, WIDTH)
        writer.matrix(f"{blk}.ssm_conv1d", channels, kernel)
        writer.vector(f"{blk}.ssm_dt", heads, end="bias")
        writer.gguf.add_tensor(f"{blk}.ssm_a", np.full(heads, -0.1, np.float32))
        writer.matrix(f"{blk}.ssm_beta", heads, WIDTH)
        writer.matrix(f"{blk}.ssm_alpha", heads, WIDTH)
        writer.vector(f"{blk}.ssm_norm", state)
        writer.matrix(f"{blk}.ssm_out", WIDTH, inner)


def _qwen3_attention(writer: _Writer) -> None:
    writer.gguf.add_layer_norm_rms_eps(1e-6)
    writer.gguf.add_key_length(HEAD)
    writer.gguf.add_value_length(HEAD)
    for layer in range(LAYERS):
        _attention(writer, layer)
        writer.vector(f"blk.{layer}.attn_q_norm", HEAD)
        writer.vector(f"blk.{layer}.attn_k_norm", HEAD)


def _attention(writer: _Writer, layer: int, *, gated: bool = False) -> None:
    """gated: with each query comes a gate of its size."""
    writer.vector(f"blk.{layer}.attn_norm")
    writer.matrix(f"blk.{layer}.attn_q", (1 + gated) * HEADS * HEAD, WIDTH, kind="Q8_0")
    writer.matrix(f"blk.{layer}.attn_k", KEY_VALUE_HEADS * HEAD, WIDTH)
    writer.matrix(f"blk.{layer}.attn_v", KEY_VALUE_HEADS * HEAD, WIDTH, kind="F16")
    writer.matrix(f"blk.{layer}.attn_output", WIDTH, HEADS * HEAD, kind="Q4_0")


def _feed_forward(writer: _Writer, layer: int, *, norm: str = "ffn_norm") -> None:
    writer.vector(f"blk.{layer}.{norm}")
    writer.matrix(f"blk.{layer}.ffn_gate", HIDDEN, WIDTH, kind="Q4_0")
    writer.matrix(f"blk.{layer}.ffn_up", HIDDEN, WIDTH, kind="Q8_0")
    writer.matrix(f"blk.{layer}.ffn_down", WIDTH, HIDDEN)


def _pieces(header: gguf.GGUFWriter) -> None:
    """A SentencePiece vocabulary."""
    header.add_tokenizer_model("llama")
    tokens = [*_SPECIAL, *_BYTES, *_WORDS]
    header.add_token_list(tokens)
    header.add_token_scores([-float(number) for number in range(len(tokens))])
    types = [_TYPES.get(word, 1) for word in _WORDS]
    header.add_token_types([2, 3, 3, *[6] * len(_BYTES), *types])


def _byte_pairs(header: gguf.GGUFWriter) -> None:
    """A byte-level BPE vocabulary."""
    # How byte-level BPE spells the bytes: printable ones as they are, the others from 256 on.
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = [chr(byte) for byte in plain] + [chr(256 + byte) for byte in range(68)]
    pairs = [(a, b) for a in "abcdef" for b in "nrst"]
    header.add_tokenizer_model("gpt2")
    header.add_tokenizer_pre("gpt-2")
    header.add_token_list([*_SPECIAL, *letters, *map("".join, pairs)])
    header.add_token_types([3] * 3 + [1] * (N_VOCAB - 3))
    header.add_token_merges([f"{a} {b}" for a, b in pairs])


FAMILIES: dict[str, Callable[[_Writer], None]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
    "gemma3": _gemma3,
    "gpt2": _gpt2,
    "mamba": _mamba,
    "qwen35": _qwen35,
}
