"""Damaged copies of a GGUF: in its bytes, and in what it says while its form stays whole."""

import copy
import struct
from collections.abc import Callable
from random import Random
from typing import Any

from fakes.gguf_document import Document, Entry, Tensor, u64

from localspec.gguf.types import ARRAY, BOOL, FLOAT32, SCALARS, STRING, TENSOR_TYPES, UINT32

_SIZES = (0, 1, 2, 3, 7, 16, 31, 64, 255, 4096, 1 << 16, 1 << 20, (1 << 31) - 1, 1 << 31)
_HUGE = ((1 << 32) - 1, 1 << 32, 1 << 40, 1 << 60, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
_REALS = (0.0, -1.0, 1.0, 1e-30, 1e30, -1e30, float("inf"), float("-inf"), float("nan"))
_TEXTS = (b"", b"\0", b"a\0b", b"\xff\xfe", b"\xc3", b"a\nb", b"x" * 70, b"y" * 70_000)
_ARCHITECTURES = ("llama", "qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "gpt2")
_ARCHITECTURES += ("mistral3", "phi2", "phi3", "starcoder2", "falcon", "bloom", "mpt", "mamba")
_ARCHITECTURES += ("mamba2", "deepseek2", "olmo2", "granite", "cohere2", "stablelm", "smollm3")
_ARCHITECTURES += ("qwen2moe", "qwen35", "gpt-oss", "llama4", "exaone4", "rwkv7", "lfm2", "xyz")
# What a file may say besides, by the kind of its value; {} is the architecture.
_FURTHER = {
    UINT32: "{}.attention.sliding_window {}.attention.key_length {}.attention.value_length "
    "{}.attention.key_length_mla {}.attention.value_length_mla {}.attention.q_lora_rank "
    "{}.attention.kv_lora_rank {}.attention.group_norm_groups {}.attention.indexer.head_count "
    "{}.attention.shared_kv_layers {}.attention.sliding_window_pattern {}.rope.dimension_count "
    "{}.rope.dimension_count_swa {}.rope.scaling.original_context_length {}.vocab_size "
    "{}.expert_count {}.expert_used_count {}.expert_shared_count {}.expert_group_count "
    "{}.expert_group_used_count {}.expert_gating_func {}.expert_feed_forward_length "
    "{}.leading_dense_block_count {}.nextn_predict_layers {}.interleave_moe_layer_step "
    "{}.ssm.group_count {}.ssm.inner_size {}.ssm.state_size {}.ssm.conv_kernel "
    "{}.ssm.time_step_rank {}.full_attention_interval {}.token_shift_count {}.wkv.head_size "
    "{}.embedding_length_out {}.embedding_length_per_layer_input {}.shortconv.l_cache "
    "{}.pooling_type {}.classifier.output_labels {}.decoder_start_token_id {}.n_deepstack_layers "
    "{}.context_length {}.block_count {}.attention.head_count {}.attention.head_count_kv "
    "general.file_type general.alignment general.quantization_version split.count split.no "
    "tokenizer.ggml.bos_token_id tokenizer.ggml.eos_token_id tokenizer.ggml.unknown_token_id "
    "tokenizer.ggml.padding_token_id tokenizer.ggml.eot_token_id tokenizer.ggml.mask_token_id "
    "tokenizer.ggml.fim_pre_token_id tokenizer.ggml.seperator_token_id "
    "tokenizer.ggml.token_type_count",
    FLOAT32: "{}.attention.layer_norm_rms_epsilon {}.attention.layer_norm_epsilon "
    "{}.attention.clamp_kqv {}.attention.max_alibi_bias {}.attention.scale "
    "{}.attention.group_norm_epsilon {}.attn_logit_softcapping {}.final_logit_softcapping "
    "{}.expert_weights_scale {}.logit_scale {}.residual_scale {}.embedding_scale "
    "{}.rope.freq_base {}.rope.freq_base_swa {}.rope.scaling.factor {}.rope.scale_linear "
    "{}.rope.scaling.attn_factor {}.rope.scaling.yarn_log_multiplier",
    BOOL: "{}.attention.causal {}.use_parallel_residual {}.expert_weights_norm "
    "{}.rope.scaling.finetuned {}.ssm.dt_b_c_rms {}.swin_norm tokenizer.ggml.add_bos_token "
    "tokenizer.ggml.add_eos_token tokenizer.ggml.add_space_prefix tokenizer.ggml.add_sep_token "
    "tokenizer.ggml.remove_extra_whitespaces tokenizer.ggml.escape_whitespaces",
    STRING: "{}.rope.scaling.type {}.pooling general.type general.name tokenizer.ggml.model "
    "tokenizer.ggml.pre tokenizer.chat_template tokenizer.ggml.precompiled_charsmap",
}
_WORDS = ("none", "linear", "yarn", "longrope", "llama", "gpt2", "bert", "t5", "rwkv", "plamo2")
_WORDS += ("default", "llama-bpe", "qwen2", "gpt-4o", "tekken", "deepseek-v3", "model", "adapter")
_WORDS += ("gemma4", "hybriddna", "whisper")


def broken(document: Document, draw: Random) -> bytes:
    """A copy with one to three things wrong."""
    document = copy.deepcopy(document)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        draw.choice(_DAMAGES)(document, draw)
    whole = document.assembled()
    if draw.random() < 0.2:
        whole = _in_bytes(whole, draw)
    return whole


# In what it says.


def _number(draw: Random, kind: int) -> Any:
    """Of a kind of scalar, often an extreme one."""
    form = SCALARS[kind].format[-1]
    if form in "fd":
        return draw.choice(_REALS)
    if form == "?":
        return draw.choice((0, 1, 2, 255))
    bits = 8 * SCALARS[kind].size
    number = draw.choice((*_SIZES, draw.randrange(600), *_HUGE))
    number &= (1 << bits) - 1
    return number - (1 << bits) if form.islower() and number >> bits - 1 else number


def _other_number(document: Document, draw: Random) -> None:
    """A number near the true one, or far off."""
    numbers = [each for each in document.entries if each.kind in SCALARS]
    if not numbers:
        return
    entry = draw.choice(numbers)
    if entry.kind == UINT32 and draw.random() < 0.6:
        factor, more = draw.choice(((2, 0), (3, 0), (0.5, 0), (1, 1), (1, -1)))
        entry.value = max(0, int(entry.value * factor) + more) & 0xFFFFFFFF
    else:
        entry.value = _number(draw, entry.kind)


def _other_kind(document: Document, draw: Random) -> None:
    entry = draw.choice(document.entries)
    if draw.random() < 0.3:
        entry.kind, entry.value = STRING, draw.choice(_WORDS).encode()
        return
    scalar = draw.choice(list(SCALARS))
    listed = draw.random() < 0.3
    value = [_number(draw, scalar) for _ in range(draw.choice((0, 1, 2, 512, 600)))]
    entry.kind = ARRAY if listed else scalar
    entry.value = (scalar, value) if listed else _number(draw, scalar)


def _mislabelled(document: Document, draw: Random) -> None:
    """Its bytes stay, its kind does not."""
    draw.choice(document.entries).label = draw.choice((*range(14), 255))


def _renamed(document: Document, draw: Random) -> None:
    entry = draw.choice(document.entries)
    others = [each.key for each in document.entries]
    damaged = entry.key[:-1] + bytes([draw.randrange(256)])
    entry.key = draw.choice((damaged, draw.choice(others), draw.choice(_TEXTS), entry.key[:-3]))


def _dropped(document: Document, draw: Random) -> None:
    document.entries.remove(draw.choice(document.entries))


def _doubled(document: Document, draw: Random) -> None:
    things: list[Any] = draw.choice((document.entries, document.tensors))
    things.insert(draw.randrange(len(things) + 1), copy.copy(draw.choice(things)))


def _exchanged(document: Document, draw: Random) -> None:
    one = draw.choice(document.entries)
    other = draw.choice([each for each in document.entries if each.kind == one.kind])
    one.key, other.key = other.key, one.key


def _other_text(document: Document, draw: Random) -> None:
    texts = [each for each in document.entries if each.kind == STRING]
    if texts:
        entry = draw.choice(texts)
        entry.value = draw.choice((*_TEXTS, draw.choice(_WORDS).encode(), entry.value[:-1]))


def _other_item(document: Document, draw: Random) -> None:
    arrays = [each for each in document.entries if each.kind == ARRAY and each.value[1]]
    if not arrays:
        return
    kind, items = draw.choice(arrays).value
    for _ in range(draw.choice((1, 1, 20))):
        texts = (*_TEXTS, b"<0x4G>", b"<0x0A>", b"a b c", draw.choice(items))
        new = draw.choice(texts) if kind == STRING else _number(draw, kind)
        items[draw.randrange(len(items))] = new


def _other_length(document: Document, draw: Random) -> None:
    arrays = [each for each in document.entries if each.kind == ARRAY]
    if not arrays:
        return
    items = draw.choice(arrays).value[1]
    if draw.random() < 0.5:
        del items[draw.randrange(len(items) + 1) :]
    else:
        items.extend(items[: draw.choice((1, 3, 300))])


def _further(document: Document, draw: Random) -> None:
    kind = draw.choice(list(_FURTHER))
    key = draw.choice(_FURTHER[kind].split()).format(document.architecture)
    value = draw.choice(_WORDS).encode() if kind == STRING else _number(draw, kind)
    if kind == UINT32 and draw.random() < 0.5:
        value = draw.choice((1, 2, 3, 4, 8, 16, 32, 64))
    document.entries = [each for each in document.entries if each.key != key.encode()]
    if draw.random() < 0.2 and kind in SCALARS:
        kind, value = ARRAY, (kind, [value] * draw.choice((1, 2, 3, 512)))
    document.entries.append(Entry(key.encode(), kind, value))


def _other_architecture(document: Document, draw: Random) -> None:
    """Another family's name on it, on what it says as well."""
    old, new = document.architecture, draw.choice(_ARCHITECTURES)
    for entry in document.entries:
        if entry.key == b"general.architecture":
            entry.kind, entry.value = STRING, new.encode()
        elif entry.key.startswith(old.encode() + b"."):
            entry.key = new.encode() + entry.key[len(old) :]


# In its tensors.


def _refilled(tensor: Tensor, draw: Random) -> None:
    """As many bytes as the table now says, if that can be."""
    elements, size = TENSOR_TYPES[tensor.kind][1:] if tensor.kind in TENSOR_TYPES else (1, 4)
    count = 1
    for dimension in tensor.shape:
        count *= dimension
    wanted = count // elements * size
    if wanted <= 1 << 22 and draw.random() < 0.95:
        tensor.data = (tensor.data or b"\0") * (wanted // max(len(tensor.data), 1) + 1)
        tensor.data = tensor.data[:wanted]


def _other_shape(document: Document, draw: Random) -> None:
    tensor = draw.choice(document.tensors)
    shape = tensor.shape = tensor.shape or [1]
    for _ in range(draw.choice((1, 1, 2))):
        at = draw.randrange(len(shape))
        near = (shape[at] * 2, shape[at] // 2, shape[at] + 32, shape[at] + 1, shape[at] - 1, 1)
        shape[at] = max(0, draw.choice((*near, *near, draw.choice((*_SIZES, *_HUGE)))))
    _refilled(tensor, draw)


def _other_dimensions(document: Document, draw: Random) -> None:
    tensor = draw.choice(document.tensors)
    shape = tensor.shape
    tensor.shape = draw.choice(
        (shape[::-1], [*shape, 1], [*shape, 2], shape[:-1], [1, *shape], shape[1:], shape * 3)
    )
    _refilled(tensor, draw)


def _other_tensor_kind(document: Document, draw: Random) -> None:
    for tensor in draw.sample(document.tensors, draw.choice((1, 1, 4))):
        tensor.kind = draw.choice((*TENSOR_TYPES, 0, 1, 28, 26, 4, 99, 1 << 31))
        _refilled(tensor, draw)


def _renamed_tensor(document: Document, draw: Random) -> None:
    tensor = draw.choice(document.tensors)
    others = [each.name for each in document.tensors]
    changed = tensor.name.replace(b"0", b"1"), tensor.name.replace(b".weight", b".bias")
    tensor.name = draw.choice((*changed, tensor.name[:-2], *draw.sample(others, 2), *_TEXTS))


def _dropped_tensor(document: Document, draw: Random) -> None:
    document.tensors.remove(draw.choice(document.tensors))


def _exchanged_tensors(document: Document, draw: Random) -> None:
    one, other = draw.sample(document.tensors, 2)
    one.name, other.name = other.name, one.name


def _moved(document: Document, draw: Random) -> None:
    draw.choice(document.tensors).shift = draw.choice((-32, 32, 1, 64, *_HUGE, -1))


def _rescaled(document: Document, draw: Random) -> None:
    """A size that is another everywhere: in what it says, and in every tensor."""
    old = draw.choice((2, 4, 8, 16, 32, 64, 96))
    new = draw.choice((old * 2, old * 3, old + 32, old + 1, max(1, old // 2)))
    for entry in document.entries:
        if entry.kind == UINT32 and entry.value == old and b"tokenizer" not in entry.key:
            entry.value = new
    for tensor in document.tensors:
        tensor.shape = [new if size == old else size for size in tensor.shape]
        _refilled(tensor, draw)


def _added_tensor(document: Document, draw: Random) -> None:
    """One that some families know and others do not."""
    known = ("attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_output.bias", "attn_norm.bias")
    known += ("ffn_gate.bias", "ffn_down.bias", "ffn_up.bias", "attn_qkv.weight", "ffn_norm.bias")
    known += ("attn_q_norm.weight", "attn_sinks.weight", "ffn_gate_inp.weight", "attn_q.scale")
    names = [f"blk.{layer}.{name}" for layer in (0, 1, 2) for name in known]
    names += ["rope_freqs.weight", "output.bias", "output_norm.bias", "token_embd_norm.weight"]
    shape = draw.choice(([32], [64], [16], [8], [4], [32, 32], [1]))
    tensor = Tensor(draw.choice(names).encode(), shape, draw.choice((0, 0, 0, 1, 8)), b"\0\0\0\x3f")
    _refilled(tensor, draw)
    document.tensors.append(tensor)


def _miscounted(document: Document, draw: Random) -> None:
    document.counts[draw.randrange(2)] = draw.choice((-1, 1, 2, 1 << 16, *_HUGE))


_DAMAGES: tuple[Callable[[Document, Random], None], ...] = (
    *(_other_number, _other_number, _other_kind, _mislabelled, _renamed, _dropped, _doubled),
    *(_exchanged, _other_text, _other_item, _other_length, _further, _further),
    *(_other_architecture, _other_shape, _other_dimensions, _other_tensor_kind, _rescaled),
    *(_rescaled, _renamed_tensor, _dropped_tensor, _exchanged_tensors, _moved, _added_tensor),
    _miscounted,
)


# In its bytes.


def _in_bytes(whole: bytes, draw: Random) -> bytes:
    if draw.random() < 0.3:
        return whole[: draw.randrange(len(whole))]
    damaged, end = bytearray(whole), min(len(whole), 9000)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(end - 8)
        number = draw.choice((*_SIZES, *_HUGE))
        new = (
            bytes([damaged[at] ^ 1 << draw.randrange(8)]),
            bytes([draw.randrange(256)]),
            struct.pack("<I", number & 0xFFFFFFFF),
            u64(number),
        )
        raw = draw.choice(new)
        damaged[at : at + len(raw)] = raw
    return bytes(damaged)
