"""A tiny recurrent model with random weights: its state cannot be cut back by some tokens."""

from pathlib import Path

import gguf
import numpy as np

WIDTH, INNER, STATE, KERNEL, RANK, LAYERS = 32, 64, 16, 4, 2, 2


def write_mamba(path: Path, vocabulary: Path) -> Path:
    """A GGUF with the tokenizer of another one."""
    writer = gguf.GGUFWriter(path, "mamba")
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(0)
    writer.add_head_count(0)
    writer.add_block_count(LAYERS)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(INNER)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(RANK)
    writer.add_layer_norm_rms_eps(1e-5)
    n_vocab = _copy_tokenizer(writer, vocabulary)
    rng = np.random.default_rng(0)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, (rng.standard_normal(shape) * 0.1).astype(np.float32))

    add("token_embd.weight", n_vocab, WIDTH)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for i in range(LAYERS):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", np.ones(WIDTH, np.float32))
        add(f"blk.{i}.ssm_in.weight", 2 * INNER, WIDTH)
        add(f"blk.{i}.ssm_conv1d.weight", INNER, KERNEL)
        add(f"blk.{i}.ssm_conv1d.bias", INNER)
        add(f"blk.{i}.ssm_x.weight", RANK + 2 * STATE, INNER)
        add(f"blk.{i}.ssm_dt.weight", INNER, RANK)
        add(f"blk.{i}.ssm_dt.bias", INNER)
        decay = -np.tile(np.arange(1, STATE + 1, dtype=np.float32), (INNER, 1))
        writer.add_tensor(f"blk.{i}.ssm_a", decay)
        add(f"blk.{i}.ssm_d", INNER)
        add(f"blk.{i}.ssm_out.weight", WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _copy_tokenizer(writer: gguf.GGUFWriter, vocabulary: Path) -> int:
    fields = gguf.GGUFReader(vocabulary).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(fields["tokenizer.ggml.token_type"].contents())
    writer.add_token_merges(fields["tokenizer.ggml.merges"].contents())
    writer.add_add_bos_token(True)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    return len(tokens)
