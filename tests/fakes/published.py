"""Heads as they are published: safetensors with a config.json, and an EAGLE-3 head's forward.

The forward is computed from the published tensors, as the transformers library would: it turns the
halves of an attention head, where llama.cpp turns neighbours.
"""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from fakes.eagle3 import HEADS, NARROW, SHARED
from fakes.numpy_llama import Floats, NumpyLlama, Tensors, rms_norm
from fakes.tiny import N_VOCAB

# The layers whose input rows a published head reads.
LAYERS_READ = (2, 3, 4)
_KINDS = {"f": "F32", "i": "I64", "b": "BOOL"}
_STORED = {"F32": "<f4", "F16": "<f2", "I64": "<i8", "BOOL": "|b1"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_norm_2": "hidden_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OTHERS = {
    "fc": "fc",
    "enc.output_norm": "input_norm",
    "output_norm": "norm",
    "token_embd": "embed_tokens",
    "output": "lm_head",
}


def bf16(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], kind: str = "F32") -> Path:
    """A file as the package safetensors writes it, by its published description.

    kind: of floats; other tensors keep theirs.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        own = kind if values.dtype.kind == "f" else _KINDS[values.dtype.kind]
        stored = bf16(values) if own == "BF16" else values.astype(_STORED[own])
        place = [len(data), len(data) + stored.nbytes]
        header[name] = {"dtype": own, "shape": list(values.shape), "data_offsets": place}
        data += stored.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def published(
    folder: Path, tensors: dict[str, np.ndarray], config: Any = None, **kind: str
) -> Path:
    """A folder with these tensors and this config.json."""
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "model.safetensors", tensors, **kind)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def eagle3_tensors(head: Path, layer: str = "midlayer.") -> dict[str, np.ndarray]:
    """The tensors of an EAGLE-3 GGUF, as they are published. layer: what its layer is called."""
    weights = Tensors(head)
    found: dict[str, np.ndarray] = {}
    for names, before, after in ((_LAYER, "blk.0.", layer), (_OTHERS, "", "")):
        for ours, theirs in names.items():
            if f"{before}{ours}.weight" in weights:
                values = weights[f"{before}{ours}.weight"].astype(np.float32)
                found[f"{after}{theirs}.weight"] = values
    for name, heads in (("q", HEADS), ("k", SHARED)):
        key = f"{layer}self_attn.{name}_proj.weight"
        rows, columns = found[key].shape
        pairs = found[key].reshape(heads, rows // heads // 2, 2, columns)
        found[key] = pairs.swapaxes(1, 2).reshape(rows, columns)
    if "d2t" in weights:
        ids = weights["d2t"].astype(np.int64)
        found["d2t"] = ids - np.arange(len(ids))
        found["t2d"] = np.isin(np.arange(N_VOCAB), ids)
    return found


def eagle3_config(width: int, **changed: Any) -> dict[str, Any]:
    """As SpecForge writes it."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": width,
        "num_attention_heads": HEADS,
        "num_key_value_heads": SHARED,
        "intermediate_size": NARROW,
        "num_hidden_layers": 1,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 512,
        "vocab_size": N_VOCAB,
        "eagle_aux_hidden_state_layer_ids": None if changed.get("eagle_config") else [*LAYERS_READ],
        **changed,
    }


