"""Context parameters: what a context is made with, also one that is only planned."""

from dataclasses import dataclass

from localspec.llama.rope import UNSCALED, RopeScaling
from localspec.speculation.draft import MAX_DEPTH
from localspec.speculation.passes import WIDE

# The usual number of prompt tokens per pass: few enough that a generation can be cancelled quickly.
# It is the most rows of a decode too.
CHUNK = 512
# With fewer, the pass of a draft would be computed in parts; with more, buffers take gigabytes.
LEAST_CHUNK, MOST_CHUNK = 64, 8192
# Attention is computed over a multiple of so many cells: the least that all cells in use fit in.
ATTENTION_STEP = 256
# The most rows with logits in one decode; each row reserves n_vocab floats of compute buffer.
OUTPUT_ROWS = WIDE
# The most of them in a decode that scores drafts: no wide one, whose digits are others.
DRAFT_ROWS = MAX_DEPTH + 1


@dataclass(frozen=True, slots=True)
class ContextParams:
    """What a context is made with.

    n_ctx: the most tokens of one text. threads: CPU threads. texts: how many texts there is room
    for. branches: how many further branches, beside the first of each, drafts may have, those of
    all texts together; 0 where only chains are scored. flash_attention: None lets the library
    decide. kv_type: of the cache, as in `gguf.kv_types`. swa_full: whether layers with a sliding
    window keep the whole text; else their cells are used again behind the window, in an order that
    depends on which drafts were rejected, and attention adds in the order of the cells. snapshots:
    how many tokens of a pass a recurrent model can roll back without a checkpoint, if the library
    supports that. ubatch: the most rows computed at once; None: the usual number. rope: see there.
    """

    n_ctx: int
    threads: int = 1
    texts: int = 1
    branches: int = 0
    flash_attention: bool | None = None
    kv_type: str = "f16"
    swa_full: bool = False
    snapshots: int = 0
    ubatch: int | None = None
    rope: RopeScaling = UNSCALED
