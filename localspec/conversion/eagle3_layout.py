"""The layout of published EAGLE-3 heads: the names and shapes of their tensors."""

from collections.abc import Mapping
from dataclasses import dataclass

from localspec.conversion.published import Checkpoint, PublishedTensor
from localspec.errors import ModelLoadError

_LAYER = {
    "input_layernorm": "attn_norm",
    "hidden_norm": "attn_norm_2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Published names, without what differs between layouts, and those of the GGUF.
_NAMES = {
    "fc.weight": "fc.weight",
    "input_norm.weight": "enc.output_norm.weight",
    "norm.weight": "output_norm.weight",
    "embed_tokens.weight": "token_embd.weight",
    "lm_head.weight": "output.weight",
    **{f"layers.0.{name}.weight": f"blk.0.{new}.weight" for name, new in _LAYER.items()},
}
_OPTIONAL = ("enc.output_norm.weight", "token_embd.weight", "output.weight")
# Maps between vocabularies, and what only training needs.
_NOT_WRITTEN = ("d2t", "t2d", "verifier_norm.weight", "verifier_lm_head.weight")
_MARK = "layers.0.hidden_norm.weight"


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The sizes that config.json says."""

    width: int
    heads: int
    shared: int
    head: int
    narrow: int


def is_eagle3(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint is an EAGLE-3 head, by the names of its tensors."""
    names = {_short(name) for name in checkpoint.types}
    return "fc.weight" in names and _MARK in names


def tensors_of(checkpoint: Checkpoint) -> dict[str, PublishedTensor]:
    """The tensors of a checkpoint by their names in the GGUF.

    Raises ModelLoadError where one is missing, or is more than llama.cpp's EAGLE-3 has.
    """
    found = dict[str, PublishedTensor]()
    for name, type_ in checkpoint.types.items():
        short = _short(name)
        if short in _NOT_WRITTEN or short.endswith("rotary_emb.inv_freq"):
            continue
        if short not in _NAMES:
            raise ModelLoadError(
                f"{checkpoint.name} has a tensor {name!r}, which llama.cpp's EAGLE-3 "
                "does not have; it drafts with heads of one plain Llama layer only"
            )
        tensor = checkpoint.tensors.get(name)
        if tensor is None or tensor.whole_numbers() is not None:
            raise ModelLoadError(
                f"{checkpoint.name} stores {name!r} as {type_}; pass the checkpoint in "
                "floats of 16 or 32 bits"
            )
        if not tensor.shape:
            raise ModelLoadError(
                f"{checkpoint.name} has {name!r} of one number, which is no matrix or vector; "
                "download it again"
            )
        found[_NAMES[short]] = tensor
    missing = next((name for name in _NAMES.values() if name not in (*found, *_OPTIONAL)), None)
    if missing:
        published = next(name for name, new in _NAMES.items() if new == missing)
        raise ModelLoadError(
            f"{checkpoint.name} has no tensor {published}; download every part of it"
        )
    return found


def require_shapes(
    checkpoint: Checkpoint, tensors: Mapping[str, PublishedTensor], sizes: HeadSizes, fused: int
) -> None:
    """Raise ModelLoadError for a tensor that does not have the sizes of config.json.

    fused: the numbers of the hidden rows that the head reads, side by side.
    """
    width, queries, keys = sizes.width, sizes.heads * sizes.head, sizes.shared * sizes.head
    needed: dict[str, tuple[int | None, ...]] = {
        "fc.weight": (width, fused),
        "enc.output_norm.weight": (fused,),
        "output_norm.weight": (width,),
        "token_embd.weight": (None, width),
        "output.weight": (None, width),
        "blk.0.attn_q.weight": (queries, 2 * width),
        "blk.0.attn_k.weight": (keys, 2 * width),
        "blk.0.attn_v.weight": (keys, 2 * width),
        "blk.0.attn_output.weight": (width, queries),
        "blk.0.ffn_gate.weight": (sizes.narrow, width),
        "blk.0.ffn_up.weight": (sizes.narrow, width),
        "blk.0.ffn_down.weight": (width, sizes.narrow),
        **{f"blk.0.{norm}.weight": (width,) for norm in ("attn_norm", "attn_norm_2")},
        "blk.0.ffn_norm.weight": (width,),
    }
    for name, tensor in tensors.items():
        shape = needed[name]
        fits = len(shape) == len(tensor.shape) and all(
            want in (None, has) for want, has in zip(shape, tensor.shape, strict=True)
        )
        if not fits:
            shown = " x ".join("any" if each is None else str(each) for each in shape)
            raise ModelLoadError(
                f"{checkpoint.name} has {tensor.name!r} of shape "
                f"{' x '.join(map(str, tensor.shape))}, and its config.json says {shown}; "
                "pass the config.json of this head"
            )


def _short(name: str) -> str:
    """A published name without what differs between layouts."""
    name = name.removeprefix("model.")
    return f"layers.0.{name.removeprefix('midlayer.')}" if name.startswith("midlayer.") else name
