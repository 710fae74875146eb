"""Block heads: what the header of a DFlash, DFlash2 or DSpark head says about its blocks.

These heads draft a block of tokens in one pass: the pending token, then mask tokens. llama.cpp has
one architecture for all three; their tensors tell them apart.
"""

from dataclasses import dataclass
from math import inf
from pathlib import Path

from localspec.errors import ModelLoadError
from localspec.gguf.reader import Array, Header, display_name
from localspec.utils.option_names import options

ARCHITECTURE = "dflash"
DFLASH, DFLASH2, DSPARK = "dflash", "dflash2", "dspark"
# The block of a DFlash head whose file does not say it, as in llama.cpp.
_USUAL_BLOCK = 16
# A block is one part of a decode.
_LARGEST_BLOCK = 62
# The library hands out token ids as 32-bit floats, which hold whole numbers up to this.
_LARGEST_VOCABULARY = 1 << 24
_CURRENT = "download a current conversion"


@dataclass(frozen=True, slots=True)
class Block:
    """The block of a head.

    size: its tokens, with the pending one. mask: the token in the place of those to draft. first:
    the row of the first drafted token: 0 where the pending token's row is one (an anchor), else 1.
    causal: whether a row reads only those before it. rows: the layer number of the head's own rows.
    has_confidence: whether these rows begin with the confidence in each token. candidates: of
    DFlash2, for each row; 0 for others. logit_scale, softcap: of DFlash, what its target does to
    logits and llama.cpp does not do to the head's; 0: nothing.
    """

    size: int
    mask: int
    rows: int
    first: int = 1
    causal: bool = False
    has_confidence: bool = False
    candidates: int = 0
    logit_scale: float = 0.0
    softcap: float = 0.0

    @property
    def drafted(self) -> int:
        """The most tokens of a draft."""
        return self.size - self.first


def block_kind(header: Header) -> str:
    """Tell the kinds apart, of a file with the architecture `dflash`."""
    names = {tensor.name for tensor in header.tensors}
    if "markov_w1.weight" in names:
        return DSPARK
    return DFLASH2 if "selector_hidden.weight" in names else DFLASH


def block_of(path: Path, header: Header, vocabulary: int) -> Block:
    """Read the block of a head. vocabulary: the number of tokens in the head's vocabulary.

    Raises ModelLoadError for a broken head, or one that only its own target's family can run.
    """
    kind = block_kind(header)
    if header.number("hyper_connection_count"):
        raise ModelLoadError(
            f"{display_name(path)} is a head of DeepSeek-V4, which is not supported; "
            f"use {options(draft='suffix')}"
        )
    _require_fusing(path, header)
    return Block(
        size=_size(path, header, kind),
        mask=_mask(path, header, vocabulary),
        rows=header.number("block_count") or 0,
        first=0 if kind == DSPARK and header.own("sample_from_anchor") is not False else 1,
        causal=header.own("attention.causal") is True,
        has_confidence=kind == DSPARK and header.tensor("conf_proj.weight") is not None,
        candidates=_candidates(path, header, vocabulary) if kind == DFLASH2 else 0,
        logit_scale=_factor(header, "logit_scale") if kind == DFLASH else 0.0,
        softcap=_factor(header, "final_logit_softcapping") if kind == DFLASH else 0.0,
    )


def rotates_sections(header: Header) -> bool:
    """Whether a model turns its queries and keys by sections (M-RoPE), of target and head alike."""
    sections = header.own("rope.dimension_sections")
    return isinstance(sections, Array) and any(sections)


def _size(path: Path, header: Header, kind: str) -> int:
    least = 1 if kind == DSPARK and header.own("sample_from_anchor") is not False else 2
    size = header.number("block_size")
    if size is None and kind == DFLASH and header.own("block_size") is None:
        return _USUAL_BLOCK
    if size is None or not least <= size <= _LARGEST_BLOCK:
        raise ModelLoadError(
            f"{display_name(path)} drafts blocks of {header.own('block_size')} tokens "
            f"(dflash.block_size), which is not {least} to {_LARGEST_BLOCK}; {_CURRENT}"
        )
    return size


def _mask(path: Path, header: Header, vocabulary: int) -> int:
    mask = header.metadata.get("tokenizer.ggml.mask_token_id")
    if not isinstance(mask, int) or not 0 <= mask < vocabulary:
        raise ModelLoadError(
            f"{display_name(path)} fills its blocks with the token {mask} "
            f"(tokenizer.ggml.mask_token_id), and its vocabulary has {vocabulary}; {_CURRENT}"
        )
    return mask


def _candidates(path: Path, header: Header, vocabulary: int) -> int:
    """Read how many candidates DFlash2 finds for each row: their scores must fit in its rows."""
    count, width = header.number("selector_top_k") or 0, header.number("embedding_length") or 0
    if not 1 <= count <= vocabulary or count * (count + 1) > width:
        raise ModelLoadError(
            f"{display_name(path)} chooses among {count} candidates (dflash.selector_top_k), and "
            f"its rows of {width} numbers have no room for their scores; {_CURRENT}"
        )
    if vocabulary > _LARGEST_VOCABULARY:
        raise ModelLoadError(
            f"{display_name(path)} has {vocabulary} tokens, and candidates are handed out "
            f"without rounding only below {_LARGEST_VOCABULARY}; use {options(draft='suffix')}"
        )
    return count


def _require_fusing(path: Path, header: Header) -> None:
    """Raise ModelLoadError where the layers side by side do not fit the head's first matrix."""
    layers, width = header.own("target_layers"), header.number("embedding_length") or 0
    count, fused = len(layers) if isinstance(layers, Array) else 0, header.tensor("fc.weight")
    if fused is None or fused.shape[0] != count * width:
        takes = "nothing" if fused is None else f"rows of {fused.shape[0]} numbers"
        raise ModelLoadError(
            f"{display_name(path)} reads {count} layers of {width} numbers, and takes {takes} "
            f"(fc.weight); {_CURRENT}"
        )


def _factor(header: Header, key: str) -> float:
    value = header.own(key)
    return value if isinstance(value, float) and 0 < value < inf else 0.0