class PublishedEagle3:
    """The forward of a published EAGLE-3 head behind its target.

    layers: whose input rows it reads.
    """

    def __init__(
        self,
        target: Path,
        tensors: dict[str, np.ndarray],
        config: dict[str, Any],
        layers: tuple[int, ...] = LAYERS_READ,
        before_residual: bool = False,
    ) -> None:
        self.target = NumpyLlama(target)
        self._weights = {
            name.replace("midlayer.", "layers.0."): values for name, values in tensors.items()
        }
        self._config, self._layers = config, layers
        self._before_residual = before_residual

    def features(self, tokens: list[int]) -> Floats:
        """The target's hidden rows side by side."""
        states = self.target.hidden(tokens)
        return np.hstack([states[layer] for layer in self._layers])

    def states(self, tokens: list[int]) -> Floats:
        """What the head makes of the target's rows."""
        rows = self.features(tokens)
        if "input_norm.weight" in self._weights:
            rows = self._normed(rows, "input_norm")
        return rows @ self._weights["fc.weight"].T

    def logits(self, tokens: list[int]) -> Floats:
        """After each pair of a token and the state before it: (n - 1, n_vocab)."""
        states, own = self.states(tokens[:-1]), "layers.0."
        embedding = self._weights.get("embed_tokens.weight", self.target.embedding)
        normed = self._normed(states, f"{own}hidden_norm")
        x = np.hstack(
            [self._normed(embedding[tokens[1:]].astype(float), f"{own}input_layernorm"), normed]
        )
        x = (normed if self._before_residual else states) + self._attention(x)
        y = self._normed(x, f"{own}post_attention_layernorm")
        gate, up, down = (
            self._weights[f"{own}mlp.{n}_proj.weight"] for n in ("gate", "up", "down")
        )
        gated = y @ gate.T
        x = x + (gated / (1 + np.exp(-gated)) * (y @ up.T)) @ down.T
        ids = np.arange(N_VOCAB)
        if "d2t" in self._weights:
            ids = self._weights["d2t"] + np.arange(len(self._weights["d2t"]))
        output = self._weights.get("lm_head.weight", self.target.output[ids])
        found = np.full((len(x), N_VOCAB), -np.inf)
        found[:, ids] = self._normed(x, "norm") @ output.T
        return found

    def _normed(self, x: Floats, name: str) -> Floats:
        weight = self._weights[f"{name}.weight"].astype(float)
        return rms_norm(x, weight, float(self._config["rms_norm_eps"]))

    def _attention(self, x: Floats) -> Floats:
        q, k, v, o = (
            self._weights[f"layers.0.self_attn.{name}_proj.weight"].astype(float) for name in "qkvo"
        )
        n, width = len(x), len(q) // HEADS
        queries = self._turned((x @ q.T).reshape(n, HEADS, width))
        keys = self._turned((x @ k.T).reshape(n, SHARED, width))
        values = (x @ v.T).reshape(n, SHARED, width)
        mixed = np.empty((n, HEADS, width))
        for head in range(HEADS):
            other = head // (HEADS // SHARED)
            scores = queries[:, head] @ keys[:, other].T / np.sqrt(width)
            scores[np.triu_indices(n, 1)] = -np.inf
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed[:, head] = shares / shares.sum(axis=1, keepdims=True) @ values[:, other]
        return mixed.reshape(n, -1) @ o.T

    def _turned(self, x: Floats) -> Floats:
        """Each half of a head turned against the other, by the position."""
        n, _, width = x.shape
        frequencies = self._config["rope_theta"] ** (-np.arange(0, width, 2) / width)
        scaling = self._config.get("rope_scaling")
        if scaling and scaling["rope_type"] == "llama3":
            frequencies = np.array([_llama3(each, scaling) for each in frequencies])
        scale = 1.0
        if scaling and scaling["rope_type"] == "yarn":
            frequencies = _yarn(frequencies, self._config["rope_theta"], scaling)
            scale = scaling.get("attention_factor", 0.1 * np.log(scaling["factor"]) + 1)
        angles = np.arange(n)[:, None] * np.concatenate([frequencies, frequencies])
        cos, sin = scale * np.cos(angles)[:, None], scale * np.sin(angles)[:, None]
        first, second = x[..., : width // 2], x[..., width // 2 :]
        return x * cos + np.concatenate([-second, first], axis=-1) * sin


def _yarn(frequencies: Floats, base: float, scaling: dict[str, Any]) -> Floats:
    """Frequencies of YaRN, by the paper (https://arxiv.org/abs/2309.00071)."""
    width, length = 2 * len(frequencies), scaling["original_max_position_embeddings"]

    def place(turns: float) -> float:
        return width * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = max(np.floor(place(32)), 0), min(np.ceil(place(1)), width - 1)
    slowed = np.clip((np.arange(len(frequencies)) - low) / max(high - low, 1e-3), 0, 1)
    return frequencies * (slowed / scaling["factor"] + 1 - slowed)


def _llama3(frequency: float, scaling: dict[str, Any]) -> float:
    """A frequency of Llama 3.1, by the description in its model card."""
    length, wave = scaling["original_max_position_embeddings"], 2 * np.pi / frequency
    if wave < length / scaling["high_freq_factor"]:
        return frequency
    if wave > length / scaling["low_freq_factor"]:
        return frequency / scaling["factor"]
    span = scaling["high_freq_factor"] - scaling["low_freq_factor"]
    smooth = (length / wave - scaling["low_freq_factor"]) / span
    return (1 - smooth) * frequency / scaling["factor"] + smooth * frequency
