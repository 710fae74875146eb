"""Block context: the KV cache of a head that drafts blocks: DFlash, DFlash2 and DSpark.

A pass whose tokens become text puts their hidden rows, its embeddings, into the cache: the head
never reads the ids, which are only the record of what the cache holds. A pass whose tokens are
drafted is a block: the pending token and mask tokens, which read the whole text and each other.
"""

from collections.abc import Sequence
from typing import Any

import llama_cpp

from localspec.errors import LocalspecError
from localspec.gguf.block_heads import Block
from localspec.llama.head_context import HeadContext
from localspec.speculation.passes import Pass


class BlockContext(HeadContext):
    """A KV cache of a head that drafts blocks for the texts in a context of its target.

    block: as in the head's file. Others as in HeadContext.

    A pass of text without embeddings gets rows of zeros, for measuring.
    """

    def __init__(self, *args: Any, block: Block, **options: Any) -> None:
        self.block = block
        self.block_size = block.size
        self._injects = False
        super().__init__(*args, **options)
        rope = llama_cpp.llama_model_rope_type(self.model.handle)
        self._has_sections = rope == llama_cpp.LLAMA_ROPE_TYPE_MROPE

    def fits(self, passes: Sequence[Pass]) -> bool:
        """Whether one decode can compute these passes: all hidden rows, or blocks of one size."""
        return super().fits(passes) and _kinds(passes) == 1

    def decode(self, passes: Sequence[Pass]) -> Any:
        """Compute passes of different texts in one decode."""
        if _kinds(passes) > 1:
            raise LocalspecError("blocks share a decode only with blocks of their size")
        return super().decode(passes)

    def _require_widths(self, passes: Sequence[Pass]) -> None:
        for each in passes:
            if each.embeddings is None:
                continue
            rows, width = each.embeddings.shape
            if width != self._encoder_width or rows != len(each.tokens):
                raise LocalspecError(
                    f"{self.model.path.name} takes a row of {self._encoder_width} numbers for each "
                    f"token, and got {rows} of {width} for {len(each.tokens)}"
                )

    def _begin_batch(self, passes: Sequence[Pass]) -> None:
        self._injects = any(each.drafted is None for each in passes)
        self._wants_logits = not self._injects and any(each.wanted for each in passes)
        self._batch.clear(
            tokens=not self._injects, width=self._encoder_width if self._injects else 0
        )

    def _run_batch(self) -> int:
        if self._injects and self._has_sections:
            self._batch.repeat_positions()
        return super()._run_batch()

    def _library_params(self, texts: int) -> Any:
        params = super()._library_params(texts)
        # The library reserves the logits of a whole micro-batch.
        params.n_batch = params.n_ubatch = self.chunk
        return params

    def new_handle(self, texts: int, target: Any = None) -> Any:
        handle = super().new_handle(texts, target)
        llama_cpp.llama_set_causal_attn(handle, self.block.causal)
        return handle


def _kinds(passes: Sequence[Pass]) -> int:
    """How many kinds of passes there are: those of text, and blocks by their size."""
    return len({None if each.drafted is None else len(each) for each in passes})
